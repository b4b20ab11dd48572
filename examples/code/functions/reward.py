"""Completions of a problem -> 1.0 for each whose program passes the problem's tests in the sandbox.

In Ark's form: one call for the whole group. `SANDBOX_URL` says where `strop sandbox` answers.
"""

import os
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
from rl_types import RewardFunctionResult, RewardStatus

SANDBOX_URL = os.environ.get("SANDBOX_URL", "http://127.0.0.1:8090")
PATIENCE_S = 120.0


def reward_fn(context, sample, completions):
    extra = sample["extra"]
    config = {
        "dataset_type": "CommonOJDataset",
        "language": extra["language"],
        "run_timeout": float(extra["time_limit"]),
        "provided_data": {"test": extra["tests"]},
        "extra": {"run_all_cases": True},
    }

    def judge(completion):
        body = {
            "dataset": "code",
            "id": extra["contest_id"],
            "completion": completion["messages"][-1]["content"] or "",
            "config": config,
        }
        reply = httpx.post(f"{SANDBOX_URL}/submit", json=body, timeout=PATIENCE_S)
        reply.raise_for_status()
        return reply.json()["tests"]

    started = time.monotonic()
    try:
        with ThreadPoolExecutor(8) as judges:
            judged = list(judges.map(judge, completions))
    except httpx.HTTPError as error:
        # A sandbox that is away makes no program wrong: the group is tried again.
        return RewardFunctionResult([0.0] * len(completions), {}, RewardStatus.RETRY, f"sandbox: {error!r}")
    passed = [sum(test["passed"] for test in tests) / len(tests) for tests in judged]
    metrics = {"sandbox_seconds": time.monotonic() - started, "cases_passed": sum(passed) / len(passed)}
    return RewardFunctionResult([float(share == 1.0) for share in passed], metrics, RewardStatus.SUCCESS)
