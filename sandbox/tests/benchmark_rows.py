"""Rows of public benchmarks, and how a test asks the sandbox about them."""

import json

from strop_sandbox.datasets import Datasets
from strop_sandbox.wire import GetPromptByIdRequest, TestConfig

DOUBLE = {
    "task_id": "HumanEval/900",
    "prompt": 'def double(x):\n    """ Twice as much.\n    >>> double(2)\n    4\n    """\n',
    "entry_point": "double",
    "canonical_solution": "    return 2 * x\n",
    "test": "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate('a') == 'aa'\n",
}
"""A row as HumanEval.jsonl has it."""

DOUBLE_STORED = {
    "id": 3,
    "content": DOUBLE["prompt"],
    "labels": json.dumps({"entry_point": "double"}),
    "test": DOUBLE["test"],
}
"""The same as SandboxFusion's own tables have it."""


def fenced(code: str, language: str = "python") -> str:
    return f"Here it is:\n```{language}\n{code}\n```\nDone."


def submit(service, kind: str, row: dict, completion: str, dataset: str = "mine", **extra) -> dict:
    config = {"dataset_type": kind, "provided_data": row, "extra": extra}
    body = {"dataset": dataset, "id": 0, "completion": completion, "config": config}
    sent = json.dumps(body)  # in ASCII: httpx's own cannot write half a surrogate pair
    reply = service.client.post("/submit", content=sent, headers={"content-type": "application/json"})
    assert reply.status_code == 200, reply.text
    return reply.json()


def refusal(service, kind: str, row: dict, completion: str = "x", **extra) -> str:
    config = {"dataset_type": kind, "provided_data": row, "extra": extra}
    reply = service.client.post("/submit", json={"id": 0, "completion": completion, "config": config})
    assert reply.status_code == 400, reply.text
    return reply.json()["detail"]


def asked(kind: str, row: dict, dataset: str = "mine", **config) -> str:
    told = TestConfig(dataset_type=kind, provided_data=row, **config)
    return Datasets().prompt(GetPromptByIdRequest(dataset=dataset, id=0, config=told)).prompt
