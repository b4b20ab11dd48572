"""One process, three questions in turn: how fast are matrix products, sampling and update here."""

from __future__ import annotations

import time
from statistics import median

import torch
from torch.nn import functional as F

from bench import profile
from bench.contender import Answer, serve
from bench.contenders.strop_step import Step

_SIDE = 2048
_REPEATS = 5


def matrix_rate(dtype: torch.dtype) -> float:
    """FLOP/s of a linear layer as wide as its batch, the median of several.

    Not `torch.mm`: where bfloat16 is emulated, its layout takes a path a hundred times slower than a layer's.
    """
    rows, weight = (torch.randn(_SIDE, _SIDE).to(dtype) for _ in range(2))
    times: list[float] = []
    for _ in range(1 + _REPEATS):
        start = time.perf_counter()
        F.linear(rows, weight)
        times.append(time.perf_counter() - start)
    return 2 * _SIDE**3 / median(times[1:])


def prepare(settings: Answer):
    step = Step(settings)
    step.run({})

    def run(request: Answer) -> Answer:
        if request["what"] == "rates":
            return {
                "rates": {
                    str(dtype).removeprefix("torch."): matrix_rate(dtype)
                    for dtype in (torch.float32, torch.bfloat16)
                }
            }
        if request["what"] == "step":
            return step.run({})
        answers = step.sample()
        batch = step.batch(answers)
        return {
            "sampling": profile.split(step.sample),
            "update": profile.split(lambda: step.learner.update(batch)),
        }

    facts = {
        "parameters": step.num_parameters,
        "training_dtype": step.training_dtype,
        "threads": torch.get_num_threads(),
    }
    return run, facts


if __name__ == "__main__":
    serve(prepare)
