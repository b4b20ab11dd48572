"""LoRA models of one base on a real server -> the memory of sharing, and whether answers are the same.

`python -m soak.sharing 3`: so many models, with random adapters of rank 16 on the bundled model. Every model
is asked greedily on the shared base, among the others, and alone with its merged weights.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import torch

from fakes.running import Running, processes_with
from fakes.server import eventually
from strop.learners import models
from strop.learners.local.lora import Adapter
from strop.store.database import open_database
from strop.store.models import register_model

QUESTIONS = ("What is 12 times 7?", "Name three animals.", "Say hello.", "Why is the sky blue?")
TOKENS = 48
START_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """Units: MiB of the replicas' memory; seconds for all questions to all models."""

    models: int
    shared_mib: float
    alone_mib: list[float]
    shared_s: float
    alone_s: float
    same: int
    asked: int
    add_s: float


def save_models(count: int, root: Path) -> list[Path]:
    """`count` models as LoRA trainings would have published them."""
    folders: list[Path] = []
    for seed in range(count):
        model, tokenizer = models.load("smollm2-135m")
        exact = {name: weight.detach().clone() for name, weight in model.named_parameters()}
        adapter = Adapter(model, exact, rank=16, alpha=32, seed=seed)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for site in adapter.sites.values():
                site.b_OR.copy_(torch.empty_like(site.b_OR).normal_(0, 2e-3, generator=generator))
        adapter.merge()
        folder = root / f"lora{seed}"
        adapter.export(folder / "adapter")
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        folders.append(folder)
    return folders


class House:
    """`strop up` on a home of its own."""

    def __init__(self, root: Path, folders: Sequence[Path]) -> None:
        self.mark = f"SHARING={root}"
        home = root / "home"
        home.mkdir()
        opened = open_database(f"sqlite:///{home}/strop.db")
        with opened.write() as session:
            for folder in folders:
                register_model(session, folder.name, str(folder))
        opened.close()
        self.running = Running("up", "--port", 0, home=home, SHARING=str(root))
        line = self.running.says("Strop is up: open ", 120)
        found = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert found is not None, line
        self.url = found[0]
        key = (home / "api_key").read_text().strip()
        self.http = httpx.Client(
            base_url=self.url, headers={"authorization": f"Bearer {key}"}, timeout=START_S, trust_env=False
        )

    def deploy(self, model: str, *, suffix: str) -> str:
        made = self.http.post("/api/v1/deployments", json={"model_name": model, "suffix": suffix})
        assert made.status_code == 200, made.text
        name = made.json()["output"]["deployed_model"]
        where = f"/api/v1/deployments/{name}"
        eventually(lambda: self.http.get(where).json()["output"]["status"] == "RUNNING", within_s=START_S)
        return name

    def ask(self, asked: tuple[str, str]) -> str:
        name, question = asked
        body: dict[str, Any] = {
            "model": name, "messages": [{"role": "user", "content": question}],
            "temperature": 0, "max_tokens": TOKENS,
        }  # fmt: skip
        reply = self.http.post("/v1/chat/completions", json=body)
        assert reply.status_code == 200, reply.text
        return reply.json()["choices"][0]["message"]["content"]

    def replicas_mib(self) -> list[float]:
        """Memory of each replica with its reaper; a page of several processes counts in parts."""
        found = [pid for pid, command in processes_with(self.mark).items() if "strop.cli serve" in command]
        sizes: Counter[int] = Counter()
        for pid in found:
            parent = _read(pid, "status", "PPid")
            sizes[parent if parent in found else pid] += _read(pid, "smaps_rollup", "Pss")
        return sorted(kib / 1024 for kib in sizes.values())

    def close(self) -> None:
        self.http.close()
        self.running.process.terminate()
        self.running.end(60)


def _read(pid: int, file: str, name: str) -> int:
    for line in Path(f"/proc/{pid}/{file}").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    return 0


@contextmanager
def _house(folders: Sequence[Path]) -> Any:
    root = Path(tempfile.mkdtemp(prefix="strop-sharing-"))
    house = House(root, folders)
    try:
        yield house
    finally:
        house.close()
        shutil.rmtree(root, ignore_errors=True)


def share(count: int) -> Shared:
    """Deploy all on one base and ask them at once; then each with its merged weights."""
    root = Path(tempfile.mkdtemp(prefix="strop-loras-"))
    try:
        folders = save_models(count, root)
        with _house(folders) as house, ThreadPoolExecutor(len(QUESTIONS) * count) as pool:
            names = [house.deploy(folder.name, suffix="s") for folder in folders[:-1]]
            began = time.monotonic()
            names.append(house.deploy(folders[-1].name, suffix="s"))
            add_s = time.monotonic() - began
            questions = [(name, question) for name in names for question in QUESTIONS]
            began = time.monotonic()
            together = list(pool.map(house.ask, questions))
            shared_s = time.monotonic() - began
            (shared_mib,) = house.replicas_mib()
        for folder in folders:
            shutil.rmtree(folder / "adapter")
        with _house(folders) as house, ThreadPoolExecutor(len(QUESTIONS) * count) as pool:
            names = [house.deploy(folder.name, suffix="s") for folder in folders]
            began = time.monotonic()
            alone = list(pool.map(house.ask, questions))
            alone_s = time.monotonic() - began
            alone_mib = house.replicas_mib()
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return Shared(
        models=count, shared_mib=shared_mib, alone_mib=alone_mib, shared_s=shared_s, alone_s=alone_s,
        same=sum(a == b for a, b in zip(together, alone, strict=True)), asked=len(questions), add_s=add_s,
    )  # fmt: skip


def told(found: Shared) -> str:
    return (
        f"{found.models} LoRA models of SmolLM2-135M (rank 16): one replica of {found.shared_mib:.0f} MiB "
        f"holds all, against {len(found.alone_mib)} of {sum(found.alone_mib):.0f} MiB with merged weights; "
        f"{found.same} of {found.asked} greedy answers of up to {TOKENS} tokens are the same, asked at once; "
        f"{found.shared_s:.1f} s against {found.alone_s:.1f}; the last model was added in {found.add_s:.2f} s"
    )


if __name__ == "__main__":
    print(told(share(int(sys.argv[1]))))
