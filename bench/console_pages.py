"""A large job in a store of its own -> how long the server takes for each of the console's pages.

    python -m bench.console_pages [FOLDER]

2,000 steps of 150 metrics, 200,000 trajectories with two turns each, 200,000 log lines. Prints the median and
the 95th percentile of each page, another of the same kind at every ask, and how long a browser draws.
"""

from __future__ import annotations

import argparse
import itertools
import math
import platform
import re
import resource
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import httpx
import uvicorn
from playwright.sync_api import sync_playwright
from sqlalchemy import text
from sqlalchemy.orm import Session

from strop.cli.checking import PipelineFlow
from strop.console import mount_console
from strop.doors.app import create_app
from strop.doors.openai.proxy import chat_completions
from strop.schema.function import TaskStatus
from strop.schema.job import Event, Job, JobStatus, LogLine
from strop.schema.sample import Sample
from strop.schema.sampling import FinishReason
from strop.schema.trajectory import Group, Trajectory, Turn
from strop.service.first_key import ensure_first_key
from strop.service.settings import Settings
from strop.store.database import Database
from strop.store.events import record_event
from strop.store.jobs import create_job, move_job
from strop.store.logs import record_lines
from strop.store.metrics import record_metrics
from strop.store.trajectories import record_trajectories
from strop.workers.listening import listen

JOB = "ft-large"
NUM_STEPS = 2000
NUM_METRICS = 150
BASE_STEPS = 10
SAMPLES_A_STEP = 25
ROLLOUTS = 4
NUM_LINES = 200_000
ASKS = 40
LIMIT_MS = 300.0


def fill(database: Database) -> None:
    """Record ten steps as a trainer does, then let the database repeat them under other names."""
    config = {"training": {"type": "reinforcement", "hyper_parameters": {"algorithm": "grpo"}}}
    now = datetime.now(UTC)
    job = Job(
        job_id=JOB,
        name="large",
        status=JobStatus.PENDING,
        model="smollm2-135m",
        config=config,
        created_at=now,
    )
    with database.write() as session:
        create_job(session, job)
        move_job(session, JOB, JobStatus.RUNNING)
        planned = Event(
            job_id=JOB, kind="planned", message="", data={"total_steps": 2 * NUM_STEPS}, created_at=now
        )
        record_event(session, planned)
        for step in range(1, NUM_STEPS + 1):
            record_metrics(session, JOB, step, metrics_of(step))
        for step in range(1, BASE_STEPS + 1):
            record_trajectories(session, JOB, step, groups_of(step), split="train")
        _repeat(session)
        lines = (
            LogLine(
                job_id=JOB,
                component=("trainer", "engine", "function:agent")[number % 3],
                stream="stdout",
                text=f"step {number // 100} did {number} things, as was asked",
                created_at=now,
            )
            for number in range(NUM_LINES)
        )
        for _ in range(NUM_LINES // 10_000):
            record_lines(session, list(itertools.islice(lines, 10_000)))


def metrics_of(step: int) -> dict[str, float]:
    named = {
        "critic/rewards/mean": math.tanh(step / 800),
        "critic/rewards/min": 0.0,
        "critic/rewards/max": 1.0,
        "trace/success_rate/agent/avg": 0.99,
        "actor/loss": 1 / step,
        "timing/s/step": 2.0,
        "perf/total_num_tokens": 1e5,
    }
    rest = NUM_METRICS - len(named)
    return named | {
        f"trace/rollout_metrics/m{index:03}/avg": math.sin(step / 50 + index) for index in range(rest)
    }


def groups_of(step: int) -> tuple[Group, ...]:
    made: list[Group] = []
    for row in range(SAMPLES_A_STEP):
        name = f"train-{(step - 1) * SAMPLES_A_STEP + row:05}"
        sample = Sample(sample_id=name, row=row + 1, messages=[{"role": "user", "content": "?"}])
        rollouts = tuple(_rollout(step, name, index) for index in range(ROLLOUTS))
        made.append(Group(group_id=f"{step}-{name}", sample=sample, trajectories=rollouts))
    return tuple(made)


def _rollout(step: int, name: str, index: int) -> Trajectory:
    question = {
        "role": "user",
        "content": f"Work out {step} times {index} and say how. " + "Take care. " * 30,
    }
    first = {"role": "assistant", "content": "I call the calculator. " * 12}
    back = {"role": "user", "content": "result: 42 " * 8}
    last = {"role": "assistant", "content": "So the answer is 42. " * 10}
    turns = tuple(
        Turn(
            index=place,
            prompt_ids=tuple(range(200)),
            completion_ids=tuple(range(60)),
            behaviour_logprobs=tuple(-0.01 * token for token in range(60)),
            policy_versions=(step,) * 60,
            temperature=1.0,
            finish_reason=FinishReason.STOP,
            messages=(question, first, back)[: 1 + 2 * place],
            response=(first, last)[place],
            latency_s=0.5,
        )
        for place in range(2)
    )
    return Trajectory(
        rollout_id=f"{step}-{name}-r{index}",
        attempt_id="a1",
        group_id=f"{step}-{name}",
        sample_id=name,
        attempts=1,
        status=TaskStatus.SUCCESS if (step + index) % 50 else TaskStatus.FAILED,
        turns=turns,
        messages=(question, first, back, last),
        reward=((step * 7 + index * 13) % 101) / 100,
        reward_parts={"correct": 1.0, "brief": 0.5},
        rollout_s=1.0,
        reward_s=0.1,
    )


def _repeat(session: Session) -> None:
    connection = session.connection()
    columns = [row[1] for row in connection.execute(text("PRAGMA table_info(trajectories)"))]
    turn_columns = [row[1] for row in connection.execute(text("PRAGMA table_info(turns)"))]
    num_base = BASE_STEPS * SAMPLES_A_STEP * ROLLOUTS
    changed = {
        "id": f"id + {num_base} * :k",
        "step": f"step + {BASE_STEPS} * :k",
        "rollout_id": "rollout_id || '-' || :k",
        "group_id": "group_id || '-' || :k",
        "sample_id": "sample_id || '-' || (:k % 20)",
    }
    wanted = ", ".join(changed.get(name, name) for name in columns)
    wanted_turns = ", ".join(
        f"trajectory_id + {num_base} * :k" if name == "trajectory_id" else name for name in turn_columns
    )
    for k in range(1, NUM_STEPS // BASE_STEPS):
        names = ", ".join(columns)
        base = f"SELECT {wanted} FROM trajectories WHERE id <= {num_base}"
        connection.execute(text(f"INSERT INTO trajectories ({names}) {base}"), {"k": k})
        names = ", ".join(turn_columns)
        base = f"SELECT {wanted_turns} FROM turns WHERE trajectory_id <= {num_base}"
        connection.execute(text(f"INSERT INTO turns ({names}) {base}"), {"k": k})


@contextmanager
def console(home: Path) -> Iterator[tuple[httpx.Client, Database]]:
    """A served console and a browser that has signed in."""
    app = create_app(Settings(home=home, supervise=False), PipelineFlow())
    mount_console(app, app.state.services, ask=chat_completions)
    database: Database = app.state.services.database
    key = ensure_first_key(database, home).path.read_text().strip()
    listener = listen(0)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, ws="none"))
    thread = threading.Thread(target=lambda: server.run(sockets=[listener]), daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        with httpx.Client(base_url=url, timeout=600, headers={"origin": url}) as client:
            while not server.started:
                time.sleep(0.01)
            assert client.post("/console/sign-in", data={"key": key}).status_code == 303
            yield client, database
    finally:
        server.should_exit = True
        thread.join(20)
        listener.close()


def pages(client: httpx.Client) -> dict[str, list[str]]:
    """Addresses of each kind, `ASKS` of them."""
    url = f"/console/jobs/{JOB}"
    steps = [1 + (17 * number * NUM_STEPS // 100) % NUM_STEPS for number in range(ASKS)]
    names = re.findall(r'data-names="([^"]+)"', client.get(f"{url}/metrics").text)
    batches = [",".join(names[at : at + 16]) for at in range(0, len(names), 16)]
    keys = [number * 4999 + 1 for number in range(ASKS)]
    words = (
        "",
        "level=error",
        "q=nowhere",
        "component=trainer&q=did 77",
        "before=100000",
        "component=engine",
    )
    return {
        "jobs": ["/console/jobs"] * ASKS,
        "details": [url] * ASKS,
        "by step": [f"{url}/trajectories?step={step}" for step in steps],
        "by sample": [f"{url}/samples?after=train-{number:05}" for number in range(0, 6 * ASKS, 6)],
        "one sample": [f"{url}/samples?sample=train-{number:05}-{number % 20}" for number in range(ASKS)],
        "find: newest": [f"{url}/rollouts?before={key + 60}" for key in keys],
        "find: failed": [f"{url}/rollouts?status=failed&before={key + 60}" for key in keys],
        "find: rare reward": [
            f"{url}/rollouts?low=0.{number:02}&high=0.{number:02}" for number in range(ASKS)
        ],
        "find: no such reward": [f"{url}/rollouts?low={number + 2}" for number in range(ASKS)],
        "find: step, sample": [f"{url}/rollouts?step={step}&status=success" for step in steps],
        "find: words": [f"{url}/rollouts?text=nowhere{number}" for number in range(ASKS)],
        "one trajectory": [f"{url}/trajectories/{key}" for key in keys],
        "metrics": [f"{url}/metrics"] * ASKS,
        "16 curves": [f"/console/curves?job={JOB}&names={batches[n % len(batches)]}" for n in range(ASKS)],
        "logs": [f"{url}/logs?{words[number % len(words)]}" for number in range(ASKS)],
        "output": [f"{url}/output"] * ASKS,
    }


def measure(client: httpx.Client) -> bool:
    """Print a row a page. Returns whether all keep the limit."""
    print(f"{'page':<22}{'median ms':>10}{'p95 ms':>9}{'kB':>8}")
    fine = True
    for name, urls in pages(client).items():
        client.get(urls[0])
        took: list[float] = []
        for url in urls:
            began = time.perf_counter()
            reply = client.get(url)
            took.append(1000 * (time.perf_counter() - began))
            assert reply.status_code == 200, (url, reply.status_code)
        p95 = statistics.quantiles(took, n=20)[-1]
        fine &= p95 < LIMIT_MS
        print(
            f"{name:<22}{statistics.median(took):>10.0f}{p95:>9.0f}{len(reply.content) / 1000:>8.0f}",
            flush=True,
        )
    return fine


def draw(client: httpx.Client) -> None:
    """Print how long a browser takes from asking for the Metrics tab to the last chart in sight."""
    took: list[float] = []
    with sync_playwright() as playwright:
        flags = ["--headless", "--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        cookie = {"name": "strop_session", "value": client.cookies["strop_session"]}
        page.context.add_cookies([cookie | {"url": str(client.base_url)}])
        for _ in range(5):
            page.goto(f"{client.base_url}/console/jobs/{JOB}/metrics")
            page.wait_for_selector(".chart .latest:not(:empty)")
            page.wait_for_timeout(1500)
            took.append(page.evaluate("performance.getEntriesByName('drawn').at(-1).startTime"))
        num = page.locator(".chart canvas").count()
        browser.close()
    print(
        f"{num} charts of {NUM_STEPS} steps drawn {statistics.median(took):.0f} ms after asking for the page"
    )


def main(folder: Path) -> None:
    with console(folder) as (client, database):
        began = time.perf_counter()
        with database.read() as session:
            filled = session.scalar(text("SELECT 1 FROM jobs WHERE job_id = :job"), {"job": JOB})
        if not filled:
            fill(database)
            print(f"filled in {time.perf_counter() - began:.0f} s", flush=True)
        size = (folder / "strop.db").stat().st_size / 1e9
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{platform.processor() or platform.machine()}, store of {size:.2f} GB")
        fine = measure(client)
        draw(client)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"memory of the server at most {after:.0f} MiB ({before:.0f} MiB before the first page)")
    print(f"every page below {LIMIT_MS:.0f} ms at p95: {'yes' if fine else 'NO'}")
    sys.exit(not fine)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m bench.console_pages",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "folder", type=Path, nargs="?", help="of the store; kept, and used again where filled"
    )
    asked = parser.parse_args()
    if asked.folder is not None:
        main(asked.folder)
    else:
        with tempfile.TemporaryDirectory(prefix="strop-large-") as made:
            main(Path(made))
