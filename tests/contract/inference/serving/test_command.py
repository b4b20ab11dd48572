"""`strop serve` as a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import openai
from typer.testing import CliRunner

from fakes.model import save_tiny_model
from strop.cli.commands import app

ENV = {**os.environ, "STROP_LANG": "en", "OMP_NUM_THREADS": "1"}


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command, running, and its base_url."""
    process = subprocess.Popen(
        [sys.executable, "-m", "strop.cli", "serve", "--port", "0", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**ENV, "STROP_SERVE_API_KEY": "right"},
    )
    try:
        assert process.stdout is not None
        told = process.stdout.readline()
        found = re.search(r"http://\S+/v1", told)
        assert found, told
        yield process, found[0]
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def test_it_answers_with_its_key_and_ends_in_order(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "tiny")
    with serving(str(folder), "--name", "mine", "--max-length", "100", "--max-sequences", "4") as (
        process,
        url,
    ):
        with openai.OpenAI(base_url=url, api_key="right") as client:
            stream = client.chat.completions.create(
                model="mine", messages=[{"role": "user", "content": "hello"}], max_tokens=40, stream=True
            )
            first = next(iter(stream))
            process.send_signal(signal.SIGTERM)
            rest = [chunk.choices[0].finish_reason for chunk in stream]
        assert first.model == "mine"
        assert rest[-1] in ("stop", "length")
        assert process.wait(30) == 0


def test_an_address_open_to_the_network_without_a_key_is_refused_before_anything_is_loaded() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "strop.cli", "serve", "--host", "0.0.0.0", "nothing"],
        capture_output=True,
        text=True,
        env=ENV,
        check=False,
    )
    assert done.returncode == 2
    assert "set STROP_SERVE_API_KEY" in done.stderr


def test_it_says_what_it_loads_before_it_does() -> None:
    done = CliRunner(env={"STROP_LANG": "en"}).invoke(app, ["serve", "nothing-of-this-name", "--port", "0"])
    assert done.exit_code != 0
    assert done.stderr.splitlines()[0] == "loading nothing-of-this-name ..."
    assert done.stdout == ""
