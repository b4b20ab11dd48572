"""Seed -> data/train.jsonl and data/validation.jsonl: small competition tasks in Ark's row form, with tests.

Three kinds of input, and two solved tasks of the same kind before each task: a small model copies how the
input is read and has to find the one expression. Validation has other wordings and other constants.

    python examples/code/make_data.py
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

HERE = Path(__file__).resolve().parent
SEED = 20260101
NUM_TESTS = 4
SYSTEM = "Write a Python program."
WORDS = [
    "apple",
    "bread",
    "candle",
    "desk",
    "engine",
    "forest",
    "garden",
    "hammer",
    "island",
    "jacket",
    "kettle",
    "lemon",
    "mirror",
    "needle",
]

Draw = Callable[[random.Random], list[str]]


@dataclass(frozen=True)
class Input:
    """What a program reads: how a task says it, how a program does it, and two tasks solved."""

    text: str
    read: str
    draw: Draw
    solved: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Task:
    """`expression` is the answer in Python, `{k}` a constant; what is held out is validation's."""

    input: Input
    expression: str
    solve: Callable[[list[str], str], object]
    wordings: tuple[str, ...]
    held_out: tuple[str, ...]
    constants: tuple[object, ...] = ("",)
    held_out_constants: tuple[object, ...] = ("",)

    def program(self, constant: object) -> str:
        return f"{self.input.read}\nprint({self.expression.format(k=constant)})"


def one_integer(rng: random.Random) -> list[str]:
    return [str(rng.choice([n for n in range(-40, 100) if abs(n) > 2]))]


def two_integers(rng: random.Random) -> list[str]:
    return [str(n) for n in rng.sample([n for n in range(-30, 60) if abs(n) > 2], 2)]


def one_line(rng: random.Random) -> list[str]:
    return [" ".join(rng.sample(WORDS, rng.randint(1, 3)))]


INTEGER = Input(
    "Read an integer n.",
    "n = int(input())",
    one_integer,
    (("Print n plus 1.", "n + 1"), ("Print the remainder of n divided by 5.", "n % 5")),
)
PAIR = Input(
    "Read two integers a and b, one on each line.",
    "a = int(input())\nb = int(input())",
    two_integers,
    (("Print a plus b.", "a + b"), ("Print the remainder of a divided by b.", "a % b")),
)
LINE = Input(
    "Read a line of text s.",
    "s = input()",
    one_line,
    (("Print s and an exclamation mark.", 's + "!"'), ("Print the third letter of s.", "s[2]")),
)

ODD, EVEN = tuple(range(3, 60, 2)), tuple(range(4, 60, 8))
TASKS = [
    Task(
        INTEGER,
        "n + {k}",
        lambda read, k: int(read[0]) + int(k),
        ("Print n plus {k}.", "Print the sum of n and {k}.", "Add {k} to n and print the result."),
        ("Increase n by {k} and print it.", "Print {k} more than n."),
        ODD,
        EVEN,
    ),
    Task(
        INTEGER,
        "n - {k}",
        lambda read, k: int(read[0]) - int(k),
        ("Print n minus {k}.", "Subtract {k} from n and print the result."),
        ("Decrease n by {k} and print it.", "Print {k} less than n."),
        ODD,
        EVEN,
    ),
    Task(
        INTEGER,
        "n * {k}",
        lambda read, k: int(read[0]) * int(k),
        ("Print n times {k}.", "Multiply n by {k} and print the result."),
        ("Print the product of n and {k}.", "Print {k} times n."),
        ODD,
        EVEN,
    ),
    Task(
        INTEGER,
        "n * 2",
        lambda read, _: int(read[0]) * 2,
        ("Print n doubled.", "Print the double of n.", "Double n and print the result."),
        ("Print twice n.", "Print twice the number n."),
    ),
    Task(
        INTEGER,
        "n * n",
        lambda read, _: int(read[0]) ** 2,
        ("Print n squared.", "Print the square of n.", "Square n and print the result."),
        ("Print n times n.", "Print n multiplied by itself."),
    ),
    Task(
        PAIR,
        "a + b",
        lambda read, _: int(read[0]) + int(read[1]),
        ("Print their sum.", "Print the sum of a and b.", "Add them and print the result."),
        ("Print their total.", "Add b to a and print the result."),
    ),
    Task(
        PAIR,
        "a - b",
        lambda read, _: int(read[0]) - int(read[1]),
        ("Print a minus b.", "Subtract b from a and print the result."),
        ("Take b away from a and print the result.", "Print the difference of a and b."),
    ),
    Task(
        PAIR,
        "a * b",
        lambda read, _: int(read[0]) * int(read[1]),
        ("Print a times b.", "Print their product.", "Multiply them and print the result."),
        ("Print the product of a and b.", "Print a multiplied by b."),
    ),
    Task(
        PAIR,
        "max(a, b)",
        lambda read, _: max(map(int, read)),
        ("Print the larger one.", "Print the larger of a and b.", "Print their maximum."),
        ("Print the bigger one.", "Print the maximum of a and b."),
    ),
    Task(
        PAIR,
        "min(a, b)",
        lambda read, _: min(map(int, read)),
        ("Print the smaller one.", "Print the smaller of a and b.", "Print their minimum."),
        ("Print the lesser one.", "Print the minimum of a and b."),
    ),
    Task(
        LINE,
        "s[::-1]",
        lambda read, _: "".join(reversed(read[0])),
        ("Print s reversed.", "Print s backwards.", "Reverse s and print it."),
        ("Print s in reverse.", "Print s from its end to its start."),
    ),
    Task(
        LINE,
        "len(s)",
        lambda read, _: len(read[0]),
        ("Print the length of s.", "Print how long s is.", "Print how many characters s has."),
        ("Print its length.", "Print the number of characters in s."),
    ),
    Task(
        LINE,
        's.count("{k}")',
        lambda read, k: read[0].count(k),
        (
            "Print how many times the letter {k} occurs in s.",
            "Count the letter {k} in s and print the count.",
        ),
        ("Print the count of the letter {k} in s.", "Print how often s has the letter {k}."),
        tuple("arl"),
        tuple("en"),
    ),
    Task(
        LINE,
        "s * {k}",
        lambda read, k: read[0] * int(k),
        ("Print s {k} times in a row.", "Print s times {k}.", "Repeat s {k} times and print it."),
        ("Print s repeated {k} times.", "Print {k} copies of s in a row."),
        (3, 5, 7),
        (2, 4),
    ),
    Task(
        LINE,
        "s[0]",
        lambda read, _: read[0][0],
        ("Print the first letter of s.", "Print the letter that s starts with."),
        ("Print the first character of s.", "Print its first letter."),
    ),
    Task(
        LINE,
        "s[-1]",
        lambda read, _: read[0][-1],
        ("Print the last letter of s.", "Print the letter that s ends with."),
        ("Print the last character of s.", "Print its last letter."),
    ),
]


def messages(task: Task, wording: str, constant: object) -> list[dict[str, str]]:
    shown = [{"role": "system", "content": SYSTEM}]
    for text, expression in task.input.solved:
        program = f"{task.input.read}\nprint({expression})"
        shown.append({"role": "user", "content": f"{task.input.text} {text}"})
        shown.append({"role": "assistant", "content": f"```python\n{program}\n```"})
    return [*shown, {"role": "user", "content": f"{task.input.text} {wording.format(k=constant)}"}]


def cases(rng: random.Random, task: Task, constant: object) -> list[dict[str, object]]:
    """Tests that tell programs apart: a program that prints always the same passes one at the most, and the
    first and the second of two numbers are the larger one equally often.
    """
    while True:
        read = [task.input.draw(rng) for _ in range(NUM_TESTS)]
        printed = [str(task.solve(one, str(constant))) for one in read]
        ordered = sum(int(one[0]) > int(one[1]) for one in read) if task.input is PAIR else NUM_TESTS // 2
        copied = any(text == one[0] for text, one in zip(printed, read, strict=True) if len(one) == 1)
        if len(set(printed)) == NUM_TESTS and ordered == NUM_TESTS // 2 and not copied:
            break
    return [
        {"input": {"stdin": "".join(f"{line}\n" for line in one)}, "output": {"stdout": f"{text}\n"}}
        for one, text in zip(read, printed, strict=True)
    ]


def row(rng: random.Random, number: int, task: Task, wording: str, constant: object) -> dict[str, object]:
    tests = cases(rng, task, constant)
    extra = {"contest_id": number, "language": "python", "time_limit": "1", "tests": tests}
    return {"messages": messages(task, wording, constant), "extra": extra}


def training(rng: random.Random, num_each: int = 16) -> Iterator[dict[str, object]]:
    drawn = [
        (task, rng.choice(task.wordings), rng.choice(task.constants))
        for task in TASKS
        for _ in range(num_each)
    ]
    rng.shuffle(drawn)
    for number, one in enumerate(drawn, 1):
        yield row(rng, number, *one)


def validation(rng: random.Random, num_each: int = 4) -> Iterator[dict[str, object]]:
    """No prompt twice: its answer at temperature 0 would be the same."""
    number = 0
    for task in TASKS:
        said = list(product(task.held_out, task.held_out_constants))
        for wording, constant in rng.sample(said, min(num_each, len(said))):
            number += 1
            yield row(rng, number, task, wording, constant)


def write(path: Path, rows: Iterable[dict[str, object]]) -> None:
    lines = [json.dumps(made) + "\n" for made in rows]
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(lines), encoding="utf-8")
    print(f"{path.parent.name}/{path.name}: {len(lines)} rows")


def main(folder: Path = HERE) -> None:
    rng = random.Random(SEED)
    write(folder / "data" / "train.jsonl", training(rng))
    write(folder / "data" / "validation.jsonl", validation(rng))


if __name__ == "__main__":
    main()
