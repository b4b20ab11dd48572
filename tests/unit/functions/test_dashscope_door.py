import inspect
import sys

import pytest
from pydantic import SecretStr

from strop.errors import FunctionError
from strop.functions import load_processor
from strop.functions.dashscope_door import open_door
from strop.schema.function import AgentOutput, ModelResource, RewardInput, RewardOutput, RolloutInput

THEIR_PACKAGE = """
from abc import ABC, abstractmethod

from pydantic import BaseModel, ConfigDict, SecretStr


class _Data(BaseModel):
    model_config = ConfigDict(extra="allow", protected_namespaces=())


class ModelResource(_Data):
    model_name: str
    base_url: str
    api_key: SecretStr


class RolloutInput(_Data):
    messages: list[dict]
    model_resource: ModelResource


class RewardInput(_Data):
    agent_output: dict


class GroupRewardInput(_Data):
    agent_outputs: list[dict]


class RolloutOutput(_Data):
    agent_output: dict


class AbstractProcessor(ABC):
    def setup(self):
        pass


class AbstractRolloutProcessor(AbstractProcessor):
    @abstractmethod
    async def process(self, input): ...


class AbstractRewardProcessor(AbstractProcessor):
    @abstractmethod
    def process(self, input): ...
"""

USING_THEIRS = """
from dashscope.finetune.reinforcement import AbstractRewardProcessor, AbstractRolloutProcessor, RolloutOutput


class Agent(AbstractRolloutProcessor):
    def setup(self):
        self.greeting = "hello"

    async def process(self, input):
        key = input.model_resource.api_key.get_secret_value()
        message = {"role": "assistant", "content": self.greeting + key}
        return RolloutOutput(agent_output={"messages": [message]})


class NoProcess(AbstractRewardProcessor):
    pass
"""

USING_OURS = """
from dashscope.finetune.reinforcement import AbstractRewardProcessor, Reward, RewardInput, RewardOutput
from dashscope.finetune.reinforcement.component.data.base_data_model import TaskStatus
from dashscope.finetune.reinforcement.component.observability import observe_processor, observe_tool
from dashscope.finetune.reinforcement.component.observability import trace_client


@observe_tool(name="scorer")
def score(text):
    return float(len(text))


class Length(AbstractRewardProcessor):
    @observe_processor
    def process(self, input: RewardInput) -> RewardOutput:
        assert trace_client(self) is self
        text = input.agent_output.messages[-1]["content"]
        return RewardOutput(reward=Reward(reward_score=score(text)), status=TaskStatus.SUCCESS)
"""


@pytest.fixture(autouse=True)
def forget(monkeypatch):
    """Modules named dashscope are of one test only."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] in ("dashscope", "using")]:
        del sys.modules[name]


def test_a_class_written_for_dashscope_is_one_of_ours_where_that_is_not_installed(tmp_path):
    (tmp_path / "using.py").write_text(USING_OURS)
    processor = load_processor("using.py:Length", tmp_path)()
    agent = AgentOutput(messages=[{"role": "assistant", "content": "four"}])
    output = processor.process(RewardInput(agent_output=agent))
    assert isinstance(output, RewardOutput)
    assert output.reward.reward_score == 4.0


def test_what_the_door_does_not_have_is_told_as_missing_here(tmp_path):
    (tmp_path / "using.py").write_text("from dashscope.finetune.reinforcement import FuncManager\n")
    with pytest.raises(FunctionError, match="FuncManager"):
        load_processor("using.py:Length", tmp_path)
    open_door()
    with pytest.raises(AttributeError, match=r"Strop's stand-in .* put dashscope into requirements"):
        __import__("dashscope.finetune.reinforcement", fromlist=["x"]).FuncManager  # noqa: B018


def test_other_packages_of_that_name_are_not_made_up():
    open_door()
    with pytest.raises(ModuleNotFoundError):
        __import__("dashscope.audio")


async def test_classes_of_the_real_package_are_hosted_with_its_own_data_models(tmp_path):
    package = tmp_path / "dashscope" / "finetune" / "reinforcement"
    package.mkdir(parents=True)
    (tmp_path / "dashscope" / "__init__.py").write_text("")
    (tmp_path / "dashscope" / "finetune" / "__init__.py").write_text("")
    (package / "__init__.py").write_text(THEIR_PACKAGE)
    (tmp_path / "using.py").write_text(USING_THEIRS)
    hosted = load_processor("using.py:Agent", tmp_path)
    assert hosted.func_type == "rollout"
    assert hosted.__name__ == "Agent"
    assert inspect.iscoroutinefunction(hosted.process)
    processor = hosted()
    processor.setup()
    resource = ModelResource(model_name="m", base_url="http://x", api_key=SecretStr(" key"))
    output = await processor.process(
        RolloutInput(messages=[{"role": "user", "content": "hi"}], model_resource=resource)
    )
    assert output == {"agent_output": {"messages": [{"role": "assistant", "content": "hello key"}]}}
    with pytest.raises(FunctionError, match=r"no process\(\)"):
        load_processor("using.py:NoProcess", tmp_path)
