"""What other systems call a key or a training type -> its word here, or why there is none.

For `config.key_table`. `config.ark_names` translates instead, what Ark's own files say.
"""

from __future__ import annotations

OTHER_NAMES = {
    "lr": "learning_rate",
    "epochs": "n_epochs",
    "num_train_epochs": "n_epochs",
    "num_epochs": "n_epochs",
    "group_size": "n_rollouts",
    "num_generations": "n_rollouts",
    "rollouts": "n_rollouts",
    "train_batch_size": "batch_size",
    "mini_batch_size": "ppo_mini_batch_size",
    "lora_r": "lora_rank",
    "lora_target_modules": "target_modules",
    "loss_type": "dpo_loss",
    "kl_coef": "kl_loss_coef",
    "warmup_steps": "lr_warmup_steps",
    "lr_scheduler": "lr_scheduler_type",
    "max_new_tokens": "max_tokens",
    "max_completion_length": "max_tokens",
    "max_response_length": "max_tokens",
    "test_freq": "eval_steps",
    "stopping_threshold": "early_stopping_target",
    "save_freq": "save_steps",
    "clip_range": "clip_ratio_low",
    "clip_ratio_c": "dual_clip",
    "adv_estimator": "algorithm",
    "aggregation": "loss_agg_mode",
    "entropy_coef": "entropy_coeff",
    "kl_loss_estimator": "kl_loss_type",
    "overlong_buffer": "overlong_buffer_len",
    "penalty_factor": "overlong_penalty_factor",
    "mask_truncated_completions": "truncation_policy",
    "dynamic_sampling": "filter_groups",
    "num_iterations": "ppo_epochs",
    "critic_lr": "critic_learning_rate",
    "gae_lambda": "lam",
    "vf_clip": "cliprange_value",
    "value_clip": "cliprange_value",
    "critic_warmup_steps": "critic_warmup",
    "teacher": "teacher_model",
    "entrypoint": "classpath",
    "file": "file_name",
    "path": "file_name",
    "env_vars": "env",
}
"""What other systems call it -> what it is called here."""

OTHER_WORDS = {
    "efficient_sft": "write sft and set lora_rank",
    "finetunesft": "write sft",
    "finetunelora": "write sft and set lora_rank",
    "dpo_full": "write dpo",
    "dpo_lora": "write dpo and set lora_rank",
    "dpolora": "write dpo and set lora_rank",
    "grpo": "write reinforcement, and algorithm: grpo",
    "grpolora": "write reinforcement, algorithm: grpo, and set lora_rank",
    "pretrain": "write cpt",
}
"""Training types of other systems, in small letters -> what to write here."""

_ONE_MACHINE = "it spreads a run over machines or GPUs; this one uses what the machine has: remove it"
_WORKER = "it sizes a cloud container; a function here is one worker process: remove it"
_CLOUD = "it names a part of a cloud that is not here: remove it"
_SHARE = "it is a share; lr_warmup_steps counts steps: write their number, or -1 for 3 % of the run"
_TEACHER = "opd_teacher_"
NOT_HERE = {
    **dict.fromkeys(
        (
            "n_gpus_rollout",
            "nnodes_rollout",
            "n_gpus_training",
            "nnodes_training",
            "inference_tensor_parallel_size",
            "inference_gpu_memory_utilization",
            "tensor_model_parallel_size",
            "pipeline_model_parallel_size",
            "sequence_parallel_size",
            "expert_model_parallel_size",
        ),
        _ONE_MACHINE,
    ),
    **dict.fromkeys(
        (
            "cpu",
            "memory_size",
            "disk_size",
            "capacity",
            "min_capacity",
            "max_capacity",
            "memory_scale_threshold",
            "concurrency_scale_threshold",
        ),
        _WORKER,
    ),
    **dict.fromkeys(
        (
            "enable_vpc_config",
            "vpc_id",
            "vpc_role",
            "switch_ids",
            "security_group_id",
            "layer_code",
        ),
        _CLOUD,
    ),
    **dict.fromkeys(("warmup_step_rate", "warmup_ratio"), _SHARE),
    "enable_log": "what a function prints is kept always: remove it",
    "observability": "everything is recorded always: remove it",
    "requirements_path": "functions run in this Python environment: install there, and remove it",
    "top_k": "the loss assumes tokens sampled from the whole distribution: remove it",
    "repetition_penalty": "the loss assumes tokens sampled from the model's own distribution: remove it",
}
"""Keys of other systems that could do nothing here -> why, and what to do."""


def not_here(key: str) -> str | None:
    """Why a key of another system is no key here and what to do; None where nothing is known of it.

    >>> not_here("opd_teacher_num_replicas")
    'it sizes the servers of a teacher, which is computed in the trainer here: remove it'
    """
    if key.startswith(_TEACHER):
        return "it sizes the servers of a teacher, which is computed in the trainer here: remove it"
    return NOT_HERE.get(key)
