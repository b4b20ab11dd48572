"""Things and readers -> rows: explain it in a sentence; `ground_truth` is the word that must occur.

python make_data.py            writes data/train.jsonl and data/validation.jsonl anew
"""

from __future__ import annotations

import json
from pathlib import Path

FOLDER = Path(__file__).parent / "data"
READERS = {"train": ("a child", "a farmer", "a pilot"), "validation": ("a cook",)}
THINGS = (
    "magnet", "rainbow", "battery", "volcano", "bridge", "glacier", "compass", "shadow",
    "pulley", "comet", "mirror", "yeast", "engine", "tide", "lens", "fossil",
)  # fmt: skip


def row(thing: str, reader: str) -> dict[str, object]:
    text = f"Explain to {reader} in one sentence what a {thing} is."
    return {"messages": [{"role": "user", "content": text}], "rollout_extra": {"ground_truth": thing}}


def main() -> None:
    for name, readers in READERS.items():
        rows = [row(thing, reader) for thing in THINGS for reader in readers]
        (FOLDER / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))


if __name__ == "__main__":
    main()
