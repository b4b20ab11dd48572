"""The algorithms that are built in, and one that another package brings."""

import sys
import textwrap
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from strop.algorithms import AlgorithmError, algorithm, algorithm_names, bound_knobs, load_named
from strop.config.job import HyperParameters
from strop.learners.losses.policy import policy_loss
from strop.rl.advantage import group_advantages

BUILTIN = (
    "gspo",
    "grpo",
    "dr_grpo",
    "dapo",
    "ppo",
    "rloo",
    "reinforce_pp",
    "reinforce_pp_baseline",
    "cispo",
    "sapo",
)

DECLARATION = """
    from strop.algorithms import Algorithm

    HALF = Algorithm(
        name="half_step", advantage="half_step:halved", policy_loss="half_step_loss:half",
        aggregation="token-mean", clip_range=(0.1, 0.3), dual_clip=None, knobs=frozenset({"clip_ratio_high"}),
        paper="none", en="Half of everything.", zh="一切减半。",
    )

    def halved(rewards):
        mean = sum(rewards) / len(rewards)
        return [(reward - mean) / 2 for reward in rewards]
"""
LOSS = """
    import torch
    from strop.learners.losses.surrogates import Inputs, TokenLoss

    def half(inputs: Inputs) -> TokenLoss:
        nowhere = torch.zeros_like(inputs.mask_BT)
        return TokenLoss(-0.5 * inputs.advantages_BT * inputs.policy_logprobs_BT, nowhere, nowhere)
"""


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, *, entry: str, **modules: str) -> None:
    """A distribution as pip unpacks one: modules, and metadata with an entry point."""
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(text))
    info = folder / "half_step-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: half-step\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[strop.algorithms]\nhalf_step = {entry}\n")
    monkeypatch.syspath_prepend(str(folder))
    for name in modules:
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_the_built_in_algorithms_are_these_and_the_first_is_the_default():
    assert algorithm_names() == BUILTIN
    assert HyperParameters().algorithm == BUILTIN[0]


@pytest.mark.parametrize("name", BUILTIN)
def test_a_record_says_what_a_person_needs_in_both_languages(name: str):
    record = algorithm(name)
    assert record.name == name
    assert record.paper.startswith("arXiv:")
    assert record.en.endswith(".")
    assert record.zh.endswith("。")


@pytest.mark.parametrize(
    ("name", "clip_range", "aggregation"),
    [
        ("gspo", (3e-4, 4e-4), "seq-mean-token-mean"),
        ("grpo", (0.2, 0.2), "seq-mean-token-mean"),
        ("dr_grpo", (0.2, 0.2), "seq-mean-token-sum-norm"),
        ("dapo", (0.2, 0.28), "token-mean"),
        ("cispo", (1.0, 4.0), "token-mean"),
        ("sapo", None, "seq-mean-token-mean"),
    ],
)
def test_defaults_are_those_of_the_papers(name: str, clip_range, aggregation: str):
    record = algorithm(name)
    assert (record.clip_range, record.aggregation) == (clip_range, aggregation)


def test_every_knob_that_an_algorithm_reads_is_a_hyper_parameter():
    assert bound_knobs() <= HyperParameters.model_fields.keys()


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(AlgorithmError, match="unknown algorithm 'grp0'; known: gspo, grpo, ") as caught:
        algorithm("grp0")
    assert caught.value.fix == "did you mean 'grpo'?"


def test_another_package_adds_an_algorithm_without_touching_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    install(tmp_path, monkeypatch, entry="half_step:HALF", half_step=DECLARATION, half_step_loss=LOSS)
    assert algorithm_names() == (*BUILTIN, "half_step")
    hyper = HyperParameters.model_validate({"algorithm": "half_step", "clip_ratio_high": 0.4})
    assert hyper.clip_range == (0.1, 0.4)
    assert hyper.aggregation == "token-mean"
    assert "half_step_loss" not in sys.modules  # reading the configuration binds no loss, so no torch
    assert group_advantages(hyper.method.advantage, [1.0, 0.0, 0.0, 1.0]) == [0.25, -0.25, -0.25, 0.25]
    logprobs = torch.tensor([[-1.0, -2.0]], requires_grad=True)
    loss, _ = policy_loss(
        hyper.method.policy_loss,
        policy_logprobs_BT=logprobs,
        old_logprobs_BT=logprobs.detach(),
        advantages_BT=torch.tensor([[1.0]]),
        mask_BT=torch.ones(1, 2),
        clip_low=0.1,
        clip_high=0.4,
    )
    loss.backward()
    assert loss.item() == pytest.approx(0.75)  # 0.5 * (1 + 2) / 2
    assert logprobs.grad.tolist() == [[-0.25, -0.25]]
    with pytest.raises(ValidationError, match="dual_clip: has no effect with half_step"):
        HyperParameters.model_validate({"algorithm": "half_step", "dual_clip": 3})


def test_without_the_package_its_name_is_unknown_again():
    with pytest.raises(AlgorithmError, match="unknown algorithm 'half_step'"):
        algorithm("half_step")


@pytest.mark.parametrize(
    ("entry", "declaration", "message"),
    [
        ("half_step:HALF", "import nowhere_to_be_found", "cannot be loaded: ModuleNotFoundError"),
        ("half_step:NO", DECLARATION, "cannot be loaded: AttributeError"),
        ("half_step:HALF", "HALF = 3", "is no Algorithm but 3"),
        ("half_step:HALF", DECLARATION.replace('name="half_step"', 'name="grpo"'), "a name that is taken"),
        ("half_step:HALF", DECLARATION.replace("token-mean", "mean"), "aggregation must be one of"),
        ("half_step:HALF", DECLARATION.replace("half_step:halved", "halved"), "advantage must be one of"),
    ],
)
def test_a_broken_package_is_named_with_what_is_wrong(
    entry: str, declaration: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    install(tmp_path, monkeypatch, entry=entry, half_step=declaration)
    with pytest.raises(AlgorithmError, match=message) as caught:
        algorithm_names()
    assert "'half-step'" in str(caught.value)
    assert algorithm("grpo").name == "grpo"  # what is built in does not depend on it


@pytest.mark.parametrize("reference", ["no_such_module:f", "math:no_such_function"])
def test_a_function_that_is_not_there_is_named(reference: str):
    with pytest.raises(AlgorithmError, match=reference):
        load_named(reference)
