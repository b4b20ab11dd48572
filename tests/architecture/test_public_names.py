"""The SDK's public face: exactly these names."""

import tomllib
from pathlib import Path

import strop
import strop_sandbox

PUBLIC_NAMES = {
    "AbstractGroupRewardProcessor",
    "AbstractRewardProcessor",
    "AbstractRolloutProcessor",
    "AgentOutput",
    "AgenticRL",
    "AgenticRLFunctionComponent",
    "AsyncAgenticRL",
    "AsyncClient",
    "BlockingAgenticRL",
    "Client",
    "DataSourceType",
    "Dataset",
    "FunctionComponentModel",
    "FunctionComponentRuntime",
    "FunctionType",
    "GroupReward",
    "GroupRewardFunctionComponent",
    "GroupRewardInput",
    "GroupRewardOutput",
    "ModelResource",
    "RequestMetadata",
    "Reward",
    "RewardFunctionComponent",
    "RewardInput",
    "RewardOutput",
    "RolloutFunctionComponent",
    "RolloutInput",
    "RolloutOutput",
    "StropError",
    "TaskStatus",
    "TrainingDataset",
    "ValidationDataset",
    "__version__",
    "aggregate_func",
    "reward_func",
    "sub_reward_func",
}


def test_strop_exports_exactly_the_public_names() -> None:
    assert set(strop.__all__) == PUBLIC_NAMES
    assert len(strop.__all__) == len(PUBLIC_NAMES)
    assert all(hasattr(strop, name) for name in PUBLIC_NAMES)


def test_strop_has_no_other_class_or_function() -> None:
    others = {
        name
        for name, value in vars(strop).items()
        if not name.startswith("_") and callable(value) and name not in PUBLIC_NAMES
    }
    assert others == set()


def test_the_version_is_that_of_the_package() -> None:
    pyproject = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert strop.__version__ == pyproject["project"]["version"]


def test_strop_asks_for_the_sandbox_of_its_own_version() -> None:
    pyproject = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert f"strop-sandbox=={strop_sandbox.__version__}" in pyproject["project"]["dependencies"]
