"""Submit the job with DashScope's own client (`pip install dashscope`), as its documents do.

export DASHSCOPE_HTTP_BASE_URL=http://127.0.0.1:8000/api/v1 DASHSCOPE_API_KEY=...     (as `strop up` tells)
"""

import asyncio

from dashscope.finetune.agentic_rl import AgenticRL
from dashscope.finetune.reinforcement import (
    DataSourceType,
    FunctionComponentModel,
    FunctionComponentRuntime,
    RewardFunctionComponent,
    RolloutFunctionComponent,
    TrainingDataset,
    ValidationDataset,
)


async def main() -> None:
    client = AgenticRL()
    result = await client.run(
        model="smollm2-135m",
        training_datasets=[
            TrainingDataset(data_source_type=DataSourceType.FILE_ID, file_name="./data/train.jsonl")
        ],
        validation_datasets=[
            ValidationDataset(data_source_type=DataSourceType.FILE_ID, file_name="./data/validation.jsonl")
        ],
        functions=[
            RolloutFunctionComponent(
                name="rollout-1",
                timeout=120,
                fcmodel=FunctionComponentModel(classpath="functions.rollout.rollout.CalcXRolloutProcessor"),
                runtime=FunctionComponentRuntime(concurrency=30, capacity=1, env={}),
            ),
            RewardFunctionComponent(
                name="reward-1",
                weight=1.0,
                timeout=30,
                reward_metric_weight={"accuracy": 0.7, "format": 0.3},
                fcmodel=FunctionComponentModel(classpath="functions.reward.reward.CalcXRewardProcessor"),
                runtime=FunctionComponentRuntime(concurrency=30, capacity=1, env={}),
            ),
        ],
        hyper_parameters={
            "algorithm": "gspo",
            "batch_size": 2,
            "n_rollouts": 4,
            "max_steps": 3,
            "learning_rate": 3e-5,
            "lr_scheduler_type": "constant",
            "lr_warmup_steps": 0,
            "max_length": 640,
            "max_prompt_length": 512,
            "max_tokens": 48,
            "save_strategy": "no",
        },
    )
    if result.status_code == 200:
        print(f"job {result.output.job_id}")
    else:
        raise SystemExit(f"not submitted: {result}")


asyncio.run(main())
