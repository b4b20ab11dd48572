"""Completions of a problem -> for each whether its program passes all tests, run in the sandbox.

A part of the tests earns nothing: `print(a)` has as much of "print the smaller one", and a run that was paid
for it learned it. `partly` tells how many programs pass some tests and not all.

In Ark's form: one call for the whole group. `SANDBOX_URL` says where `strop sandbox` answers.
"""

import os
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
from rl_types import RewardFunctionResult, RewardStatus

PATIENCE_S = 120.0


def reward_fn(context, sample, completions):
    started = time.monotonic()
    answers = [completion["messages"][-1]["content"] or "" for completion in completions]
    # A group that has learned says the same again and again: each program is run once.
    different = list(dict.fromkeys(answers))
    try:
        with ThreadPoolExecutor(8) as judges:
            shares = judges.map(lambda answer: share_passed(answer, sample["extra"]), different)
            judged = dict(zip(different, shares, strict=True))
    except httpx.HTTPError as error:
        # A sandbox that is away makes no program wrong: the group is tried again.
        return RewardFunctionResult([0.0] * len(answers), {}, RewardStatus.RETRY, f"sandbox: {error!r}")
    passed = [judged[answer] for answer in answers]
    rewards = [float(share == 1.0) for share in passed]
    metrics = {
        "sandbox_seconds": time.monotonic() - started,
        "tests_passed": sum(passed) / len(passed),
        "partly": sum(0.0 < share < 1.0 for share in passed) / len(passed),
    }
    return RewardFunctionResult(rewards, metrics, RewardStatus.SUCCESS)


def share_passed(answer, extra):
    body = {
        "dataset": "code",
        "id": extra["contest_id"],
        # An answer without a block is the program itself.
        "completion": answer if "```" in answer else f"```{extra['language']}\n{answer}\n```",
        "config": {
            "dataset_type": "CommonOJDataset",
            "language": extra["language"],
            "run_timeout": float(extra["time_limit"]),
            "provided_data": {"test": extra["tests"]},
            "extra": {"run_all_cases": True},
        },
    }
    url = os.environ.get("SANDBOX_URL", "http://127.0.0.1:8090")
    reply = httpx.post(f"{url}/submit", json=body, timeout=PATIENCE_S)
    reply.raise_for_status()
    tests = reply.json()["tests"]
    return sum(test["passed"] for test in tests) / len(tests)
