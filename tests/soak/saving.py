"""SIGKILL at random moments of saving -> how often the newest whole checkpoint was found.

`python -m soak.saving 50`. A child saves a real learner as fast as it can, over names of its own and over the
same name, and says each one that is whole; the parent kills it at a random moment and looks.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import torch

from fakes.learning import Learner
from fakes.model import tiny_llama
from fakes.tokenizer import tiny_tokenizer
from strop.config.job import HyperParameters
from strop.learners.local.checkpoint import Checkpoints, clear_leftovers, latest_checkpoint, verify_checkpoint

SAME_NAME_EVERY = 3
"""One checkpoint in so many is written a second time under its name, as a step published later is."""
AHEAD_S = 0.5
"""The kill comes within so many seconds after the first checkpoint: some ten savings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """`kills`: how many; `whole`: after how many the newest whole one was found; `left`: what lay about."""

    kills: int
    whole: int
    left: Counter[str]


def kill_while_saving(kills: int, *, seed: int = 0) -> Found:
    """Kill a saving child `kills` times, each in a folder of its own."""
    torch.set_num_threads(1)
    chance, whole, left = random.Random(seed), 0, Counter[str]()
    for _ in range(kills):
        root = Path(tempfile.mkdtemp(prefix="strop-soak-"))
        try:
            told = _killed(root, chance.uniform(0.0, AHEAD_S))
            left.update(path.suffix or "whole" for path in root.iterdir())
            newest = latest_checkpoint(root)
            assert newest is not None
            manifest = verify_checkpoint(newest)
            # What the child called whole is the least; the next may have appeared just before the kill.
            whole += manifest.position["number"] in (told, told + 1)
            clear_leftovers(root)
        finally:
            shutil.rmtree(root, ignore_errors=True)
    return Found(kills=kills, whole=whole, left=left)


def _killed(root: Path, after_s: float) -> int:
    """Let a child save and kill it. Returns the number of the last checkpoint it called whole."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        _save_for_ever(root, theirs)
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        told = pipe.read(1)
        time.sleep(after_s)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        told += pipe.read()
    return len(told)


def _save_for_ever(root: Path, pipe: int) -> None:
    learner = Learner(tiny_llama(), tiny_tokenizer(), HyperParameters(), total_steps=1)
    checkpoints = Checkpoints(learner)
    number = step = 0
    while True:
        number += 1
        step += number % SAME_NAME_EVERY != 0 or number == 1
        checkpoints.write(root / f"step-{step:06d}", step=step, policy_version=0, position={"number": number})
        os.write(pipe, b".")


if __name__ == "__main__":
    found = kill_while_saving(int(sys.argv[1]))
    print(f"newest whole checkpoint found after {found.whole} of {found.kills} kills; left: {found.left}")
    sys.exit(found.whole != found.kills)
