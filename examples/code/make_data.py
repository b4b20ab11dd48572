"""Nothing -> `data/train.jsonl`: small competition tasks in Ark's row form, each with its tests."""

import json
from pathlib import Path

TASKS = [
    ("Read an integer n. Print n + 1.", lambda n: n + 1),
    ("Read an integer n. Print n doubled.", lambda n: 2 * n),
    ("Read an integer n. Print n squared.", lambda n: n * n),
    ("Read an integer n. Print its absolute value.", abs),
    ("Read an integer n. Print even if n is even, else odd.", lambda n: "odd" if n % 2 else "even"),
    ("Read an integer n. Print the remainder of n divided by 7.", lambda n: n % 7),
    ("Read an integer n. Print n minus 10.", lambda n: n - 10),
    ("Read an integer n. Print the number of its decimal digits.", lambda n: len(str(abs(n)))),
]
INPUTS = (1, -3, 10, 4096)


def row(number, task, solve):
    tests = [{"input": {"stdin": f"{n}\n"}, "output": {"stdout": f"{solve(n)}\n"}} for n in INPUTS]
    text = f"{task}\nWrite a Python program that reads standard input. Put it into one ```python block."
    return {
        "messages": [{"role": "user", "content": text}],
        "extra": {"contest_id": number, "language": "python", "time_limit": "2", "tests": tests},
    }


if __name__ == "__main__":
    path = Path(__file__).parent / "data" / "train.jsonl"
    path.write_text("".join(json.dumps(row(n, *task)) + "\n" for n, task in enumerate(TASKS, 1)))
