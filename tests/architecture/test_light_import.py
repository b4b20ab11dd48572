"""`import strop` stays cheap: a function author pays for pydantic and nothing heavier."""

import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "fastapi", "starlette", "uvicorn", "sqlalchemy", "httpx", "rich", "typer")


def test_import_strop_loads_no_torch_no_web_framework_no_database() -> None:
    code = f"import strop, sys; print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_worker_module_loads_no_http_client_before_it_forks() -> None:
    code = f"import strop.workers.worker, sys; print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_run_that_has_nothing_left_to_do_is_found_out_without_torch() -> None:
    modules = "strop.cli.commands, strop.cli.run_folder, strop.cli.local_run, strop.cli.train"
    needed = "strop.cli.checking, strop.rl.trainer, strop.learners.local.checkpoint, strop.doors.app"
    code = f"import {modules}, {needed}, sys; print(sorted({{'torch', 'transformers'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


HELP = """
import contextlib, io, sys
from strop.cli.commands import command_line

sys.argv = ["strop", *sys.argv[1:], "--help"]
with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.suppress(SystemExit):
    command_line()
assert "Usage: strop" in shown.getvalue()
print(*sys.modules)
"""
ELSEWHERE = {"torch", "transformers", "fastapi", "starlette", "uvicorn", "sqlalchemy", "httpx", "aiohttp"}
"""What the work of some command needs and no command's help."""
INNER = {"strop.client", "strop.config", "strop.console", "strop.doors", "strop.functions", "strop.inference",
         "strop.learners", "strop.rl", "strop.service", "strop.workers"}  # fmt: skip


def modules_of_help(*words: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", HELP, *words], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_outline_of_all_commands_loads_none_of_them() -> None:
    loaded = modules_of_help()
    mine = {name for name in loaded if name.startswith("strop.")}
    assert mine == {
        "strop.locales",
        "strop.cli",
        "strop.cli.commands",
        "strop.cli.interrupts",
        "strop.cli.text",
        "strop.errors",
    }
    assert not loaded & (ELSEWHERE | {"pydantic", "yaml", "asyncio"})


@pytest.mark.parametrize(
    "words",
    ["run", "demo", "doctor", "init", "chat", "serve", "up", "jobs list", "evaluations list", "files list",
     "functions list", "functions test", "functions show", "models list", "deployments list", "keys list",
     "sandbox check"],
)  # fmt: skip
def test_the_help_of_a_command_loads_nothing_that_its_work_needs(words: str) -> None:
    loaded = modules_of_help(*words.split())
    assert loaded & ELSEWHERE == set()
    assert loaded & INNER == set()
