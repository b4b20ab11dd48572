"""`python -m bench.curves FOLDER` -> how each online method learns the calculator, one `strop run` each.

A method whose curve lies in the folder is not trained again, so the whole may be done in sittings. `--draw`
turns the folder into the table and the picture of docs/algorithms.md. A method takes minutes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.contender import ROOT
from bench.figures import table
from strop.store.database import open_database
from strop.store.metrics import step_metrics

JOB = ROOT / "examples" / "calculator" / "job.yaml"
PICTURE = ROOT / "docs" / "curves.svg"
METHODS: dict[str, dict[str, object]] = {
    "gspo": {},
    "grpo": {},
    "dr_grpo": {},
    "dapo": {"max_num_gen_batches": 3},
    "ppo": {"critic_learning_rate": 1e-4},
    "rloo": {},
    "reinforce_pp": {},
    "reinforce_pp_baseline": {},
    "cispo": {},
    "sapo": {},
    "pg_opd": {"algorithm": "grpo", "training.type": "pg_opd"},
}
"""What each sets beside the example's own settings and its name as `algorithm`."""
SAMPLED = "critic/score/mean"
WATCHED = (
    SAMPLED,
    "actor/entropy",
    "actor/distillation/loss",
    "critic/vf_explained_var",
    "critic/values/mean",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One run: greedy validation by step, other metrics by name and step, and what it set."""

    method: str
    settings: dict[str, Any]
    validation: list[tuple[int, float]]
    watched: dict[str, list[tuple[int, float]]]
    seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.curves", description=__doc__)
    parser.add_argument("folder", type=Path, help="where a curve a method is kept, NAME.json")
    parser.add_argument("--methods", default=",".join(METHODS), help="which, with commas between")
    parser.add_argument("--steps", type=int, default=18)
    parser.add_argument("--every", type=int, default=3, help="validate after so many steps")
    parser.add_argument("--teacher", help="what pg_opd learns from, such as a trained calculator")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for every method")
    parser.add_argument("--tag", default="", help="added to NAME, for a method tried in several ways")
    parser.add_argument("--draw", action="store_true", help="train nothing, print the table and draw")
    given = parser.parse_args()
    if given.draw:
        draw(given.folder)
        return
    given.folder.mkdir(parents=True, exist_ok=True)
    for method in given.methods.split(","):
        out = given.folder / f"{method}{given.tag}"
        file = out.with_name(f"{out.name}.json")
        if file.is_file():
            continue
        settings: dict[str, object] = {"algorithm": method, **METHODS[method]}
        # All are of one length: no validation is ever 2.
        settings |= {"max_steps": given.steps, "eval_steps": given.every, "early_stopping_target": 2}
        settings |= dict(one.split("=", 1) for one in given.set)
        if method == "pg_opd":
            settings["training.teacher_model"] = given.teacher or parser.error("pg_opd needs --teacher")
        curve = train(method, settings, out)
        file.write_text(json.dumps(asdict(curve), indent=1))
        print(file, curve.validation, f"{curve.seconds:.0f} s", flush=True)


def train(method: str, settings: Mapping[str, object], out: Path) -> Curve:
    """Run the example with `settings` and read its metrics; the weights it leaves are removed.

    Raises:
        CalledProcessError: the run failed; what it printed is beside `out`, as `.log`.
    """
    command = [sys.executable, "-m", "strop.cli", "run", str(JOB), "--json", "--out", str(out)]
    for key, value in {**settings, "tuned_model_name": f"curve-{out.name.replace('_', '-')}"}.items():
        command += ["--set", f"{key}={value}"]
    began = time.monotonic()
    with out.with_name(f"{out.name}.log").open("w") as log:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, text=True, check=True)
    told = json.loads(done.stdout)
    database = open_database()
    with database.read() as session:
        watched = step_metrics(session, told["job_id"], WATCHED)
    database.close()
    shutil.rmtree(out)
    return Curve(
        method=method,
        settings=dict(settings),
        validation=[(point["step"], point["mean_at_1"]) for point in told["validation"]],
        watched=watched,
        seconds=time.monotonic() - began,
    )


def draw(folder: Path) -> None:
    """Print the table of the curves in `folder` and write their picture."""
    found = {name: folder / f"{name}.json" for name in METHODS}
    curves = [Curve(**json.loads(file.read_text())) for file in found.values() if file.is_file()]
    print(curve_table(curves))
    PICTURE.write_text(picture(curves))
    print(f"\nwritten to {PICTURE.relative_to(ROOT)}")


def curve_table(curves: Sequence[Curve]) -> str:
    """A row a method: greedy validation by step, and the sampled reward of the first and the last step.

    >>> row = Curve(method="gspo", settings={}, validation=[(0, 0.03), (3, 0.5)], seconds=1.0,
    ...     watched={SAMPLED: [(1, 0.06), (2, 0.2), (3, 0.4)]})
    >>> print(curve_table([row]))
    | method | before | 3 | sampled, first | last |
    |---|--:|--:|--:|--:|
    | `gspo` | 0.03 | 0.50 | 0.06 | 0.40 |
    """
    steps = sorted({step for curve in curves for step, _ in curve.validation})
    rows = []
    for curve in curves:
        by_step = dict(curve.validation)
        sampled = [value for _, value in curve.watched[SAMPLED]]
        cells = [f"{by_step[step]:.2f}" if step in by_step else "" for step in steps]
        rows.append([f"`{curve.method}`", *cells, f"{sampled[0]:.2f}", f"{sampled[-1]:.2f}"])
    head = ["before" if step == 0 else str(step) for step in steps]
    return table(["method", *head, "sampled, first", "last"], rows)


_WIDTH, _HEIGHT, _GAP, _COLUMNS = 150, 80, 36, 4


def picture(curves: Sequence[Curve]) -> str:
    """Small charts of one scale, one a method: steps to the right, reward from 0 to 1 upwards.

    The line is what was sampled in training, the dots are greedy validation.
    """
    last = max(step for curve in curves for step, _ in curve.validation)
    rows = -(-len(curves) // _COLUMNS)
    width, height = _COLUMNS * (_WIDTH + _GAP) + _GAP, rows * (_HEIGHT + _GAP) + _GAP
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for index, curve in enumerate(curves):
        row, column = divmod(index, _COLUMNS)
        lines += _panel(curve, last, _GAP + column * (_WIDTH + _GAP), _GAP + row * (_HEIGHT + _GAP))
    return "\n".join([*lines, "</svg>", ""])


def _panel(curve: Curve, last: int, left: int, top: int) -> list[str]:
    def at(points: Sequence[tuple[int, float]]) -> list[tuple[float, float]]:
        return [(left + _WIDTH * step / last, top + _HEIGHT * (1 - value)) for step, value in points]

    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in at(curve.watched[SAMPLED]))
    right, bottom = left + _WIDTH, top + _HEIGHT
    return [
        f'<text x="{left}" y="{top - 6}" font-weight="bold">{curve.method}</text>',
        f'<path d="M{left},{top} H{right} M{left},{bottom} H{right}" stroke="#ccc"/>',
        f'<text x="{left - 4}" y="{top + 4}" text-anchor="end" fill="#666">1</text>',
        f'<text x="{left - 4}" y="{bottom + 4}" text-anchor="end" fill="#666">0</text>',
        f'<text x="{right}" y="{bottom + 13}" text-anchor="end" fill="#666">step {last}</text>',
        f'<polyline points="{path}" fill="none" stroke="#9cb" stroke-width="2"/>',
        *(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="#075"/>' for x, y in at(curve.validation)),
    ]


if __name__ == "__main__":
    main()
