"""Presets and Ark's mixing in a job file: refused with line, key and fix."""

import pytest

from strop.config.loading import load_job
from strop.errors import ConfigError

HEAD = """model: smollm2-135m
datasets: [{file_name: train.jsonl}]
training: {hyper_parameters: {batch_size: 4}}
functions:
"""
ARK = "  - {type: group_reward, name: ark, fcmodel: {classpath: reward.py:reward_fn}}\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train.jsonl").write_text('{"messages": [{"role": "user", "content": "hi"}]}\n' * 8)
    (tmp_path / "reward.py").write_text("")
    return tmp_path


def read(folder, functions):
    (folder / "job.yaml").write_text(HEAD + functions)
    return load_job(folder / "job.yaml")


def refused(folder, functions):
    with pytest.raises(ConfigError) as caught:
        read(folder, functions)
    return [(one.place.rpartition(":")[2], one.message, one.fix) for one in caught.value.problems]


def test_presets_are_named_by_themselves_and_may_stand_twice(folder):
    config = read(
        folder,
        "  - {preset: exact_match}\n"
        "  - {preset: exact_match, name: strict, params: {normalise: []}, weight: 0.5}\n",
    )
    assert [(one.label, one.type, one.weight) for one in config.functions] == [
        ("exact_match", "reward", 1.0),
        ("strict", "reward", 0.5),
    ]
    assert config.functions[1].params == {"normalise": []}


def test_a_wrong_preset_or_parameter_is_told_with_its_line_and_the_nearest(folder):
    assert refused(folder, "  - {preset: exact_mach}\n") == [
        ("5", "functions[0].preset: no preset 'exact_mach'", "did you mean 'exact_match'?")
    ]
    assert refused(folder, "  - preset: regex_match\n    params:\n      pattern: '('\n") == [
        ("7", "functions[0].params.pattern: no regular expression: missing ) at position 1", None)
    ]
    ((line, message, fix),) = refused(folder, "  - {preset: exact_match, params: {normalize: []}}\n")
    assert (line, message, fix) == (
        "5",
        "functions[0].params.normalize: unknown parameter",
        "did you mean 'normalise'?",
    )


def test_with_arks_reward_fn_there_are_five_rewards_at_most(folder):
    presets = "".join(f"  - {{preset: answered, name: p{index}}}\n" for index in range(5))
    ((line, message, fix),) = refused(folder, ARK + presets)
    assert (line, message) == (
        "10",
        "functions[5]: with Ark's reward_fn a job has at most 5 rewards, presets included",
    )
    assert fix is not None
    assert len(read(folder, presets + "  - {preset: answered, name: p5}\n").functions) == 6


@pytest.mark.parametrize(
    ("weight", "fix"), [(0.005, "e.g. 0.01"), (1000.01, "e.g. 1000"), (0.333, "e.g. 0.33"), (0, "e.g. 0.01")]
)
def test_with_arks_reward_fn_weights_go_in_steps(folder, weight, fix):
    ((line, message, found),) = refused(folder, ARK + f"  - {{preset: answered, weight: {weight}}}\n")
    assert line == "6"
    assert message.startswith("functions[1].weight: ")
    assert "from 0.01 to 1000 in steps of 0.01" in message
    assert found == fix


def test_weights_that_ark_takes_are_taken(folder):
    for weight in (0.01, 0.29, 1, 1000):
        read(folder, ARK + f"  - {{preset: answered, weight: {weight}}}\n")


def test_there_is_one_rollout_but_any_number_of_group_rewards(folder):
    many = "".join(
        f"  - {{type: group_reward, name: g{index}, fcmodel: {{classpath: reward.py:G}}}}\n"
        for index in range(3)
    )
    assert len(read(folder, many).functions) == 3
