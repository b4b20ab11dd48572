"""Over a hundred ways to spoil a job file: each refused at once with its line, its key and the fix."""

# ruff: noqa: E501  a table reads best with a case a line

import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fakes.job_files import edited, lay_out, write
from strop.config.loading import load_job
from strop.errors import ConfigError
from strop.learners.model_names import complaint

H = "training.hyper_parameters"
CODE = "functions[0].fcmodel.classpath"
AGENT = "functions/agent.py:Agent"

# (old text, new text, line, key, words of the message, words of the fix)
BAD = [
    ("job_name: calculator", "jobname: x", 1, "jobname", "unknown key", "did you mean 'job_name'?"),
    ("job_name: calculator", "learning_rate: 1e-6", 1, "learning_rate", "unknown key", f"belongs in {H}"),
    ("job_name: calculator", "timeout: 5", 1, "timeout", "unknown key", "belongs in functions[]"),
    ("job_name: calculator", "classpath: a", 1, "classpath", "unknown key", "functions[].fcmodel"),
    ("job_name: calculator", "hyper_parameters: {}", 1, "hyper_parameters", "unknown key", "in training"),
    ("job_name: calculator", "lr: 1e-6", 1, "lr", "unknown key", f"'learning_rate' and belongs in {H}"),
    ("job_name: calculator", "learing_rate: 1", 1, "learing_rate", "unknown key", "'learning_rate'?"),
    ("job_name: calculator", "observability: {}", 1, "observability", "unknown key", "remove it"),
    ("job_name: calculator", "job_name: a\nname: b", 1, "job_name", "unknown key", "keep one"),
    ("job_name: calculator", "job_name: 5", 1, "job_name", "expected text, found 5", 'quotes: "5"'),
    ("job_name: calculator", "job_name:", 1, "job_name", "is empty", "remove the key"),
    ("job_name: calculator", 'job_name: ""', 1, "job_name", "must not be empty", "e.g. job_name: calculator"),
    ("job_name: calculator", f"job_name: {'x' * 257}", 1, "job_name", "too long: 257", "256"),
    ("job_name: calculator", "mode: sftt", 1, "mode", "found 'sftt'", "did you mean 'sft'?"),
    ("job_name: calculator", "workspace_dir: gone", 1, "workspace_dir", "no such folder", "job file"),
    ("job_name: calculator", "<<: {a: 1}", 1, "", "merge keys", "write the keys out"),
    ("job_name: calculator", "? [a, b]\n: c", 1, "", "a key must be plain text", "text, without brackets"),
    ("job_name: calculator", "job_name: !!python/name:os.x y", 1, "job_name", "tag", "plain value"),
    ("job_name: calculator", "job_name: &a [*a]", 1, "job_name[0]", "contains itself", "write the value out"),
    ("model: smollm2-135m", "model: smollm2-135m\ntrackers: mlflow", 3, "trackers", "expected a list", ""),
    ("model: smollm2-135m", "model: smollm2-135m\ntrackers: [mlflo]", 3, "trackers[0].type", "found 'mlflo'", "did you mean 'mlflow'?"),
    ("model: smollm2-135m", "model: smollm2-135m\ntrackers:\n- {}", 4, "trackers[0].type", "missing", "add type"),
    ("model: smollm2-135m", "model: smollm2-135m\ntrackers:\n- {type: mlflow, project: x}", 4, "trackers[0].project", "has no effect on mlflow", "it is for wandb"),
    ("model: smollm2-135m", "model: smollm2-135m\ntrackers: [wandb, wandb]", 3, "trackers", "'wandb' is listed twice", "keep one"),
    ("model: smollm2-135m", "model: smollm2-135m\ntrackers:\n- {type: mlflow, tracking_uri: 'https://me:pw@x'}", 4, "trackers[0].tracking_uri", "contains a user name or password", "MLFLOW_TRACKING_USERNAME"),
    ("model: smollm2-135m", "model: smollm2-135m\ntrackers:\n- {type: prometheus, port: 70000}", 4, "trackers[0].port", "[0, 65535], found 70000", ""),
    ("model: smollm2-135m", "model: smollm2-135m\ndiagnosis: {stop_on: [P44]}", 3, "diagnosis.stop_on[0]", "'P44' is neither a rule nor a severity", "did you mean 'P4'?"),
    ("model: smollm2-135m", "model: smollm2-135m\ndiagnosis: {stop: [P4]}", 3, "diagnosis.stop", "unknown key", "'stop_on'"),
    ("model: smollm2-135m", "model: smollm2-135m\ndiagnosis: {webhook: {url: ftp://x}}", 3, "diagnosis.webhook.url", "not the address of a web server", "https://example.com/hook"),
    ("model: smollm2-135m", "model: smollm2-135m\ndiagnosis: {webhook: {url: 'http://x:99999'}}", 3, "diagnosis.webhook.url", "not the address of a web server", "https://example.com/hook"),
    ("model: smollm2-135m", "model: smollm2-135m\ndiagnosis: {webhook: {url: 'http://[x/'}}", 3, "diagnosis.webhook.url", "not the address of a web server", "https://example.com/hook"),
    ("model: smollm2-135m", "model: smollm2-135m\ndiagnosis: {webhook: {url: 'http://x', secret: short}}", 3, "diagnosis.webhook.secret", "too short for signing", "16 characters"),
    ("model: smollm2-135m", "model: smollm2-135m\ndiagnosis: {webhook: {secret: 0123456789abcdef}}", 3, "diagnosis.webhook.url", "missing", "add url"),
    ("model: smollm2-135m\n", "", 1, "model", "missing", "add model: smollm2-135m"),
    ("model: smollm2-135m", "model: [a]", 2, "model", "expected keys and values, found a list", "smollm2"),
    ("model: smollm2-135m", "model: ./gone", 2, "model", "no such folder", "relative to workspace_dir"),
    ("model: smollm2-135m", "model: ~nobody-here/m", 2, "model", "no such folder", "relative"),
    ("model: smollm2-135m", f"model: /{'m' * 300}", 2, "model", "no such folder", "relative"),
    ("model: smollm2-135m", 'model: "a\\0b"', 2, "model", "contains a NUL", "remove"),
    ("model: smollm2-135m", "model: {nam: x}", 2, "model.nam", "unknown key", "'name'"),
    ("  - type: training", "  - type: trainng", 4, "datasets[0].type", "found 'trainng'", "'training'?"),
    ("  - type: training", "  - type: validation", 3, "datasets", "no dataset of type training", "add one"),
    ("data/validation.jsonl", "data/train.jsonl", 3, "datasets", "'data/train.jsonl' is listed twice", "keep one"),
    ("data/train.jsonl", "data/tran.jsonl", 5, "datasets[0].file_name", "no such file", "did you mean 'train.jsonl'?"),
    ("data/train.jsonl", "data/gone.jsonl", 5, "datasets[0].file_name", "no such file", "write the rows there"),
    ("data/train.jsonl", "t" * 300, 5, "datasets[0].file_name", "no such file", "write the rows there"),
    ("data/train.jsonl", "~nobody-here/t", 5, "datasets[0].file_name", "no such file", "write the rows there"),
    ("data/train.jsonl", '"a\\0b"', 5, "datasets[0].file_name", "contains a NUL", "remove"),
    ("    file_name: data/train.jsonl\n", "", 4, "datasets[0].file_name", "missing", "add file_name"),
    ("    file_name: data/train.jsonl", "    file: a", 5, "datasets[0].file", "unknown key", "'file_name'"),
    ("  - type: rollout", "  - type: rolout", 9, "functions[0].type", "found 'rolout'", "'rollout'?"),
    ("  - type: rollout\n", "  - weight: 1\n", 9, "functions[0].type", "missing", "add type"),
    ("    name: agent", "    name: right", 8, "functions", "the name 'right' is used twice", "its own name"),
    ("    name: agent", "    name: right/agent", 8, "functions", "'right' and 'right/agent' would share", "rename"),
    ("    name: agent", "    weight: 2", 10, "functions[0].weight", "has no effect on a rollout", "remove it"),
    ("    name: agent", "    batch_size: 2", 10, "functions[0].batch_size", "unknown key", H),
    (AGENT, "functions/gone.py:Agent", 12, CODE, "no such file", "relative to zipdir"),
    (AGENT, "functions.gone.Agent", 12, CODE, "no such file", "relative to zipdir"),
    (AGENT, "Agent", 12, CODE, "names no class", "py:Class"),
    (AGENT, "agent.txt:Agent", 12, CODE, "names no class", "py:Class"),
    ("    weight: 0.9", "    weight: -1", 15, "functions[1].weight", "must lie in [0, 1000000], found -1", "e.g. 1.0"),
    ("    weight: 0.9", "    weight: 0", 15, "functions[1].weight", "every weight is 0", "above 0"),
    ("    timeout: 10", "    timeout: 0", 16, "functions[1].timeout", "[0.001, 86400], found 0", "e.g. 600.0"),
    ("    timeout: 10", "    timeout: .inf", 16, "functions[1].timeout", "finite number", "e.g. 600.0"),
    ("    timeout: 10", "    timeout: 10s", 16, "functions[1].timeout", "found the text '10s'", "e.g. 600.0"),
    ("    runtime:\n", "    runtime:\n      cpu: 0\n", 20, "functions[1].runtime.cpu", "must lie in", ""),
    ("        JUDGE_KEY: secret-value", "        - a", 20, "functions[1].runtime.env", "found a list", "NAME"),
    ("training:\n", "training:\n  type: pg_opd\n", 22, "training.teacher_model", "missing", "add teacher_model"),
    ("training:\n", "training:\n  teacher_model: smollm2-135m\n", 23, "training.teacher_model", "has no effect in training type", "pg_opd"),
    ("    algorithm: gspo", "    algorithm: gsop", 24, f"{H}.algorithm", "found 'gsop'", "did you mean 'gspo'?"),
    ("    algorithm: gspo", "    algorithm: dapoo", 24, f"{H}.algorithm", "found 'dapoo'", "did you mean 'dapo'?"),
    ("    algorithm: gspo", "    algorithm: topr", 24, f"{H}.algorithm", "found 'topr'", "e.g. gspo"),
    ("    algorithm: gspo", "    entropy_coef: 1", 24, f"{H}.entropy_coef", "unknown key", "'entropy_coeff'"),
    ("    algorithm: gspo", "    nnodes_training: 2", 24, f"{H}.nnodes_training", "unknown key", "machines"),
    ("    algorithm: gspo", "    kl_coef: 1", 24, f"{H}.kl_coef", "unknown key", "'kl_loss_coef'"),
    ("learning_rate: 2e-6", "learning_rate: 2", 25, f"{H}.learning_rate", "must lie in (0, 1], found 2", "e.g. 1e-06"),
    ("learning_rate: 2e-6", "learning_rate: 0", 25, f"{H}.learning_rate", "must lie in (0, 1], found 0", "e.g. 1e-06"),
    ("learning_rate: 2e-6", "learning_rate: 0.0", 25, f"{H}.learning_rate", "must lie in (0, 1], found 0.0", "e.g. 1e-06"),
    ("learning_rate: 2e-6", 'learning_rate: "2e-6"', 25, f"{H}.learning_rate", "text '2e-6'", "the quotes"),
    ("learning_rate: 2e-6", "learning_rate: true", 25, f"{H}.learning_rate", "a number, found true", "e.g. 1e-06"),
    ("learning_rate: 2e-6", "learning_rate: 2e", 25, f"{H}.learning_rate", "the text '2e'", "e.g. 1e-06"),
    ("learning_rate: 2e-6", "learning_rate: .nan", 25, f"{H}.learning_rate", "finite", "e.g. 1e-06"),
    ("learning_rate: 2e-6", "learning_rate:", 25, f"{H}.learning_rate", "is empty, expected a number", "remove the key"),
    ("learning_rate: 2e-6", "learning_rate: {a: 1}", 25, f"{H}.learning_rate", "found a section", "e.g. 1e-06"),
    ("batch_size: 8", "batch_size: 8.0", 26, f"{H}.batch_size", "whole number, found 8.0", "write 8"),
    ("batch_size: 8", "batch_size: 8.5", 26, f"{H}.batch_size", "whole number", "e.g. 8"),
    ("batch_size: 8", "batch_size: 0", 26, f"{H}.batch_size", "[1, 100000], found 0", "e.g. 8"),
    ("batch_size: 8", "batch_size: 1_000", 26, f"{H}.batch_size", "found the text '1_000'", "e.g. 8"),
    ("batch_size: 8", "batch_size: 21", 26, f"{H}.batch_size", "more than the 20 rows", "at most 20"),
    ("batch_size: 8", "batch_size: 8\n    batch_size: 4", 27, f"{H}.batch_size", "first in line 26", "keep one"),
    ("batch_size: 8", "ppo_mini_batch_size: 3", 26, f"{H}.ppo_mini_batch_size", "must divide batch_size", "is 2"),
    ("n_rollouts: 4", "n_rollouts: 0", 27, f"{H}.n_rollouts", "[1, 1024], found 0", "e.g. 8"),
    ("n_rollouts: 4", "n_rollouts: 1", 27, f"{H}.n_rollouts", "without a baseline", "at least 2"),
    ("max_steps: 5", "max_steps: four", 28, f"{H}.max_steps", "'four'", "write a whole number, or remove it"),
    ("max_steps: 5", "critic_warmup: 2", 28, f"{H}.critic_warmup", "has no effect with gspo", "remove it"),
    ("max_steps: 5", "max_steps: 5\n    lr_warmup_steps: 6", 29, f"{H}.lr_warmup_steps", "exceeds max_steps 5", "-1"),
    ("max_steps: 5", "lr_warmup_steps: 3", 28, f"{H}.lr_warmup_steps", "more than the 2 steps of the run", "-1"),
    ("max_steps: 5", "max_tokens: 256", 28, f"{H}.max_tokens", "no room for a prompt", "raise max_length"),
    ("max_steps: 5", "freeze_embeddings: yes", 28, f"{H}.freeze_embeddings", "true or false", "true or false"),
    ("max_steps: 5", "freeze_embeddings: 1", 28, f"{H}.freeze_embeddings", "true or false", "without quotes"),
    ("max_steps: 5", "clip_ratio_low: 0.5", 28, f"{H}.clip_ratio_low", "must not exceed", "0.0003 and 0.0004"),
    ("save_strategy: no", "save_strategy: false", 30, f"{H}.save_strategy", "found false", 'quotes: "no"'),
    ("save_strategy: no", "save_strategy: never", 30, f"{H}.save_strategy", "steps, epoch, no", "e.g. epoch"),
    ("max_length: 256", "max_length: 128", 32, f"{H}.max_prompt_length", "must be below max_length", "raise max_length"),
    ("max_length: 256", "max_length: 200000", 31, f"{H}.max_length", "[2, 131072]", "e.g. 1024"),
    ("model: smollm2-135m", "model: smollm2-135", 2, "model", "no model 'smollm2-135'", "did you mean 'smollm2-135m'?"),
    ("model: smollm2-135m", "model: nothing-like-it", 2, "model", "no model 'nothing-like-it'", "give a folder"),
    ("model: smollm2-135m", "model: smollm2-135m\ntuned_model_name: a/b", 3, "tuned_model_name", "cannot be a name", "letters"),
    ("  - type: training", "  - type: training\n    data_source_type: oss", 5, "datasets[0].data_source_type", "file_id", "file_id"),
    ("  - type: reward", "  - {type: rollout, name: two, fcmodel: {classpath: functions/agent.py:Agent}}\n  - type: reward", 8, "functions", "at most one of type rollout, found 2", "keep one"),
    ("    name: right", "    name: right\n    reward_metric_weight: {a: 0}", 15, "functions[1].reward_metric_weight", "every weight is 0", "at least one"),
    ("    name: right", "    name: right\n    reward_metric_weight: {a: -1}", 15, "functions[1].reward_metric_weight.a", "must be at least 0, found -1", ""),
    ("    name: right", "    name: right\n    params: {a: 1}", 15, "functions[1].params", "have no effect without a preset", "preset:"),
    ("    name: right", "    name: right\n    preset: exact_match", 15, "functions[1].preset", "cannot be combined with fcmodel", "keep one"),
    ("    name: agent", "    reward_metric_weight: {a: 1}", 10, "functions[0].reward_metric_weight", "has no effect on a rollout", "remove it"),
    ("    runtime:\n", "    runtime:\n      memory_size: 10\n", 20, "functions[1].runtime.memory_size", "[64, 16777216]", "whole number"),
    ("    runtime:\n", "    runtime:\n      concurrency: 0\n", 20, "functions[1].runtime.concurrency", "[1, 10000]", "e.g. 64"),
    ("    runtime:\n", "    runtime:\n      env_vars: {}\n", 20, "functions[1].runtime.env_vars", "unknown key", "'env'"),
    ("training:\n", "training:\n  resources: {mtu_capacity: 0}\n", 23, "training.resources.mtu_capacity", "[1, 1000000]", "remove it"),
    ("training:\n", "training:\n  learning_rate: 1e-6\n", 23, "training.learning_rate", "unknown key", f"belongs in {H}"),
    # Names of other systems, each with its own here.
    ("max_steps: 5", "num_train_epochs: 1", 28, f"{H}.num_train_epochs", "unknown key", "'n_epochs'"),
    ("max_steps: 5", "group_size: 8", 28, f"{H}.group_size", "unknown key", "'n_rollouts'"),
    ("max_steps: 5", "train_batch_size: 8", 28, f"{H}.train_batch_size", "unknown key", "'batch_size'"),
    ("max_steps: 5", "mini_batch_size: 4", 28, f"{H}.mini_batch_size", "unknown key", "'ppo_mini_batch_size'"),
    ("max_steps: 5", "max_response_length: 9", 28, f"{H}.max_response_length", "unknown key", "'max_tokens'"),
    ("max_steps: 5", "max_completion_length: 9", 28, f"{H}.max_completion_length", "unknown key", "'max_tokens'"),
    ("max_steps: 5", "test_freq: 5", 28, f"{H}.test_freq", "unknown key", "'eval_steps'"),
    ("max_steps: 5", "save_freq: 5", 28, f"{H}.save_freq", "unknown key", "'save_steps'"),
    ("max_steps: 5", "clip_ratio_c: 3", 28, f"{H}.clip_ratio_c", "unknown key", "'dual_clip'"),
    ("max_steps: 5", "adv_estimator: grpo", 28, f"{H}.adv_estimator", "unknown key", "'algorithm'"),
    ("max_steps: 5", "overlong_buffer: 9", 28, f"{H}.overlong_buffer", "unknown key", "'overlong_buffer_len'"),
    ("max_steps: 5", "mask_truncated_completions: true", 28, f"{H}.mask_truncated_completions", "unknown key", "'truncation_policy'"),
    ("max_steps: 5", "dynamic_sampling: true", 28, f"{H}.dynamic_sampling", "unknown key", "'filter_groups'"),
    ("max_steps: 5", "num_iterations: 2", 28, f"{H}.num_iterations", "unknown key", "'ppo_epochs'"),
    ("max_steps: 5", "tensor_model_parallel_size: 2", 28, f"{H}.tensor_model_parallel_size", "unknown key", "remove it"),
    ("training:\n", "training:\n  type: reinforcment\n", 23, "training.type", "found 'reinforcment'", "'reinforcement'?"),
    ("max_steps: 5", "dpo_beta: 0.1", 28, f"{H}.dpo_beta", "has no effect in training type reinforcement", "it is for dpo"),
    ("max_steps: 5", "early_stopping_count: 2", 28, f"{H}.early_stopping_count", "has no effect without early_stopping_target", "set early"),
    ("max_steps: 5", "early_stopping_target: 1e7", 28, f"{H}.early_stopping_target", "must lie in [-1000000, 1000000]", "remove it"),
    ("max_steps: 5", "lora_alpha: 8", 28, f"{H}.lora_alpha", "has no effect without lora_rank", "set lora_rank"),
    ("max_steps: 5", "lora_rank: 4\n    freeze_embeddings: true", 29, f"{H}.freeze_embeddings", "has no effect with lora_rank", "remove"),
    ("max_steps: 5", "lora_rank: 4\n    lora_dropout: 0.1", 29, f"{H}.lora_dropout", "cannot be used in training type", "remove it"),
    ("max_steps: 5", "lam: 0.9", 28, f"{H}.lam", "has no effect with gspo; it belongs to ppo", "remove it"),
    ("max_steps: 5", "critic_learning_rate: 1e-5", 28, f"{H}.critic_learning_rate", "has no effect with gspo", "remove it"),
    ("algorithm: gspo", "algorithm: ppo\n    critic_warmup: 5", 25, f"{H}.critic_warmup", "takes up all of max_steps 5", "below 5"),
    ("algorithm: gspo", "algorithm: ppo\n    critic_learning_rate: 0", 25, f"{H}.critic_learning_rate", "0 keeps every value at 0", "1e-5"),
    ("n_rollouts: 4", "n_rollouts: 1025", 27, f"{H}.n_rollouts", "[1, 1024], found 1025", "e.g. 8"),
    # Out of range.
    ("max_steps: 5", "max_steps: 0", 28, f"{H}.max_steps", "must lie in [1, 10000000], found 0", "remove it"),
    ("max_steps: 5", "n_epochs: 201", 28, f"{H}.n_epochs", "[1, 200], found 201", "e.g. 1"),
    ("max_steps: 5", "ppo_epochs: 0", 28, f"{H}.ppo_epochs", "[1, 100], found 0", "e.g. 1"),
    ("max_steps: 5", "kl_loss_coef: 11", 28, f"{H}.kl_loss_coef", "[0, 10], found 11", "e.g. 0.0"),
    ("max_steps: 5", "temperature: 0", 28, f"{H}.temperature", "[0.01, 10], found 0", "e.g. 1.0"),
    ("max_steps: 5", "seed: -1", 28, f"{H}.seed", "found -1", "e.g. 42"),
    ("max_steps: 5", "lr_warmup_steps: -2", 28, f"{H}.lr_warmup_steps", "[-1, 10000000], found -2", "e.g. -1"),
    ("max_steps: 5", "save_steps: 1000000", 28, f"{H}.save_steps", "[1, 999999]", "e.g. 100"),
    ("max_steps: 5", "save_total_limit: 0", 28, f"{H}.save_total_limit", "[1, 200], found 0", "e.g. 2"),
    ("max_steps: 5", "max_grad_norm: 0", 28, f"{H}.max_grad_norm", "[1e-12, 1000000000], found 0", "e.g. 1.0"),
    ("max_steps: 5", "weight_decay: 2", 28, f"{H}.weight_decay", "[0, 1], found 2", "e.g. 0.0"),
    ("max_steps: 5", "max_attempts: 0", 28, f"{H}.max_attempts", "[1, 100], found 0", "e.g. 3"),
    ("max_steps: 5", "max_failure_rate: 0", 28, f"{H}.max_failure_rate", "(0, 1], found 0", "e.g. 0.5"),
    ("max_steps: 5", "max_failure_rate: 1.5", 28, f"{H}.max_failure_rate", "(0, 1], found 1.5", "e.g. 0.5"),
    ("max_steps: 5", "train_dtype: float16", 28, f"{H}.train_dtype", "found 'float16'", "did you mean"),
    ("max_steps: 5", "lr_scheduler_type: linaer", 28, f"{H}.lr_scheduler_type", "found 'linaer'", "'linear'?"),
    ("max_steps: 5", "truncation_policy: penalize", 28, f"{H}.truncation_policy", "found 'penalize'", "'penalise'?"),
    ("max_steps: 5", "truncation_policy: mask\n    filter_groups: 1", 29, f"{H}.filter_groups", "true or false", "without quotes"),
    ("max_steps: 5", "loss_agg_mode: token_mean", 28, f"{H}.loss_agg_mode", "found 'token_mean'", "'token-mean'?"),
    # Beyond all bounds, or nearer to 0 than float32 can tell.
    ("max_steps: 5", "lora_alpha: 1e308", 28, f"{H}.lora_alpha", "must lie in [0.001, 65536], found 1e+308", "e.g. 32.0"),
    ("max_steps: 5", "clip_ratio_high: 1e308", 28, f"{H}.clip_ratio_high", "must lie in (0, 100], found 1e+308", "remove it"),
    ("max_steps: 5", "temperature: 1e-45", 28, f"{H}.temperature", "must lie in [0.01, 10], found 1e-45", "e.g. 1.0"),
    ("max_steps: 5", "max_grad_norm: 1e308", 28, f"{H}.max_grad_norm", "must lie in [1e-12, 1000000000]", "e.g. 1.0"),
    ("learning_rate: 2e-6", "learning_rate: 1e-400", 25, f"{H}.learning_rate", "'1e-400' is too close to 0 to make a difference", "plain value"),
    ("learning_rate: 2e-6", "learning_rate: 1e-300", 25, f"{H}.learning_rate", "1e-300 is too close to 0", "e.g. 1e-06"),
    ("learning_rate: 2e-6", "learning_rate: 1e400", 25, f"{H}.learning_rate", "must be a finite number in (0, 1], found inf", "e.g. 1e-06"),
    ("max_steps: 5", "max_steps: 1e308", 28, f"{H}.max_steps", "whole number in [1, 10000000], found 1e+308", "remove it"),
    ("max_steps: 5", f"seed: {10**30}", 28, f"{H}.seed", "must lie in [0, 9223372036854775808)", "e.g. 42"),
    ("max_steps: 5", f"seed: {'9' * 5000}", 28, f"{H}.seed", "has far too many digits", "plain value"),
    ("max_steps: 5", "max_tokens: 1000000", 28, f"{H}.max_tokens", "must lie in [1, 131072]", "remove it"),
    ("    weight: 0.9", "    weight: 1e308", 15, "functions[1].weight", "must lie in [0, 1000000]", "e.g. 1.0"),
    ("    timeout: 10", "    timeout: 1e308", 16, "functions[1].timeout", "must lie in [0.001, 86400]", "e.g. 600.0"),
    ("    name: right", "    name: right\n    reward_metric_weight: {a: 1e308}", 15, "functions[1].reward_metric_weight.a", "must be at most 1e+06, found 1e+308", ""),
    ("    name: right", "    name: right\n    reward_metric_weight: {a: .nan}", 15, "functions[1].reward_metric_weight.a", "must be a finite number", ""),
    # Text that nothing can hold.
    ("job_name: calculator", 'job_name: "a\\ud800"', 1, "job_name", "contains half a character", "two \\u escapes"),
    ("job_name: calculator", '"\\ud800": 1', 1, "", "the key '\\ud800' contains half a character", "two \\u escapes"),
    ("data/train.jsonl", '"\\udcff"', 5, "datasets[0].file_name", "contains half a character", "two \\u escapes"),
    ("        JUDGE_KEY: secret-value", "        JUDGE_KEY: [secret-value]", 20, "functions[1].runtime.env", "JUDGE_KEY is a list", "a string"),
    ("        JUDGE_KEY: secret-value", "        JUDGE_KEY:", 20, "functions[1].runtime.env", "JUDGE_KEY is nothing", "a string"),
    ("        JUDGE_KEY: secret-value", "        A=B: 1", 20, "functions[1].runtime.env", "'A=B' is not a name for a variable", "letters"),
    ("max_steps: 5", "max_steps: !!int abc", 28, f"{H}.max_steps", "'abc' does not fit its tag", "plain value"),
    ("max_steps: 5", "reference_kl: !!bool x", 28, f"{H}.reference_kl", "'x' does not fit its tag", "plain value"),
    # Contradictions.
    ("max_steps: 5", "overlong_buffer_len: 128", 28, f"{H}.overlong_buffer_len", "must be below the 128 tokens", "25"),
    ("max_steps: 5", "max_tokens: 20\n    overlong_buffer_len: 30", 29, f"{H}.overlong_buffer_len", "below the 20", "4"),
    ("max_steps: 5", "reference_kl: false\n    kl_loss_coef: 0.1", 28, f"{H}.reference_kl", "cannot be off", "change or remove it"),
    ("max_steps: 5", "ppo_mini_batch_size: 16", 28, f"{H}.ppo_mini_batch_size", "must divide", "is 8"),
    # Without effect.
    ("max_steps: 5", "max_num_gen_batches: 3", 28, f"{H}.max_num_gen_batches", "has no effect while filter_groups is off", "true"),
    ("algorithm: gspo", "algorithm: dapo\n    filter_groups: false\n    max_num_gen_batches: 3", 26, f"{H}.max_num_gen_batches", "no effect", "remove"),
    ("max_steps: 5", "overlong_penalty_factor: 2", 28, f"{H}.overlong_penalty_factor", "has no effect without overlong_buffer_len", "set one of these"),
    ("max_steps: 5", "dual_clip: 3", 28, f"{H}.dual_clip", "has no effect with gspo; it belongs to grpo", "remove it"),
    ("max_steps: 5", "gamma: 0.9", 28, f"{H}.gamma", "has no effect with gspo", "remove it"),
    ("max_steps: 5", "tau_pos: 2", 28, f"{H}.tau_pos", "has no effect with gspo; it belongs to sapo", "remove it"),
    ("algorithm: gspo", "algorithm: sapo\n    clip_ratio_low: 0.1", 25, f"{H}.clip_ratio_low", "has no effect with sapo", "remove it"),
    ("max_steps: 5", "kl_loss_type: k3", 28, f"{H}.kl_loss_type", "has no effect while kl_loss_coef is 0", "remove it"),
    ("max_steps: 5", "kl_reward_type: k3", 28, f"{H}.kl_reward_type", "has no effect while kl_reward_coef is 0", "remove it"),
    ("max_steps: 5", "rollout_is_threshold: 3", 28, f"{H}.rollout_is_threshold", "has no effect while rollout_is is none", "remove"),
    ("max_steps: 5", "rollout_rs_low: 0.5", 28, f"{H}.rollout_rs_low", "has no effect while rollout_rs is none", "remove it"),
    ("algorithm: gspo", "algorithm: grpo\n    dual_clip: 0.5", 25, f"{H}.dual_clip", "must be above 1", "change or remove it"),
]  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("STROP_HOME", str(tmp_path / "home"))
    return lay_out(tmp_path)


def test_the_cases_are_many_and_each_another_one():
    assert len({(old, new) for old, new, *_ in BAD}) == len(BAD) > 150


@pytest.mark.parametrize(("old", "new", "line", "key", "message", "fix"), BAD)
def test_a_bad_file_is_refused_with_line_key_and_fix(folder, old, new, line, key, message, fix):
    started = time.process_time()
    with pytest.raises(ConfigError) as caught:
        load_job(write(folder, edited(old, new)), check_model=complaint)
    assert time.process_time() - started < 2  # of the processor, so that a busy machine does not fail it
    found = caught.value.problems
    assert [problem.place for problem in found] == [f"{folder / 'job.yaml'}:{line}"], found
    assert found[0].message.startswith(f"{key}: " if key else "")
    assert message in found[0].message
    assert fix in (found[0].fix or "")
    name = key.rsplit(".", 1)[-1]
    assert f"{name}: {name}: " not in found[0].message, "the key is said twice"


def test_every_bad_file_is_refused_before_anything_heavy_is_loaded(folder):
    """All of them in one fresh process: whatever one of them loaded would be there at the end."""
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from strop.errors import ConfigError\n"
        "from strop.config.loading import load_job\n"
        "from strop.learners.model_names import complaint\n"
        "path, refused = Path('job.yaml'), 0\n"
        "for text in sys.stdin.read().split('\\0'):\n"
        "    path.write_text(text)\n"
        "    try:\n"
        "        load_job(path, check_model=complaint)\n"
        "    except ConfigError:\n"
        "        refused += 1\n"
        "heavy = {'torch', 'transformers', 'sqlalchemy', 'fastapi'} & set(sys.modules)\n"
        "print(refused, sorted(heavy))\n"
    )
    files = "\0".join(edited(old, new) for old, new, *_ in BAD)
    done = subprocess.run(
        [sys.executable, "-c", code], input=files, cwd=folder, capture_output=True, text=True, check=True
    )
    assert done.stdout.split(maxsplit=1) == [str(len(BAD)), "[]\n"]


def test_a_bad_file_is_refused_by_the_command_within_two_seconds_and_without_torch(folder):
    path = write(folder, edited("batch_size: 8", "batch_size: 0").replace("smollm2-135m", "smollm2-135"))
    code = (
        "import sys\n"
        "from strop.cli.commands import app\n"
        "from strop.errors import ConfigError\n"
        "try:\n"
        f"    app(['run', {str(path)!r}], standalone_mode=False)\n"
        "except ConfigError as error:\n"
        "    assert 'torch' not in sys.modules and 'sqlalchemy' not in sys.modules\n"
        "    print(error)\n"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert "2 problems" in done.stdout
    assert "did you mean 'smollm2-135m'?" in done.stdout
    # Of the processor, so that a busy machine does not fail it.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 2
