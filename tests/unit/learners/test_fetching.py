"""How far a download is, in words."""

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from strop.learners.fetching import _sizes, telling_growth

MB = 1_000_000


def test_what_a_download_writes_is_told_on_the_way(tmp_path: Path) -> None:
    """The second part is written once the first was told, the block ends once the second was."""
    told: list[str] = []
    heard = [threading.Event(), threading.Event()]

    def tell(text: str) -> None:
        told.append(text)
        if len(told) > 1:
            heard[len(told) - 2].set()

    with telling_growth(
        tell, "fetching m (93 MB, once)", tmp_path, growing="fetching m", total=93 * MB, look_s=0.005
    ):
        with (tmp_path / "part").open("wb") as file:
            file.truncate(31 * MB)
            assert heard[0].wait(20)
            file.truncate(62 * MB)
            assert heard[1].wait(20)
            file.truncate(93 * MB)
    assert told == [
        "fetching m (93 MB, once)",
        "fetching m: 31 of 93 MB",
        "fetching m: 62 of 93 MB",
    ]


def test_where_nobody_knows_how_much_there_is_only_what_is_new_is_counted(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    for name, size in (("old", 500 * MB), ("new", 0)):
        with (tmp_path / "blobs" / name).open("wb") as file:
            file.truncate(size)
    told: list[str] = []
    heard = threading.Event()

    def tell(text: str) -> None:
        told.append(text)
        if len(told) == 2:
            heard.set()

    with telling_growth(tell, "fetching o/m from the hub", tmp_path, look_s=0.005):
        with (tmp_path / "blobs" / "new").open("wb") as file:
            file.truncate(130 * MB)
        assert heard.wait(20)
    assert told == ["fetching o/m from the hub", "fetching o/m from the hub: 130 MB"]


def test_a_folder_that_vanishes_while_it_is_looked_at_has_no_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Downloaders make folders of their own and take them away again."""
    cache = tmp_path / "cache"
    (cache / "unpacked").mkdir(parents=True)
    (cache / "wheel").write_bytes(b"12345")
    (cache / "link").symlink_to(cache / "wheel")
    scandir = os.scandir

    def vanishing(path: str) -> Any:
        if Path(path).name == "unpacked":
            Path(path).rename(tmp_path / "gone")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", vanishing)
    assert _sizes(cache) == [5]
    assert (tmp_path / "gone").is_dir()
