"""Seed -> data/train.jsonl and data/validation.jsonl: one-step problems for an agent with a calculator.

Training mixes bare arithmetic, which the small model can nearly do from the start, with word problems, which
it cannot: the easy half carries the hard half along. Validation is word problems only, and shares neither
numbers nor wordings with training.

    python examples/calculator/make_data.py
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
SEED = 20260101
NUM_TRAINING, NUM_VALIDATION = 512, 64

ADD, SUBTRACT, MULTIPLY = "+", "-", "*"
COMPUTE: dict[str, Callable[[int, int], int]] = {
    ADD: lambda a, b: a + b,
    SUBTRACT: lambda a, b: a - b,
    MULTIPLY: lambda a, b: a * b,
}

ARITHMETIC = [
    "What is {a} {op} {b}?",
    "Compute {a} {op} {b}.",
    "Calculate {a} {op} {b}.",
    "{a} {op} {b} = ?",
    "Please work out {a} {op} {b}.",
    "How much is {a} {op} {b}?",
]

TRAINING_WORDS = {
    ADD: [
        "{name} has {a} {thing} and buys {b} more. How many {thing} does {name} have now?",
        "There are {a} {thing} in one box and {b} in another. How many {thing} are there in total?",
        "{name} found {a} {thing} on Monday and {b} on Tuesday. How many {thing} is that altogether?",
        "A shop sold {a} {thing} in the morning and {b} in the evening. How many {thing} is that in total?",
        "{name} had {a} {thing}. A friend brought {b} more. How many {thing} are there altogether?",
        "{a} {thing} are red and {b} {thing} are blue. How many {thing} are there in total?",
    ],
    SUBTRACT: [
        "{name} had {a} {thing} and gave away {b}. How many {thing} are left?",
        "A box held {a} {thing}. {b} of them were taken out. How many {thing} are left in the box?",
        "{name} baked {a} {thing} and sold {b} of them. How many {thing} are left?",
        "There were {a} {thing} on the table, then {b} fell off. How many {thing} are left on the table?",
        "{name} had {a} {thing} and used {b} of them. How many {thing} does {name} have left?",
        "A store had {a} {thing} and threw away {b}. How many {thing} are left?",
    ],
}
VALIDATION_WORDS = {
    ADD: [
        "A farmer has {a} {thing} and gets {b} more. How many {thing} are there in total?",
        "One class made {a} {thing} and another class made {b}. How many {thing} is that altogether?",
        "{name} saw {a} {thing} in the garden and {b} in the house. How many {thing} is that in total?",
    ],
    SUBTRACT: [
        "A library had {a} {thing} and lost {b} of them. How many {thing} are left?",
        "{name} carried {a} {thing} and dropped {b}. How many {thing} are left?",
        "A school had {a} {thing} and lent out {b} of them. How many {thing} are left?",
    ],
}
TRAINING_NAMES = ["Ann", "Ben", "Carla", "David", "Emma", "Felix", "Grace", "Henry"]
VALIDATION_NAMES = ["Mei", "Omar", "Priya", "Sofia", "Viktor"]
TRAINING_THINGS = ["apples", "books", "pencils", "marbles", "stickers", "cookies", "shells", "coins", "cards"]
VALIDATION_THINGS = ["lamps", "pears", "tickets", "ribbons", "bottles", "chairs"]


def numbers(rng: random.Random, op: str, *, held_out: bool) -> tuple[int, int]:
    """Draw operands; validation takes even sums of digits, training odd ones: no pair stands in both."""
    while True:
        a, b = (
            (rng.randint(3, 30), rng.randint(3, 30))
            if op == MULTIPLY
            else (rng.randint(11, 500), rng.randint(11, 500))
        )
        if op == SUBTRACT and a <= b:
            a, b = b, a
        digits = sum(int(digit) for digit in f"{a}{b}")
        if a != b and (digits % 2 == 0) is held_out:
            return a, b


def row(question: str, answer: int, kind: str) -> dict[str, object]:
    return {
        "messages": [{"role": "user", "content": question}],
        "rollout_extra": {"ground_truth": str(answer), "kind": kind},
    }


def arithmetic_row(rng: random.Random) -> dict[str, object]:
    op = rng.choice([ADD, SUBTRACT, MULTIPLY])
    a, b = numbers(rng, op, held_out=False)
    return row(rng.choice(ARITHMETIC).format(a=a, b=b, op=op), COMPUTE[op](a, b), "arithmetic")


def word_row(rng: random.Random, *, held_out: bool) -> dict[str, object]:
    words, names, things = (
        (VALIDATION_WORDS, VALIDATION_NAMES, VALIDATION_THINGS)
        if held_out
        else (TRAINING_WORDS, TRAINING_NAMES, TRAINING_THINGS)
    )
    op = rng.choice([ADD, SUBTRACT])
    a, b = numbers(rng, op, held_out=held_out)
    question = rng.choice(words[op]).format(a=a, b=b, name=rng.choice(names), thing=rng.choice(things))
    return row(question, COMPUTE[op](a, b), "word")


def unique(make: Callable[[], dict[str, object]], count: int) -> Iterator[dict[str, object]]:
    seen: set[str] = set()
    while len(seen) < count:
        made = make()
        key = json.dumps(made["messages"])
        if key not in seen:
            seen.add(key)
            yield made


def write(path: Path, rows: list[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(made) + "\n" for made in rows), encoding="utf-8")
    print(f"{path.relative_to(HERE)}: {len(rows)} rows")


def main() -> None:
    rng = random.Random(SEED)
    training = [
        *unique(lambda: arithmetic_row(rng), NUM_TRAINING // 2),
        *unique(lambda: word_row(rng, held_out=False), NUM_TRAINING - NUM_TRAINING // 2),
    ]
    rng.shuffle(training)
    write(HERE / "data" / "train.jsonl", training)
    write(
        HERE / "data" / "validation.jsonl", list(unique(lambda: word_row(rng, held_out=True), NUM_VALIDATION))
    )


if __name__ == "__main__":
    main()
