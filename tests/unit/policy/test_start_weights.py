"""What is in no checkpoint, the reference and frozen weights, must be the same when a run goes on."""

from pathlib import Path

import pytest
import torch

from fakes.model import tiny_llama
from fakes.tokenizer import tiny_tokenizer
from strop.errors import CheckpointError
from strop.policy.update import Learner
from strop.policy.weights_file import sha256_of
from strop.schema.config import HyperParameters


def learner(seed: int, **changes) -> Learner:
    hyper = HyperParameters.model_validate({"learning_rate": 0.01, "reference_kl": False, **changes})
    return Learner(tiny_llama(seed), tiny_tokenizer(), hyper, total_steps=2)


@pytest.mark.parametrize("changes", [{"reference_kl": True}, {"freeze_embeddings": True}])
def test_a_run_with_a_reference_or_frozen_weights_goes_on_only_from_its_own_start(
    changes: dict, tmp_path: Path
):
    learner(0, **changes).save(tmp_path)
    learner(0, **changes).load(tmp_path)
    with pytest.raises(CheckpointError, match="began with other weights") as caught:
        learner(1, **changes).load(tmp_path)
    assert "restore the model as it was" in str(caught.value)


def test_where_nothing_of_the_start_remains_another_start_does_not_matter(tmp_path: Path):
    first = learner(0)
    first.save(tmp_path)
    second = learner(1)
    second.load(tmp_path)
    left, right = (dict(one.weights().named_parameters()) for one in (first, second))
    assert all(torch.equal(left[name], right[name]) for name in left)


def test_the_hash_is_of_names_shapes_dtypes_and_bits():
    ones = torch.ones(2, 3)
    alike = {"a": ones, "b": torch.zeros(1)}
    assert sha256_of(alike) == sha256_of({"b": torch.zeros(1), "a": ones.clone()})
    for other in (
        {"a": ones, "c": torch.zeros(1)},
        {"a": ones.reshape(3, 2), "b": torch.zeros(1)},
        {"a": ones.double(), "b": torch.zeros(1)},
        {"a": ones, "b": -torch.zeros(1)},
        {"a": ones},
    ):
        assert sha256_of(other) != sha256_of(alike)
