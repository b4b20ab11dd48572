"""LoRA adapters -> models that share the weights of one base in one engine.

An adapter adds `scale * B A x` to what a linear layer gives. The base is computed for all tokens of a step
at once, each adapter's small products for its own rows. Keys and values that one adapter made are never read
by another.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.nn import functional as F

from strop.errors import EngineError
from strop.locales import msg

if TYPE_CHECKING:
    from strop.inference.local.engine import Engine
    from strop.inference.local.generation import Generation
    from strop.schema.sampling import SamplingParams

_PREFIX, _A, _B = "base_model.model.", ".lora_A.weight", ".lora_B.weight"
_PLAIN = {"use_dora": False, "use_rslora": False, "fan_in_fan_out": False, "bias": "none"}
"""Settings of PEFT that change what an adapter means, and the value that is understood here."""

_PLAIN |= {"modules_to_save": None, "rank_pattern": {}, "alpha_pattern": {}, "layers_to_transform": None}

_NUM_COMPARED = 4
_NOISE = 1e-4
"""Of the largest change: sums in another order, on another processor, differ by far less."""

_MAX_FLIPPED = 1e-3
"""Share of a weight's numbers that such noise may round to the other side; a base that was trained on by one
step differs in nearly all that the file can tell apart."""

_keys = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LowRank:
    """What a file holds: A and B by the name of the weight they change.

    Shapes:
        sites: (rank, inputs) and (outputs, rank) by name, such as `model.layers.0.mlp.up_proj`.
    """

    sites: Mapping[str, tuple[Tensor, Tensor]]
    scale: float

    def product(self, name: str) -> Tensor:
        """(outputs, inputs) what is added to that weight."""
        a_RI, b_OR = self.sites[name]
        return self.scale * (b_OR.float() @ a_RI.float())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Adapter:
    """A `LowRank` as a forward pass multiplies with it: for each layer its sites, with A and B.

    `key` tells its keys and values from those of every other; 0 is the base's.
    """

    layers: Sequence[Mapping[str, tuple[Tensor, Tensor]]]
    key: int = field(default_factory=lambda: next(_keys))


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptedRows:
    """The tokens of a step that one adapter changes; None is all of them."""

    adapter: Adapter
    rows_P: Tensor | None


class AdaptedSampler:
    """The engine, sampling with an adapter. Satisfies `strop.inference.chat.sampler.Sampler`."""

    def __init__(self, engine: Engine, adapter: Adapter) -> None:
        self._engine = engine
        self._adapter = adapter

    def submit(self, prompt_ids: Sequence[int], params: SamplingParams) -> Generation:
        return self._engine.submit(prompt_ids, params, adapter=self._adapter)


def read_adapter(folder: Path) -> LowRank:
    """What `learners.local.lora` wrote beside a published model.

    Raises:
        EngineError: not there, broken, or of a kind that is more than A and B.
    """
    try:
        config: dict[str, Any] = json.loads((folder / "adapter_config.json").read_bytes())
        rank, alpha = int(config["r"]), float(config["lora_alpha"])
        if rank < 1 or not math.isfinite(alpha):
            raise ValueError(f"r is {rank} and lora_alpha is {alpha}")
        with safe_open(folder / "adapter_model.safetensors", framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise EngineError(
            msg("the adapter in {folder!r} cannot be read: {error}", folder=str(folder), error=error)
        ) from error
    for name, plain in _PLAIN.items():
        if (config.get(name) or plain) != plain:
            raise EngineError(
                msg(
                    "the adapter in {folder!r} has {name}, which cannot share a base",
                    folder=str(folder),
                    name=name,
                )
            )
    names = {name.removeprefix(_PREFIX).removesuffix(_A) for name in tensors if name.endswith(_A)}
    if tensors.keys() != {_PREFIX + name + end for name in names for end in (_A, _B)} or not names:
        raise EngineError(
            msg("the adapter in {folder!r} holds other tensors than pairs of A and B", folder=str(folder))
        )
    for name in sorted(names):
        shapes = [tuple(tensors[_PREFIX + name + end].shape) for end in (_A, _B)]
        if [len(shape) for shape in shapes] != [2, 2] or shapes[0][0] != rank or shapes[1][1] != rank:
            raise EngineError(
                msg(
                    "the adapter in {folder!r} says r {rank}, but A and B of {name} are {shapes}",
                    folder=str(folder),
                    rank=rank,
                    name=name,
                    shapes=shapes,
                )
            )
    return LowRank(
        sites={name: (tensors[_PREFIX + name + _A], tensors[_PREFIX + name + _B]) for name in sorted(names)},
        scale=alpha / rank,
    )


def check_base(change: LowRank, *, base: Path, merged: Path) -> None:
    """Raises `EngineError` when `base` with the change is not the model in the folder `merged`.

    A few weights tell: another base, or one that was trained on since, differs in all of them. The sum is
    rounded as the file of the merged model is, and must then be the same number.
    """
    names = sorted(change.sites)
    few = [names[index * (len(names) - 1) // _NUM_COMPARED] for index in range(_NUM_COMPARED + 1)]
    for name in dict.fromkeys(few):
        was, became = (_tensor(folder, f"{name}.weight") for folder in (base, merged))
        product = change.product(name)
        if was is None or became is None or not was.shape == became.shape == product.shape:
            raise EngineError(
                msg(
                    "{base!r} is not the base of {merged!r}: {name} is not the same there",
                    base=str(base),
                    merged=str(merged),
                    name=name,
                )
            )
        if not _same(was.float() + product, became, noise=_NOISE * float(product.abs().max())):
            raise EngineError(
                msg(
                    "{base!r} is not the base of {merged!r}, or not any more: {name} differs",
                    base=str(base),
                    merged=str(merged),
                    name=name,
                )
            )


def _same(sum_OI: Tensor, became_OI: Tensor, *, noise: float) -> bool:
    """Whether the merged weight is this sum, rounded to its dtype."""
    rounded_OI, became_OI = sum_OI.to(became_OI.dtype).float(), became_OI.float()
    # One bit of float32 beside the noise: the merging added in float32 as well.
    allowed_OI = noise + torch.finfo(torch.float32).eps * sum_OI.abs()
    flipped_OI = ~((rounded_OI - became_OI).abs() <= allowed_OI)
    return float(flipped_OI.float().mean()) <= _MAX_FLIPPED


def _tensor(folder: Path, name: str) -> Tensor | None:
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, framework="pt") as file:
                if name in file.keys():  # noqa: SIM118 - no mapping
                    return file.get_tensor(name)
        except (OSError, SafetensorError) as error:
            raise EngineError(msg("{path!r} cannot be read: {error}", path=str(path), error=error)) from error
    return None


def fused_pair(
    change: LowRank,
    names: Sequence[str],
    widths: Sequence[int],
    *,
    reorder: Callable[[int, Tensor], Tensor],
    own: Callable[[Tensor], Tensor],
) -> tuple[Tensor, Tensor] | None:
    """A and B of some weights that are multiplied as one, below each other; None if none is adapted.

    `widths` are their outputs, `reorder(index, b_OR)` brings B's rows into the order of the weight's.

    Raises:
        EngineError: shapes that are not those of the weights.
    """
    pairs = [change.sites.get(name) for name in names]
    found = [pair for pair in pairs if pair is not None]
    if not found:
        return None
    total = sum(len(a_RI) for a_RI, _ in found)
    b_OR = found[0][1].new_zeros((sum(widths), total))
    row = column = 0
    for index, (pair, width) in enumerate(zip(pairs, widths, strict=True)):
        if pair is not None:
            a, b = pair
            if b.shape != (width, len(a)) or a.shape[1] != found[0][0].shape[1]:
                raise EngineError(msg("the adapter's shapes do not fit {names}", names=names[index]))
            b_OR[row : row + width, column : column + len(a)] = reorder(index, b)
            column += len(a)
        row += width
    return own(torch.cat([a_RI for a_RI, _ in found])), own(change.scale * b_OR)


def adapted_rows(
    adapters_S: Sequence[Adapter | None], take_S: npt.NDArray[np.int64], device: torch.device
) -> tuple[AdaptedRows, ...]:
    """Which rows of a step belong to which adapter; slots that take no token have none.

    Shapes:
        take_S: (S,) tokens of each slot, laid out one after the other.
    """
    present = {one.key: one for one in adapters_S if one is not None}
    if not present:
        return ()
    key_N = np.repeat(np.array([0 if one is None else one.key for one in adapters_S]), take_S)
    return tuple(
        AdaptedRows(
            adapter=adapter,
            rows_P=None
            if (key_N == key).all()
            else torch.from_numpy(np.flatnonzero(key_N == key)).to(device),
        )
        for key, adapter in present.items()
        if (key_N == key).any()
    )


def add_changes(adapted: Sequence[AdaptedRows], layer: int, site: str, x_NE: Tensor, out_NF: Tensor) -> None:
    """Add to `out_NF`, what the base's weight gave, what the adapters change for their rows."""
    for some in adapted:
        pair = some.adapter.layers[layer].get(site)
        if pair is None:
            continue
        x_PE = x_NE if some.rows_P is None else x_NE[some.rows_P]
        change_PF = F.linear(F.linear(x_PE, pair[0]), pair[1])
        if some.rows_P is None:
            out_NF.add_(change_PF)
        else:
            out_NF.index_add_(0, some.rows_P, change_PF)
