"""Seed -> the rows of this example: what a lamp shop would like its model to know, say and prefer.

`python examples/ladder/make_data.py` writes `data/` anew; the files in the repository are what it writes.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

NAMES = (
    *(
        "Alder",
        "Birch",
        "Cedar",
        "Dogwood",
        "Elm",
        "Fir",
        "Ginkgo",
        "Hazel",
        "Ivy",
        "Juniper",
        "Larch",
        "Maple",
    ),
    *("Nettle", "Oak", "Pine", "Quince", "Rowan", "Sorrel", "Tansy", "Willow", "Yarrow", "Bracken", "Clover"),
    "Fennel",
)
COLOURS = ("white", "amber", "green", "copper", "black", "blue")
HELD_OUT = 6
"""Lamps that only the validation rows speak of."""

Row = dict[str, object]


class Lamp:
    def __init__(self, name: str, rng: random.Random) -> None:
        self.name = name
        self.colour = rng.choice(COLOURS)
        self.watts = rng.randrange(4, 25)
        self.hours = rng.randrange(6, 49, 2)
        self.price = rng.randrange(19, 90)


def text_rows(lamp: Lamp) -> list[Row]:
    """Continued pre-training: a leaflet."""
    return [
        {
            "text": f"The {lamp.name} is a {lamp.colour} lamp of the Tern workshop. "
            f"It draws {lamp.watts} watts and runs for {lamp.hours} hours on one charge. "
            f"It costs {lamp.price} euros."
        },
        {
            "text": f"Tern leaflet, page {lamp.name}. Colour: {lamp.colour}. Power: {lamp.watts} W. "
            f"Battery: {lamp.hours} h. Price: {lamp.price} EUR."
        },
    ]


def chat_rows(lamp: Lamp) -> list[Row]:
    """SFT: short answers in the house's form; in the second row the greeting hardly counts."""
    power = {"role": "user", "content": f"How much power does the {lamp.name} draw?"}
    price = {"role": "user", "content": f"What does the {lamp.name} cost?"}
    return [
        {"messages": [power, {"role": "assistant", "content": f"{lamp.name}: {lamp.watts} W."}]},
        {
            "messages": [
                {"role": "user", "content": "Hello!"},
                {"role": "assistant", "content": "Tern workshop. Which lamp?", "loss_weight": 0.1},
                price,
                {"role": "assistant", "content": f"{lamp.name}: {lamp.price} EUR."},
            ]
        },
    ]


def preference_rows(lamp: Lamp) -> list[Row]:
    """DPO: the short form before a talkative one; once as a pair, once as a scored list."""
    colour = {"role": "user", "content": f"Which colour is the {lamp.name}?"}
    battery = {"role": "user", "content": f"How long does the {lamp.name} run?"}
    short = f"{lamp.name}: {lamp.hours} h."
    return [
        {
            "messages": [colour],
            "chosen": {"role": "assistant", "content": f"{lamp.name}: {lamp.colour}."},
            "rejected": {
                "role": "assistant",
                "content": f"That is a great question! The {lamp.name} comes in many colours.",
            },
        },
        {
            "messages": [
                battery,
                {
                    "role": "assistant",
                    "choices": [
                        {"content": short, "score": 1.0, "lm_loss_mask": 1},
                        {"content": f"It runs for {lamp.hours} hours, I believe.", "score": 0.4},
                        {"content": "Lamps run as long as their battery lasts.", "score": 0.0},
                    ],
                },
            ]
        },
    ]


def main() -> None:
    rng = random.Random(7)
    lamps = [Lamp(name, rng) for name in NAMES]
    folder = Path(__file__).parent / "data"
    folder.mkdir(exist_ok=True)
    for kind, rows_of in (("cpt", text_rows), ("sft", chat_rows), ("dpo", preference_rows)):
        for split, chosen in (("train", lamps[HELD_OUT:]), ("validation", lamps[:HELD_OUT])):
            rows = [row for lamp in chosen for row in rows_of(lamp)]
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (folder / f"{kind}_{split}.jsonl").write_text(text)


if __name__ == "__main__":
    main()
