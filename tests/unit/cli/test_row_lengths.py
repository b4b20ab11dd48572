"""Rows that are too long, as far as it can be told before a job is taken."""

from pathlib import Path

import pytest

from fakes.bench import job
from strop.cli.checking import too_long


@pytest.mark.parametrize("place", ["models--a--b/snapshots/f0", "mine"])
@pytest.mark.parametrize("config", ['{"model_type": "llama"}', "7"])
def test_rows_are_not_counted_by_a_model_that_cannot_be_loaded_or_is_half_fetched(
    place: str, config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / place
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(config)
    monkeypatch.setattr("strop.learners.model_names.folder_here", lambda name: folder)
    assert too_long(job()) == []
