"""`python -m bench` -> ratios on the screen and a dated entry at the end of docs/log.md."""

from __future__ import annotations

import argparse
import datetime
import tempfile
from pathlib import Path

import torch
from transformers import AutoTokenizer

import strop
from bench import sampling, shares, step
from bench.contender import ROOT
from bench.figures import load_average, machine
from bench.workload import Work, prompts
from strop.learners import models

LOG = ROOT / "docs" / "log.md"
MODEL = models.BUNDLED
MEASURES = {"sampling": sampling.measure, "step": step.measure, "shares": shares.measure}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("measures", nargs="*", choices=[[], *MEASURES], help="which to run; all unless given")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each program (default 3)")
    parser.add_argument("--no-log", action="store_true", help="print the entry, but leave docs/log.md alone")
    parser.add_argument("--keep-output", type=Path, help="folder for what the measured programs print")
    arguments = parser.parse_args()
    folder = models.resolve(MODEL, on_progress=print)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts = prompts(tokenizer)
    work = Work(
        model=str(folder),
        texts=texts,
        prompt_ids=[tokenizer(text)["input_ids"] for text in texts],
    )
    before = load_average()
    with tempfile.TemporaryDirectory() as temporary:
        output = arguments.keep_output or Path(temporary)
        output.mkdir(parents=True, exist_ok=True)
        chosen = arguments.measures or list(MEASURES)
        sections = [MEASURES[name](work, rounds=arguments.rounds, log_folder=output) for name in chosen]
    entry = "\n\n".join([_heading(), _conditions(before), *sections]) + "\n"
    print("\n" + entry)
    if not arguments.no_log:
        with LOG.open("a") as log:
            log.write("\n" + entry)
        print(f"written to {LOG.relative_to(ROOT)}")


def _heading() -> str:
    return f"## {datetime.date.today().isoformat()}: speed of {MODEL} beside its peers"


def _conditions(load: float) -> str:
    facts = {
        **machine(),
        "torch": f"{torch.__version__}, {torch.get_num_threads()} threads",
        "strop": strop.__version__,
        "load before": f"{load:.1f} processes",
    }
    return "; ".join(f"{name}: {value}" for name, value in facts.items()) + "."


if __name__ == "__main__":
    main()
