"""Seed -> rows in Ark's form: sums and products, with the reference in `extra.answer` as LaTeX or a number.

python make_data.py            writes data/train.jsonl and data/validation.jsonl anew
"""

from __future__ import annotations

import json
import random
from pathlib import Path

FOLDER = Path(__file__).parent / "data"
NUM_ROWS = {"train": 128, "validation": 16}


def rows(count: int, seed: int) -> list[dict[str, object]]:
    """Distinct problems, each with its answer."""
    chance = random.Random(seed)
    made: dict[str, str] = {}
    while len(made) < count:
        a, b = chance.randrange(2, 20), chance.randrange(2, 20)
        text, answer = chance.choice(
            [
                (f"{a} + {b}", str(a + b)),
                (f"{a} * {b}", str(a * b)),
                (f"{a} / {b}", f"\\frac{{{a}}}{{{b}}}"),
            ]
        )
        made[text] = answer
    return [
        {
            "messages": [
                {"role": "user", "content": f"What is {text}? Put the result within \\boxed{{}}."},
            ],
            "extra": {"answer": answer},
        }
        for text, answer in made.items()
    ]


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for seed, (name, count) in enumerate(NUM_ROWS.items(), start=1):
        lines = (json.dumps(row) + "\n" for row in rows(count, seed))
        (FOLDER / f"{name}.jsonl").write_text("".join(lines))


if __name__ == "__main__":
    main()
