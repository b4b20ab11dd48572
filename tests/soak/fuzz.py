"""schemathesis against a server -> what it sent, and the first thing that its OpenAPI document does not say.

`python -m soak.fuzz 600`: seconds. Every route, with values that fit the document and such that do not, and
ids of things that are there. No 5xx, no status and no content type that the document does not name.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from fakes.server import FUNCTIONS, ROWS, eventually, json_lines, zipped
from soak.crowd import served

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
NOT_ASKED = r"^/uploads/"
"""A zip, which schemathesis cannot make; `tests/contract/server/test_bad_input.py` has those."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fuzzed:
    """`calls` that were made; `report` is schemathesis's own. `clean`: it found nothing."""

    calls: int
    clean: bool
    report: str


def fuzz(
    url: str,
    key: str,
    ids: Mapping[str, str],
    *,
    seed: int,
    phases: str,
    examples: int,
    limit_s: float | None,
) -> Fuzzed:
    """Run it against the server at `url`, with these ids for half of the parameters of their names."""
    with tempfile.TemporaryDirectory(prefix="strop-fuzz-") as folder:
        config = Path(folder) / "schemathesis.toml"
        config.write_text(_config(ids))
        command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(config), "run"]
        command += [f"{url}/openapi.json", "--header", f"Authorization: Bearer {key}", "--checks", CHECKS]
        command += ["--seed", str(seed), "--phases", phases, "--max-examples", str(examples)]
        command += ["--exclude-path-regex", NOT_ASKED, "--continue-on-failure", "--request-timeout", "30"]
        command += ["--suppress-health-check", "all", "--no-shrink", "--warnings", "off"]
        command += ["--max-time", str(int(limit_s))] if limit_s is not None else []
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    found = re.search(r"([\d,]+) generated", done.stdout)
    calls = int(found[1].replace(",", "")) if found else 0
    return Fuzzed(calls=calls, clean=done.returncode == 0, report=done.stdout + done.stderr)


def _config(ids: Mapping[str, str]) -> str:
    lines: list[str] = []
    for name, value in ids.items():
        lines += [f"[dictionaries.{name}]", f"values = [{json.dumps(value)}]", ""]
    lines.append("[parameters]")
    lines += [f'"path.{name}" = {{dictionary = "{name}", probability = 0.5}}' for name in ids]
    return "\n".join(lines) + "\n"


def furnish(url: str, key: str) -> dict[str, str]:
    """One of everything, by the name that the paths know it by; the job has ended."""
    with httpx.Client(base_url=f"{url}/api/v1", headers={"authorization": f"Bearer {key}"}) as client:

        def post(path: str, body: Any) -> dict[str, Any]:
            return client.post(path, json=body, timeout=60).raise_for_status().json()["output"]

        asked = post("/fine-tunes/generate/faas/upload/url", {"unique_key": "reward-1"})
        httpx.put(asked["url"], content=zipped({"functions.py": FUNCTIONS})).raise_for_status()
        function = {"name": "functions.py", "unique_key": "reward-1", "func": "Score"}
        entity_id = post("/fine-tunes/create/reward", function)["reward_id"]
        files = {"files": ("train.jsonl", json_lines(ROWS))}
        uploaded = client.post("/files", files=files).raise_for_status().json()["data"]["uploaded_files"]
        job = {
            "model": "smollm2-135m",
            "training_datasets": [{"file_id": uploaded[0]["file_id"]}],
            "rewards": [{"reward_id": entity_id}],
            "hyper_parameters": {"batch_size": 4, "n_rollouts": 2},
            "job_name": "quick",
        }
        job_id = post("/fine-tunes", job)["job_id"]
        eventually(lambda: client.get(f"/fine-tunes/{job_id}").json()["output"]["status"] == "SUCCEEDED")
        deployed = post("/deployments", {"model_name": "smollm2-135m", "suffix": "fuzz"})
        instance = post(f"/fine-tunes/online/faas/jobId-1/{entity_id}", {})
    return {
        "job_id": job_id,
        "file_id": uploaded[0]["file_id"],
        "entity_id": entity_id,
        "deployed_model": deployed["deployed_model"],
        "instance_id": instance["instanceId"],
        "name": "smollm2-135m",
        "checkpoint": "last",
    }


async def main(seconds: float) -> Fuzzed:
    async with served() as (url, key):
        ids = await asyncio.to_thread(furnish, url, key)
        return await asyncio.to_thread(
            lambda: fuzz(url, key, ids, seed=0, phases="coverage,fuzzing", examples=100_000, limit_s=seconds)
        )


if __name__ == "__main__":
    result = asyncio.run(main(float(sys.argv[1])))
    print("\n".join(line[:300] for line in result.report.splitlines()))
    sys.exit(not result.clean)
