"""`import strop` stays cheap: a function author pays for pydantic and nothing heavier."""

import subprocess
import sys

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
    modules = "strop.cli.commands, strop.cli.resume, strop.cli.local_run, strop.cli.train"
    needed = (
        "strop.cli.job_on_this_machine, strop.rl.trainer, strop.learners.local.checkpoint, strop.doors.app"
    )
    code = f"import {modules}, {needed}, sys; print(sorted({{'torch', 'transformers'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
