"""Model and tensors <-> files: a Hugging Face model folder, and plain safetensors beside it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from strop.errors import CheckpointError
from strop.learners.quiet import quiet_transformers
from strop.locales import msg


def write_model(
    folder: Path, model: nn.Module, tokenizer: Any, weights: dict[str, Tensor], dtype: torch.dtype
) -> None:
    """Write model, configuration, generation configuration and tokenizer so that `from_pretrained` reads
    them.

    `weights` by parameter name replace the model's own; tied ones are written once.
    """
    cast = {id(weight): weights[name].detach().to(dtype) for name, weight in model.named_parameters()}
    # Names that are tied share one tensor here too, so that it is written once.
    state = {name: cast.get(id(value), value) for name, value in model.state_dict(keep_vars=True).items()}
    with quiet_transformers():
        model.save_pretrained(folder, state_dict=state)  # pyright: ignore[reportCallIssue]
        if tokenizer is not None:
            tokenizer.save_pretrained(folder)
    # save_pretrained writes the dtype of the working weights; a reader must get that of the file.
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["dtype"] = str(dtype).removeprefix("torch.")
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    save_file({name: value.detach().contiguous() for name, value in tensors.items()}, path)


def has_names(folder: Path, names: set[str]) -> bool:
    """Whether the model folder holds a tensor of each name: some architectures are stored under other
    names."""
    found: set[str] = set()
    for file in folder.glob("*.safetensors"):
        with safe_open(file, framework="pt") as content:
            found.update(content.keys())
    return names <= found


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of one file, or of a model folder."""
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    return {name: value for file in files for name, value in load_file(file).items()}


def not_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """The first name whose tensor holds a NaN or an infinity; None where all are finite."""
    return next((name for name, value in tensors.items() if not bool(value.isfinite().all())), None)


def check_finite(what: str, tensors: Mapping[str, Tensor], *, working: torch.dtype | None = None) -> None:
    """Refuse numbers of a checkpoint that no training can go on with; `what` begins the sentence.

    Raises:
        CheckpointError: they are not all finite, or not in `working`, which they will be rounded to.
    """
    if (broken := not_finite(tensors)) is not None:
        raise CheckpointError(
            msg("{what} is not finite: {broken!r} holds NaN or infinity", what=what, broken=broken),
            fix=msg("resume from an earlier checkpoint"),
        )
    for name, value in tensors.items() if working is not None else ():
        if not_finite({name: value.to(working)}) is not None:
            dtype = str(working).removeprefix("torch.")
            raise CheckpointError(
                msg(
                    "{what} does not fit {dtype}: {name!r} becomes infinite",
                    what=what,
                    dtype=dtype,
                    name=name,
                ),
                fix=msg("set train_dtype: float32"),
            )


def sha256_of(tensors: dict[str, Tensor]) -> str:
    """One hash of names, shapes, dtypes and bits."""
    digest = hashlib.sha256()
    for name, value in sorted(tensors.items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
