"""Rows that are too long, as far as it can be told before a job is taken."""

from pathlib import Path

import pytest

from fakes.bench import job
from strop.cli.row_lengths import too_long
from strop.errors import ModelError


@pytest.mark.parametrize(("place", "refused"), [("models--a--b/snapshots/f0", False), ("mine", True)])
def test_a_model_without_a_tokenizer_is_refused_unless_the_rest_of_it_is_still_to_be_fetched(
    place: str, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / place
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    monkeypatch.setattr("strop.policy.model_names.folder_here", lambda name: folder)
    if not refused:
        assert too_long(job()) == []
        return
    with pytest.raises(ModelError, match=r"the tokenizer in .* cannot be loaded"):
        too_long(job())
