"""Every row of `attacks`: none gets what it must not have, none hurts a neighbour, none leaves anything.

`STROP_WRITE_ATTACKS=1` writes what came of each into `docs/sandbox_attacks.md`.
"""

from __future__ import annotations

import gzip
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import strop_sandbox
from attacks import ATTACKS, CONTAINED, KILLED, REFUSED, TIME, Attack
from strop_sandbox.metrics import verdict
from strop_sandbox.wire import RunCodeResponse

NUM_SIDE_BY_SIDE = 5
DOCUMENT = Path(__file__).parents[2] / "docs" / "sandbox_attacks.md"


def outcome(reply: dict[str, Any]) -> str:
    """One word, in the words of `attacks`."""
    if "detail" in reply:
        return REFUSED
    word = verdict(RunCodeResponse.model_validate(reply))
    ran = reply["run_result"] or {}
    said = (ran.get("stdout") or "")[-2000:] + (ran.get("stderr") or "")[-2000:]
    if "ESCAPED" in said:
        return "ESCAPED"
    if word in ("cpu_time_limit", "wall_time_limit"):
        return TIME
    if word in ("signal", "process_limit"):
        return KILLED
    if word == "success":
        return REFUSED if REFUSED in said else CONTAINED if CONTAINED in said else word
    return word


@pytest.fixture(scope="module")
def replies(service) -> dict[str, dict[str, Any]]:
    """All of them, some at a time, and after each a neighbour's program whose verdict must be right."""
    port = int(service.url.rpartition(":")[2])

    def mount(attack: Attack) -> tuple[dict[str, Any], list[str]]:
        program = attack.program.replace("{port}", str(port))
        with ThreadPoolExecutor(1) as beside:
            neighbour = beside.submit(service.run, "print(sum(range(10)))", run_timeout=5)
            body = {"code": program, "language": attack.language, "run_timeout": 10, **attack.more}
            answer = service.client.post("/run_code", json=body)
            refused = answer.status_code == 400 and "files" in attack.more
            assert answer.status_code == 200 or refused, answer.text
            reply = answer.json()
            told = neighbour.result()
        return reply, [told["status"], (told["run_result"] or {}).get("stdout", "")]

    with ThreadPoolExecutor(NUM_SIDE_BY_SIDE) as attackers:
        done = dict(zip([one.name for one in ATTACKS], attackers.map(mount, ATTACKS), strict=True))
    if os.environ.get("STROP_WRITE_ATTACKS"):
        DOCUMENT.write_text(document({name: outcome(reply) for name, (reply, _) in done.items()}))
    return {name: {"reply": reply, "neighbour": told} for name, (reply, told) in done.items()}


def test_there_are_eighty_at_least_and_each_has_a_name_of_its_own() -> None:
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) >= 80


def test_the_attack_on_the_service_looks_where_it_is() -> None:
    attack = next(one for one in ATTACKS if one.name == "import the service")
    assert repr(str(Path(strop_sandbox.__file__).parents[1])) in attack.program


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_comes_to_nothing(replies, attack: Attack) -> None:
    reply = replies[attack.name]["reply"]
    assert outcome(reply) in attack.expect, reply
    assert "ESCAPED" not in str(reply.get("run_result"))
    files = reply.get("files", {})
    assert set(files) <= {"a.txt"}
    assert not any(files.values())


TERMINALS = """import os
held = []
try:
    while len(held) < 300: held.append(os.open('/dev/ptmx', os.O_RDWR | os.O_NOCTTY))
except OSError:
    pass
print(len(held))
"""


def test_a_box_has_a_bounded_part_of_the_machine_s_terminals(service) -> None:
    if service.sandbox.isolation.zygote is None:
        pytest.skip("bubblewrap alone bounds them by the number of open files")
    assert service.run(TERMINALS)["run_result"]["stdout"] == "64\n"


FORGES = """import json, os, signal
with open('cells.json', 'w') as file:
    json.dump({'cells': [{'stdout': 'forged', 'stderr': '', 'display': [], 'error': []}], 'late': False}, file)
os.kill(os.getppid(), signal.SIGKILL)
"""


def test_a_notebook_that_attacks_ends_with_its_box_and_a_neighbour_runs(service) -> None:
    """One prints more than is kept, one ends what drives it and says itself how it ended."""

    def notebook(cell: str) -> dict[str, Any]:
        body = {"cells": [cell], "total_timeout": 60}
        return service.client.post("/run_jupyter", json=body).json()

    with ThreadPoolExecutor(3) as callers:
        flood = callers.submit(notebook, "for _ in range(30): print('x' * 100000)")
        forged = callers.submit(notebook, FORGES)
        neighbour = callers.submit(service.run, "print(sum(range(10)))")
        assert neighbour.result()["run_result"]["stdout"] == "45\n"
        said = flood.result()
        assert said["status"] == "Success"
        assert [len(cell["stdout"]) for cell in said["cells"]] == [1 << 20]
        assert forged.result()["status"] == "Failed"
        assert forged.result()["driver"]["signal"] == "SIGKILL"


def test_a_body_that_unpacks_to_a_thousand_times_its_size_is_not_unpacked(service) -> None:
    bomb = gzip.compress(b'{"language": "python", "code": "' + b" " * (64 << 20) + b'print(1)"}')
    headers = {"content-encoding": "gzip", "content-type": "application/json"}
    reply = service.client.post("/run_code", content=bomb, headers=headers)
    assert reply.status_code in (400, 422)  # no text, or no JSON, as it happens to be packed


def test_no_neighbour_s_verdict_was_hurt(replies) -> None:
    assert {tuple(one["neighbour"]) for one in replies.values()} == {("Success", "45\n")}


def eventually(holds: Callable[[], bool]) -> bool:
    until = time.monotonic() + 30
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def test_no_process_file_or_group_is_left(replies, service) -> None:
    pool = service.sandbox.pool
    zygote = service.sandbox.isolation.zygote

    def boxes() -> int:
        """Processes below this one that are the first of a process namespace, but for the one that makes them."""
        parents, firsts = {}, set()
        for path in Path("/proc").glob("[0-9]*/status"):
            try:
                told = dict(line.split(":", 1) for line in path.read_text().splitlines())
            except OSError:
                continue
            parents[path.parent.name] = told["PPid"].strip()
            numbers = told["NSpid"].split()
            if len(numbers) > 1 and numbers[-1] == "1":
                firsts.add(path.parent.name)
        below = {str(os.getpid())}
        while more := {one for one, parent in parents.items() if parent in below} - below:
            below |= more
        return len(firsts & below) - (zygote is not None)

    assert eventually(lambda: service.sandbox.slots.num_running == 0 and pool.num_ready == pool.size)
    assert eventually(lambda: boxes() == pool.size)
    assert sorted(os.listdir(service.sandbox.isolation.folder)) == [
        "filter.bpf", "group", "hosts", "nsswitch.conf", "passwd", "strop_init.pyc", "zygote.pyc"
    ]  # fmt: skip
    groups = service.sandbox.isolation.cgroups
    if groups is not None:
        assert eventually(lambda: len(list(groups.root.glob("box-*"))) <= pool.size)


def document(outcomes: dict[str, str]) -> str:
    rows = "\n".join(f"| {one.name} | {' or '.join(one.expect)} | {outcomes[one.name]} |" for one in ATTACKS)
    return (
        "# What hostile programs try\n\n"
        f"{len(ATTACKS)} programs from `sandbox/tests/attacks.py`, which CI runs, and what came of each. Beside"
        " each\na neighbour's program ran and got its right verdict; after all, no process, file or control group was"
        " left.\n\n"
        "`refused`: the system said no, and the program said so; or the request was. `contained`: it ended, and what it did ended with its"
        " box.\n`killed`: by a signal. `error`: a return code other than 0.\n\n"
        "| attack | must come to | came to |\n|---|---|---|\n"
        f"{rows}\n"
    )


def test_the_document_is_what_the_attacks_make_of_it_and_each_ended_as_it_must() -> None:
    """Its last column is of one run of this file: where several ends are right, the next may differ."""
    text = DOCUMENT.read_text()
    rows = [line[2:-2].split(" | ") for line in text.splitlines() if line.startswith("| ")][1:]
    came = {name: outcome for name, _, outcome in rows}
    assert document(came) == text, "STROP_WRITE_ATTACKS=1 writes it anew"
    assert [attack.name for attack in ATTACKS if came[attack.name] not in attack.expect] == []
