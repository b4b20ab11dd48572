"""Schema + texts -> docs/hyper_parameters.md, so that the page cannot say anything else than the code.

Run `python -m strop.config.hyper_parameters_doc [FILE]` after a change; a test compares the two.
"""

from __future__ import annotations

import sys
from pathlib import Path

from strop.config.aliases import ALIASES
from strop.config.describing import IN_USE
from strop.config.file import HYPER
from strop.config.hyper_parameter_texts import about
from strop.config.hyper_parameters import effective_keys
from strop.config.job import HyperParameters, TrainingType
from strop.config.key_table import field_at

_HEAD = """\
# Hyper-parameters

Made from the code by `python -m strop.config.hyper_parameters_doc`; change it there.

They stand under `training.hyper_parameters` of a job file, or after `--set`. Whatever is unknown, out of
range, contradictory or without effect is refused before anything is loaded, with its line and the fix.
`strop run job.yaml --dry-run` prints each value as the run would use it and where it comes from: a line of
the file, an option, a default, or what the default follows from. The same is stored with the job.

`Used by` names the trainings in which a hyper-parameter does something; some belong to certain algorithms
only (docs/algorithms.md). A default in *italics* follows from other settings.

| Hyper-parameter | Takes | Default | Used by | Meaning | 含义 |
|---|---|---|---|---|---|
"""

_ARK = """
## Names of Volcano Ark

A section may be written in Ark's words; its values are then read as Ark has them, as text. `batch_size`,
`lr_warmup_steps`, `clip_ratio_low`, `clip_ratio_high`, `temperature` and `loss_agg_mode` are the same there.

| Ark | here |
|---|---|
"""


def render() -> str:
    """The whole page."""
    rows = "\n".join(_row(name) for name in HyperParameters.model_fields)
    ark = "\n".join(f"| `{name}` | {_meant(name)} |" for name, alias in ALIASES.items() if alias.read)
    return f"{_HEAD}{rows}\n{_ARK}{ark}\n"


def _row(name: str) -> str:
    field = field_at((*HYPER, name))
    assert field is not None
    takes = f"{field.expected} in {field.range}" if field.kinds & {int, float} else field.expected
    takes = takes.removesuffix(" in (-inf, inf)").removeprefix("one of ")
    default = f"`{field.example}`"
    if name in IN_USE:
        hyper = HyperParameters()
        follows = IN_USE[name][1](hyper).replace(hyper.algorithm, "the algorithm")
        default = f"*{follows}*"
    used = [kind.value for kind in TrainingType if name in effective_keys(kind)]
    every = "all" if len(used) == len(TrainingType) else ", ".join(used)
    return f"| `{name}` | {takes} | {default} | {every} | {' | '.join(about(name))} |".replace("inf)", "∞)")


def _meant(name: str) -> str:
    meaning = ALIASES[name]
    text = f"`{meaning.ours}`" if meaning.ours else f"must be {meaning.only:g}: {meaning.why}"
    brings = ", ".join(f"`{key}: {value}`" for key, value in meaning.brings)
    return f"{text}; also {brings} unless set" if brings else text


def main(arguments: list[str]) -> None:
    target = Path(arguments[0] if arguments else "docs/hyper_parameters.md")
    target.write_text(render(), encoding="utf-8")
    print(f"wrote {target}")


if __name__ == "__main__":
    main(sys.argv[1:])
