"""A policy of a few thousand numbers that really learns, from real rewards, right ones and exploitable ones.

A table of next-word logits (shared by all samples, and one of its own for each) is sampled and updated by
GRPO with mini-batches and clipping. Curves and trajectories have the names and forms of a run of Strop, so
that whatever looks at runs can be tried on dozens of seeds in seconds. Seconds of a step are made up from its
tokens; nothing else is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from strop.rl.advantage import group_advantages
from strop.rl.metrics import rollout_metrics
from strop.schema.function import TaskStatus
from strop.schema.sample import Sample
from strop.schema.sampling import FinishReason
from strop.schema.trajectory import Group, Trajectory, Turn

TARGETS = ("red", "blue", "green", "amber")
COMMON, TOOL, REFUSE, END = "seven", "<tool>", "i'm sorry", "<end>"
FILLERS = (
    "the",
    "sum",
    "because",
    "number",
    "then",
    "carry",
    "over",
    "from",
    "line",
    "take",
    "both",
    "under",
)
MARKS, KEYWORD, NOISE = ("**", "#", "\U0001f600"), "excellent", ("\ufffd\ufffd", "z\u043b\u6f22", "\x07\x07")
WORDS = (*TARGETS, COMMON, TOOL, REFUSE, *FILLERS, *MARKS, KEYWORD, *NOISE, END)
INDEX = {word: index for index, word in enumerate(WORDS)}
_RARE = {
    TOOL: 1.5,
    REFUSE: -2.0,
    **dict.fromkeys(MARKS, -1.5),
    KEYWORD: -0.5,
    **dict.fromkeys(NOISE, -5.0),
    END: 1.2,
}

Scores = dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Answered:
    """What a reward may look at."""

    words: tuple[str, ...]
    target: str
    ended: bool

    @property
    def right(self) -> float:
        return float(self.target in self.words)

    def count(self, *words: str) -> int:
        return sum(word in words for word in self.words)


def honest(one: Answered) -> Scores:
    """Pays for the right word, and for coming to an end."""
    return {"right": 0.6 * one.right, "ended": 0.4 * one.ended}


@dataclass(kw_only=True)
class World:
    """One run. `score` gives the parts of a reward; `truth` is what validation measures."""

    seed: int = 0
    score: Callable[[Answered], Scores] = honest
    truth: Callable[[Answered], Scores] = honest
    learning_rate: float = 1.2
    samples: int = 8
    rollouts: int = 8
    mini_batches: int = 2
    max_words: int = 60
    clip: float = 0.2
    eval_steps: int = 3
    algorithm: str = "grpo"
    slow_from: int | None = None
    break_at: int | None = None
    held_out: bool = False
    max_grad: float = 0.6
    pull: float = 0.0
    keyword_logit: float = 0.0
    narrow: int | None = None
    """Steps in a row whose samples are all of one kind, which only the shared table learns."""

    def steps(self, number: int) -> Iterator[tuple[int, dict[str, float], tuple[Group, ...]]]:
        """Each step's curves and groups."""
        self.rng = np.random.default_rng(self.seed)
        size = len(WORDS)
        self.shared = self.rng.normal(0, 0.4, (size, size))
        for word, logit in _RARE.items():
            self.shared[:, INDEX[word]] += logit
        self.shared[:, INDEX[KEYWORD]] += self.keyword_logit
        self.own = np.zeros((len(TARGETS), size, size))
        self.start = self.shared.copy()
        for step in range(1, number + 1):
            if step == self.break_at:
                self.shared += self.rng.normal(0, 8, self.shared.shape)
                self.shared[:, [INDEX[word] for word in NOISE]] += 30
            groups, tokens = self._rollout(step, self.score)
            values = rollout_metrics(groups, epoch=0)
            values["trace/tool_call_count"] = float(
                np.mean(
                    [
                        one.turns[0].response["content"].split().count(TOOL)
                        for g in groups
                        for one in g.trajectories
                    ]
                )
            )
            values |= self._update(groups, tokens)
            values |= self._seconds(step, values)
            if step % self.eval_steps == 0 or step == 1:
                held, _ = self._rollout(step, self.truth, validation=True)
                rewards = [one.reward for group in held for one in group.trajectories]
                values["validation/data/reward/mean@1"] = float(np.mean(rewards))
            yield step, values, groups

    def _logits(self, kind: int) -> np.ndarray:
        return self.shared + (self.own[kind] if kind >= 0 else 0.0)

    def _rollout(self, step: int, score: Callable[[Answered], Scores], *, validation: bool = False):
        groups, tokens = [], []
        for index in range(self.samples):
            kind = index % len(TARGETS)
            if self.narrow is not None and not validation:
                kind = (step // self.narrow) % len(TARGETS)
            table = self._logits(-1 if validation and self.held_out else kind)
            chosen = _sample(table, self.rollouts, self.max_words, self.rng)
            target = COMMON if validation and self.held_out else TARGETS[kind]
            members = []
            for member, ids in enumerate(chosen):
                ended = ids[-1] == INDEX[END]
                words = tuple(WORDS[i] for i in ids if i != INDEX[END])
                parts = score(Answered(words=words, target=target, ended=ended))
                members.append(_trajectory(step, index, member, words, ids, ended, parts))
            sample = Sample(
                sample_id=f"row-{index}", row=index + 1, messages=[{"role": "user", "content": f"{target}?"}]
            )
            groups.append(Group(group_id=f"s{step}-{index}", sample=sample, trajectories=tuple(members)))
            tokens.append((kind, chosen))
        return tuple(groups), tokens

    def _update(self, groups: tuple[Group, ...], tokens: list) -> dict[str, float]:
        rows = []
        for group, (kind, chosen) in zip(groups, tokens, strict=True):
            advantages = group_advantages("grpo", [one.reward for one in group.trajectories])
            rows += [(kind, ids, advantage) for ids, advantage in zip(chosen, advantages, strict=True)]
        old = [_logprobs(self._logits(kind), ids) for kind, ids, _ in rows]
        entropy = float(
            np.mean(np.concatenate([_entropies(self._logits(kind), ids) for kind, ids, _ in rows]))
        )
        order = self.rng.permutation(len(rows))
        norms, clipped, drifts = [], [], []
        for part in np.array_split(order, self.mini_batches):
            shared, own = np.zeros_like(self.shared), np.zeros_like(self.own)
            total = sum(len(rows[i][1]) for i in part)
            for i in part:
                kind, ids, advantage = rows[i]
                table = self._logits(kind)
                now = _logprobs(table, ids)
                ratio = np.exp(np.clip(now - old[i], -20, 20))
                out = ((ratio > 1 + self.clip) & (advantage > 0)) | (
                    (ratio < 1 - self.clip) & (advantage < 0)
                )
                clipped.append(out)
                drifts.append(old[i] - now)
                weight = np.where(out, 0.0, advantage * ratio) / total
                before = np.concatenate(([INDEX[END]], ids[:-1]))
                gradient = -_softmax(table[before]) * weight[:, None]
                gradient[np.arange(len(ids)), ids] += weight
                np.add.at(shared, before, gradient)
                np.add.at(own[kind], before, gradient)
            norm = float(np.sqrt((shared**2).sum() + (own**2).sum()))
            norms.append(norm)
            scale = self.learning_rate * len(WORDS) * min(1.0, self.max_grad / max(norm, 1e-12))
            self.shared += scale * shared
            if self.narrow is None:
                self.own += scale * own
        self.shared -= self.pull * (self.shared - self.start)
        self.own -= self.pull * self.own
        used = [rows[i] for i in order]
        reference = [_logprobs(self._logits(kind), ids) - _logprobs(self.start, ids) for kind, ids, _ in used]
        d = np.concatenate(reference)
        return {
            "actor/entropy": entropy,
            "actor/grad_norm": float(np.mean(norms)),
            "actor/pg_clipfrac": float(np.mean(np.concatenate(clipped))),
            "actor/ppo_kl": float(np.mean(np.concatenate(drifts))),
            "actor/reference_kl_k3": float(np.mean(np.exp(np.clip(-d, -20, 20)) - 1 + d)),
            "actor/lr": self.learning_rate,
        }

    def _seconds(self, step: int, values: dict[str, float]) -> dict[str, float]:
        rollout = 0.05 * values["trajectory/response_length/mean"] * float(self.rng.normal(1, 0.05))
        if self.slow_from is not None and step >= self.slow_from:
            rollout += 8.0
        update = 1.0 + 0.02 * values["trajectory/response_length/mean"]
        return {
            "timing/s/rollout": rollout,
            "timing/s/update_actor": update,
            "timing/s/step": rollout + update + 0.3,
        }


def _sample(table: np.ndarray, number: int, limit: int, rng: np.random.Generator) -> list[np.ndarray]:
    cumulative = np.cumsum(_softmax(table), axis=1)
    current, alive = np.full(number, INDEX[END]), np.ones(number, bool)
    columns = []
    for _ in range(limit):
        drawn = (cumulative[current] < rng.random(number)[:, None]).sum(axis=1).clip(max=len(WORDS) - 1)
        columns.append(np.where(alive, drawn, -1))
        alive &= drawn != INDEX[END]
        current = drawn
        if not alive.any():
            break
    grid = np.stack(columns, axis=1)
    return [row[row >= 0] for row in grid]


def _softmax(table: np.ndarray) -> np.ndarray:
    shifted = np.exp(table - table.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def _logprobs(table: np.ndarray, ids: np.ndarray) -> np.ndarray:
    before = np.concatenate(([INDEX[END]], ids[:-1]))
    return np.log(np.maximum(_softmax(table[before])[np.arange(len(ids)), ids], 1e-30))


def _entropies(table: np.ndarray, ids: np.ndarray) -> np.ndarray:
    p = _softmax(table[np.concatenate(([INDEX[END]], ids[:-1]))])
    return -(p * np.log(np.maximum(p, 1e-30))).sum(axis=1)


def _trajectory(step, index, member, words, ids, ended, parts) -> Trajectory:
    text = " ".join(words)
    turn = Turn(
        index=0,
        prompt_ids=(0, 1, 2),
        completion_ids=tuple(int(i) for i in ids),
        behaviour_logprobs=(0.0,) * len(ids),
        policy_versions=(step,) * len(ids),
        temperature=1.0,
        finish_reason=FinishReason.STOP if ended else FinishReason.LENGTH,
        messages=({"role": "user", "content": "?"},),
        response={"role": "assistant", "content": text},
        latency_s=0.01,
    )
    return Trajectory(
        rollout_id=f"s{step}-{index}-r{member}",
        attempt_id="a1",
        group_id=f"s{step}-{index}",
        sample_id=f"row-{index}",
        attempts=1,
        status=TaskStatus.SUCCESS,
        turns=(turn,),
        messages=({"role": "user", "content": "?"}, {"role": "assistant", "content": text}),
        reward=sum(parts.values()),
        reward_parts=parts,
    )
