"""Hashes of what goes into a run."""

from __future__ import annotations

import hashlib
from pathlib import Path

from strop.config.inputs import code_hash


def test_the_hash_of_code_changes_with_a_files_content_and_name_and_with_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "functions").mkdir()
    file = tmp_path / "functions" / "reward.py"
    file.write_text("one = 1\n")
    first = code_hash(tmp_path)
    line = f"functions/reward.py\0{hashlib.sha256(b'one = 1' + bytes([10])).hexdigest()}\n"
    assert first == hashlib.sha256(line.encode()).hexdigest()
    for aside in (".git/hook.py", "__pycache__/x.py", "venv/lib/y.py", "data.jsonl"):
        path = tmp_path / aside
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("two = 2\n")
    (tmp_path / "venv" / "pyvenv.cfg").write_text("")
    assert code_hash(tmp_path) == first
    file.write_text("one = 2\n")
    second = code_hash(tmp_path)
    file.rename(file.with_name("rewards.py"))
    assert len({first, second, code_hash(tmp_path)}) == 3
