"""What of a test input no function will see as it was meant."""

from fakes.development_guide import INPUTS
from strop.functions.hints import input_hints
from strop.schema.function import FunctionType


def hints(kind, **values):
    return input_hints(FunctionType(kind), values)


def test_misspelt_keys_are_told_with_the_nearest():
    (text,) = hints("reward", ground_thruth="4", agent_output={})
    assert text.startswith("ground_thruth: no declared field")
    assert text.endswith("Did you mean 'ground_truth'?")
    (text,) = hints("reward", agent_output={"mesages": []})
    assert text == "agent_output.mesages: dropped, no function sees it. Did you mean 'messages'?"
    (text,) = hints("group_reward", agent_outputs=[{}, {"reward": 1}])
    assert text.startswith("agent_outputs[1].reward: dropped")


def test_a_reference_among_the_extras_is_told():
    (text,) = hints("reward", agent_output={"rollout_extra": {"ground_truth": "4"}})
    assert text.startswith("agent_output.rollout_extra.ground_truth: is not the input's ground_truth")
    (text,) = hints("rollout", messages=[], rollout_extra={"ground_truth": "4"})
    assert text.startswith("rollout_extra.ground_truth: ")
    assert hints("reward", ground_truth="4", agent_output={"rollout_extra": {"ground_truth": "4"}}) == []


def test_what_passes_by_contract_and_the_guides_own_inputs_are_silent():
    assert hints("reward", additional_field=1, colour="red", agent_output={}) == []
    for values in INPUTS.values():
        assert input_hints(FunctionType(values["func_type"]), values) == []
