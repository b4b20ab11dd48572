"""What of a folder goes to the server, and that it is only read."""

import io
import os
import zipfile
from pathlib import Path

import pytest

from strop.client import bundle
from strop.client.bundle import EXCLUDED, pack, why_left_out
from strop.errors import ConfigError

CONTRACT = (
    ".git .gitignore .DS_Store .vscode .Python .env .venv .idea __pycache__ *.swp *.egg *.egg-info *.pyc "
    "*.md *.log *.tmp *.bak build develop-eggs .eggs test tests tmp temp data"
)


JOB = "model: tiny\nfunctions:\n  - fcmodel: {classpath: a.B}\n    runtime: {env: {KEY: secret}}\n"


def write(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return root


def test_the_exclusions_are_the_contract_s() -> None:
    assert set(EXCLUDED) == set(CONTRACT.split())


def test_code_goes_along_and_what_is_excluded_is_told_with_its_reason(tmp_path: Path) -> None:
    root = write(
        tmp_path / "code", "a.py", "pkg/b.py", "job.yaml", "README.md", "pkg/tests/t.py", "data/rows.jsonl",
        ".env", ".env.local", "keys/my.pem", "x.egg-info/PKG", "pkg/__pycache__/b.pyc", ".mypy_cache/x",
    )  # fmt: skip
    (root / "link.py").symlink_to(root / "a.py")
    (root / "out").symlink_to(tmp_path)
    os.mkfifo(root / "pipe")
    (root / "job.yaml").write_text(JOB)
    (root / "words.yml").write_text("model: a machine that learns\nloss: what it lacks\n")
    packed = pack(root)
    assert packed.files == ("a.py", "pkg/b.py", "words.yml")
    assert {one.name: one.reason for one in packed.left_out} == {
        ".env": "matches .env",
        ".env.local": "may hold secrets",
        ".mypy_cache": "matches .*_cache",
        "README.md": "matches *.md",
        "data": "matches data",
        "job.yaml": "is a job file: its runtime.env may hold secrets",
        "keys/my.pem": "may hold secrets",
        "link.py": "is a link",
        "out": "is a link",
        "pipe": "is neither a file nor a folder",
        "pkg/__pycache__": "matches __pycache__",
        "pkg/tests": "matches tests",
        "x.egg-info": "matches *.egg-info",
    }
    with zipfile.ZipFile(io.BytesIO(packed.content)) as archive:
        assert archive.read("pkg/b.py") == b"pkg/b.py"


def test_a_job_file_goes_along_where_it_is_asked_for(tmp_path: Path) -> None:
    root = write(tmp_path / "code", "a.py")
    (root / "job.yaml").write_text(JOB)
    assert pack(root, [root / "job.yaml"]).files == ("a.py", "job.yaml")


@pytest.mark.parametrize(
    ("text", "is_job"),
    [
        (JOB, True),
        (JOB.replace("model:", "'model':", 1).replace("functions", '"functions"'), True),
        ("\ufeffdatasets: [{file_name: rows.jsonl}]\nmodel: tiny\n", True),
        ("training: {hyper_parameters: {seed: 1}}\nmodel: tiny\n", True),
        ("model: gpt-4o\nfunctions: [search, {name: add}]\n", False),
        ("model: {layers: 2}\ntraining: {steps: 5}\ndatasets: [wiki]\n", False),
        ("model: tiny\nprompts: {file_name: prompts.txt}\n", False),
    ],
)
def test_an_agents_own_settings_are_told_from_a_job(tmp_path: Path, text: str, is_job: bool) -> None:
    root = write(tmp_path / "code", "a.py")
    (root / "settings.yaml").write_text(text, encoding="utf-8")
    assert [one.name for one in pack(root).left_out] == (["settings.yaml"] if is_job else [])


def test_equal_code_is_the_same_bytes_whenever_it_was_written(tmp_path: Path) -> None:
    one, two = write(tmp_path / "one", "b.py", "a/x.py"), write(tmp_path / "two", "a/x.py", "b.py")
    os.utime(two / "b.py", (0, 0))
    assert pack(one).content == pack(two).content
    (two / "b.py").write_text("other")
    assert pack(one).sha256 != pack(two).sha256


def test_extra_files_come_to_the_top(tmp_path: Path) -> None:
    root, other = write(tmp_path / "code", "a.py"), write(tmp_path / "else", "prompt.txt", "a.py")
    assert pack(root, [other / "prompt.txt"]).files == ("a.py", "prompt.txt")
    for wrong in ("a.py", "nowhere.txt"):
        with pytest.raises(ConfigError, match=wrong):
            pack(root, [other / wrong])


def test_what_cannot_be_packed_is_refused_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="no such folder"):
        pack(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="nothing to pack"):
        pack(write(tmp_path / "only", "README.md"))
    root = write(tmp_path / "code", "a.py", "b.py")
    monkeypatch.setattr(bundle, "MAX_FILES", 1)
    with pytest.raises(ConfigError, match="2 files, at most 1"):
        pack(root)
    monkeypatch.setattr(bundle, "MAX_FILES", 10)
    monkeypatch.setattr(bundle, "MAX_BYTES", 1024**2)
    (root / "big.bin").write_bytes(os.urandom(2 * 1024**2))
    with pytest.raises(ConfigError, match=r"at most 1 MiB are taken.*big\.bin"):
        pack(root)


@pytest.mark.parametrize(
    ("name", "goes"), [("testing.py", True), ("data.py", True), ("tests", False), ("id_rsa", False)]
)
def test_patterns_match_whole_names(name: str, goes: bool) -> None:
    assert (why_left_out(name) is None) is goes
