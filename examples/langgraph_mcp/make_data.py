"""Seed -> rows: one step of arithmetic each, with the result in `rollout_extra.solution`.

python make_data.py            writes data/train.jsonl and data/validation.jsonl anew
"""

from __future__ import annotations

import json
import random
from fractions import Fraction
from pathlib import Path

FOLDER = Path(__file__).parent / "data"
NUM_ROWS = {"train": 64, "validation": 8}


def main() -> None:
    chance = random.Random(7)
    made: dict[str, str] = {}
    while len(made) < sum(NUM_ROWS.values()):
        a, b = chance.randrange(2, 100), chance.randrange(2, 100)
        sign = chance.choice("+-*")
        results = {"+": a + b, "-": a - b, "*": a * b}
        made[f"What is {a} {sign} {b}?"] = str(Fraction(results[sign]))
    questions = list(made)
    for name, count in NUM_ROWS.items():
        chosen, questions = questions[:count], questions[count:]
        rows = (
            {"messages": [{"role": "user", "content": text}], "rollout_extra": {"solution": made[text]}}
            for text in chosen
        )
        (FOLDER / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
