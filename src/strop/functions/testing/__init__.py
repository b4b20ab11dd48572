"""For tests of functions without a model: a scripted model, a recording of a real one, and one call of each
kind of function.

>>> from strop.functions.testing import ScriptedModel, run_rollout
"""

from strop.functions.testing.calls import run_ark, run_group_reward, run_reward, run_rollout
from strop.functions.testing.recording import Recording
from strop.functions.testing.said import Refusal, Said, ToolCall, calls, cut, refuses
from strop.functions.testing.scripted import ScriptedModel

__all__ = [
    "Recording",
    "Refusal",
    "Said",
    "ScriptedModel",
    "ToolCall",
    "calls",
    "cut",
    "refuses",
    "run_ark",
    "run_group_reward",
    "run_reward",
    "run_rollout",
]
