"""docs/cli.md is what the command line says of itself."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_command_reference_is_current_make_docs_writes_it() -> None:
    made = subprocess.run(
        [sys.executable, "-m", "typer", "strop.cli.commands", "utils", "docs", "--name", "strop"],
        env={**os.environ, "STROP_LANG": "en"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert (ROOT / "docs" / "cli.md").read_text().strip() == made.strip()


def test_help_comes_in_chinese_where_the_environment_says_so() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "strop.cli", "run", "--help"],
        env={**os.environ, "STROP_LANG": "zh", "COLUMNS": "160"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "检查文件、数据与函数，打印每个值及其来源后停止" in shown
    assert "Check the file" not in shown


def test_help_loads_neither_torch_nor_a_web_framework_nor_a_database() -> None:
    code = (
        "import sys, strop.cli.commands\n"
        "heavy = {'torch', 'transformers', 'fastapi', 'starlette', 'sqlalchemy'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
