"""One GRPO step: Strop and TRL in turn, on the same model, prompts, reward and lengths."""

from __future__ import annotations

import math
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from bench.contender import Answer, Contender
from bench.figures import GIB, alternate, round_ratios, spread, table, verdict
from bench.workload import NEW_TOKENS, NUM_PROMPTS, NUM_ROLLOUTS, PROBE_LIMIT_S, Work

_PRECISIONS: dict[str, dict[str, Any]] = {
    "float32": {"weights": "float32", "autocast": False},
    "bf16=True (autocast)": {"weights": "float32", "autocast": True},
    "bfloat16 weights": {"weights": "bfloat16", "autocast": False},
}
_PROBE_TOKENS = 16
# Its default in GRPOConfig is on, which trades time for memory. The fastest is off, so both are shown.
_CHECKPOINTING = {"": False, ", gradient checkpointing (its default)": True}


def measure(work: Work, *, rounds: int, log_folder: Path) -> str:
    """Find TRL's fastest precision, then let Strop and TRL take turns. Returns a section in Markdown."""
    seconds = _probe_precisions(work, log_folder)
    precision = min(seconds, key=lambda name: seconds[name])
    same = _same(work, NUM_PROMPTS, NEW_TOKENS)
    with ExitStack() as stack:
        contenders = {
            "Strop": stack.enter_context(
                Contender("strop_step", {"label": "Strop", **same}, log_folder=log_folder)
            )
        }
        for suffix, checkpointing in _CHECKPOINTING.items():
            settings = {**same, **_trl(f"TRL {precision}{suffix}", precision, checkpointing=checkpointing)}
            one = stack.enter_context(Contender("trl_step", settings, log_folder=log_folder))
            contenders[one.label] = one
        facts = {label: one.facts for label, one in contenders.items()}
        if len({one["parameters"] for one in facts.values()}) > 1:
            raise RuntimeError(f"trained parameters differ: {facts}")

        def run(label: str) -> Answer:
            answer = contenders[label].run()
            parts = ", ".join(f"{name} {value:.1f}" for name, value in answer["parts"].items())
            print(f"{label}: {answer['seconds']:.1f} s ({parts})", flush=True)
            return answer

        answers = alternate(list(contenders), run, rounds=rounds)
    tried = ", ".join(
        f"{name} {value:.1f}" if math.isfinite(value) else f"{name} over {PROBE_LIMIT_S:.0f}"
        for name, value in seconds.items()
    )
    return _section(answers, facts, tried)


def _same(work: Work, num_prompts: int, new_tokens: int) -> dict[str, Any]:
    return {
        "model": work.model,
        "prompts": work.texts[:num_prompts],
        "rollouts": NUM_ROLLOUTS,
        "new_tokens": new_tokens,
    }


def _trl(label: str, precision: str, *, checkpointing: bool) -> dict[str, Any]:
    return {
        "label": label,
        **_PRECISIONS[precision],
        "micro_batch": 8,  # faster than 16, and takes less memory
        "gradient_checkpointing": checkpointing,
        "cache": None,
    }


def _probe_precisions(work: Work, log_folder: Path) -> dict[str, float]:
    """Seconds of a small step in each precision; infinite where it crawls."""
    seconds: dict[str, float] = {}
    for name in _PRECISIONS:
        settings = {
            **_same(work, 1, _PROBE_TOKENS),
            **_trl(f"TRL {name} probe", name, checkpointing=False),
        }
        with Contender("trl_step", settings, log_folder=log_folder) as one:
            try:
                seconds[name] = one.run(limit_s=PROBE_LIMIT_S)["seconds"]
            except TimeoutError:
                seconds[name] = math.inf
        print(f"probe of TRL {name}: {seconds[name]:.1f} s", flush=True)
    return seconds


def _section(answers: dict[str, list[Answer]], facts: dict[str, Answer], tried: str) -> str:
    seconds = {label: [one["seconds"] for one in found] for label, found in answers.items()}
    peaks = {label: found[-1]["peak_bytes"] / GIB for label, found in answers.items()}
    ratios = {label: round_ratios(found, seconds["Strop"]) for label, found in seconds.items()}
    rows = [
        [
            label,
            spread(seconds[label]),
            *(spread([one["parts"][part] for one in found]) for part in ("sampling", "update")),
            f"{peaks[label]:.2f}",
            "" if label == "Strop" else spread(ratios[label], 2),
        ]
        for label, found in answers.items()
    ]
    fastest, frugal = list(answers)[1:]
    memory = "peak memory as a share of TRL's"
    verdicts = [
        verdict("step against TRL", median(ratios[fastest]), 3.0, unit="x"),
        verdict(memory, peaks["Strop"] / peaks[fastest], 1.0, at_least=False),
        verdict(f"{memory} with checkpointing", peaks["Strop"] / peaks[frugal], 1.0, at_least=False),
    ]
    strop, last = facts["Strop"], answers["Strop"][-1]
    notes = [
        f"* all {strop['parameters'] / 1e6:.1f} M parameters are trained on both sides, by AdamW, in one "
        f"optimizer update; Strop trains in {strop['training_dtype']}; TRL is version "
        f"{facts[fastest]['version']}",
        f"* Strop's update computes {last['update_tokens']} tokens where separate rows hold "
        f"{last['rows_tokens']}: a group's prompt stands once",
        f"* TRL's precisions on 1 prompt x {NUM_ROLLOUTS} answers of {_PROBE_TOKENS} tokens, in seconds: "
        f"{tried}",
    ]
    rounds = len(seconds["Strop"])
    what = f"{NUM_PROMPTS} prompts x {NUM_ROLLOUTS} answers of {NEW_TOKENS} tokens; {rounds} rounds;"
    return "\n\n".join(
        [
            "### One GRPO step",
            f"{what} seconds, and the peak memory of each process in GiB:",
            table(["", "step", "sampling", "update", "peak", "Strop is faster by"], rows),
            "\n".join(verdicts),
            "\n".join(notes),
        ]
    )
