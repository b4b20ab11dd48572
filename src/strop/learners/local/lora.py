"""Model + rank -> low-rank adapters whose sum with the base weights is what the model computes with.

The weights of the model itself are always base + scale * B A: every forward pass (the hand-written one too),
the engine's copy and an export read them as they are, and the learner's logprobs are those of the model that
samples. The base lies beside, is never written to, and is the KL reference. A gradient of a weight becomes
gradients of A and B: on the hand-written path without ever forming it, elsewhere through a hook.

`learners.local.policy` makes one where `lora_rank` is set. PEFT gives the file format: `export` writes what
`peft.PeftModel.from_pretrained` reads.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.pytorch_utils import Conv1D

from strop.errors import ModelError
from strop.learners.local.gradients import buffer_of
from strop.learners.local.optimizer import Optimizer
from strop.learners.weights_file import write_tensors
from strop.locales import msg


class Adapter(nn.Module):
    """The A and B of every adapted weight of a model; named as PEFT names them.

    Concurrency: as the model's own weights; not thread-safe.
    """

    def __init__(
        self,
        model: nn.Module,
        exact: Mapping[str, Tensor],
        *,
        rank: int,
        alpha: float,
        dropout: float = 0.0,
        target_modules: Sequence[str] | None = None,
        seed: int = 0,
    ) -> None:
        """Freeze `model` and adapt it; its numbers stay what they are, because B begins as zeros.

        `exact` are the base weights by parameter name, in full precision. Without `target_modules` every
        linear layer is adapted but the output embedding.

        Raises:
            ModelError: a target that the model has not, or that is no linear layer.
        """
        super().__init__()
        self.rank, self.alpha, self.dropout = rank, alpha, dropout
        self._model = [model]  # in a list, so that it is no child whose parameters would be ours
        model.requires_grad_(False)
        generator = torch.Generator().manual_seed(seed)
        self.sites: dict[str, Site] = {}
        for name, module in _targets(model, target_modules).items():
            site = Site(module, exact[f"{name}.weight"], rank, alpha / rank, generator)
            self.sites[name] = site
            home = self
            for part in name.split("."):
                if part not in dict(home.named_children()):
                    home.add_module(part, nn.Module())
                home = home.get_submodule(part)
            home.register_parameter("lora_A", site.a_RI)
            home.register_parameter("lora_B", site.b_OR)

    def merge(self) -> None:
        """Bring the model's weights up to date with A and B."""
        for site in self.sites.values():
            site.merge()

    def merged(self) -> dict[str, Tensor]:
        """The adapted weights by parameter name, in full precision."""
        return {f"{name}.weight": site.merged() for name, site in self.sites.items()}

    def base_model(self) -> nn.Module:
        """The model without its adapters; shares every tensor, so it costs no memory in float32."""
        model = self._model[0]
        memo: dict[int, Any] = {id(weight): weight for weight in model.parameters()}
        for site in self.sites.values():
            base = site.base.to(site.weight.dtype)
            memo[id(site.weight)] = nn.Parameter(base, requires_grad=False)
        return copy.deepcopy(model, memo)

    @contextmanager
    def dropping(self) -> Iterator[None]:
        """Inside, passes through the model's modules drop inputs of the adapters; backward included."""
        hooks = [
            site.module.register_forward_hook(partial(_drop, site, self.dropout))
            for site in self.sites.values()
            if self.dropout > 0
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def export(self, folder: Path) -> None:
        """Write the adapter alone, in PEFT's format."""
        from peft import LoraConfig

        model: Any = self._model[0]
        folder.mkdir(parents=True)
        LoraConfig(
            r=self.rank,
            lora_alpha=self.alpha,  # pyright: ignore[reportArgumentType]  PEFT only divides by it
            lora_dropout=self.dropout,
            target_modules=_shortest(model, list(self.sites)),
            fan_in_fan_out=any(site.transposed for site in self.sites.values()),
            base_model_name_or_path=getattr(model, "name_or_path", None) or None,
            task_type="CAUSAL_LM",
            inference_mode=True,
        ).save_pretrained(str(folder))
        tensors: dict[str, Tensor] = {}
        for name, site in self.sites.items():
            tensors[f"base_model.model.{name}.lora_A.weight"] = site.a_RI
            tensors[f"base_model.model.{name}.lora_B.weight"] = site.b_OR
        write_tensors(folder / "adapter_model.safetensors", tensors)


class Site:
    """One adapted weight. `weight` is the model's own parameter, `base` what it was.

    Shapes:
        a_RI: (rank, inputs), b_OR: (outputs, rank). Conv1D keeps its weight as (inputs, outputs).
    """

    def __init__(
        self, module: Any, base: Tensor, rank: int, scale: float, generator: torch.Generator
    ) -> None:
        self.module, self.weight, self.scale = module, module.weight, scale
        self.transposed = isinstance(module, Conv1D)
        # Where the model computes in full precision, `base` is the very memory that merging writes to.
        shared = base.data_ptr() == self.weight.data_ptr()
        self.base = base.clone() if shared else base
        outputs, inputs = reversed(base.shape) if self.transposed else base.shape
        bound = 1 / math.sqrt(inputs)  # kaiming_uniform with a = sqrt(5), as PEFT and nn.Linear begin
        start = torch.empty(rank, inputs, dtype=base.dtype).uniform_(-bound, bound, generator=generator)
        self.a_RI = nn.Parameter(start)
        self.b_OR = nn.Parameter(torch.zeros(outputs, rank, dtype=base.dtype))
        self.weight.requires_grad_(True)
        self.weight.adapter = self
        self.weight.register_post_accumulate_grad_hook(_move_gradient)

    @torch.no_grad()
    def merged(self) -> Tensor:
        delta_OI = self.b_OR @ self.a_RI
        return torch.add(self.base, delta_OI.t() if self.transposed else delta_OI, alpha=self.scale)

    @torch.no_grad()
    def merge(self) -> None:
        self.weight.copy_(self.merged())

    @torch.no_grad()
    def add_product(self, left_NO: Tensor, right_NI: Tensor) -> None:
        """Add the gradients that left^T @ right, a gradient of the whole weight, means for A and B."""
        a_RI, b_OR = self.a_RI.to(left_NO.dtype), self.b_OR.to(left_NO.dtype)
        _add(self.a_RI, (left_NO @ b_OR).t(), right_NI, self.scale)
        _add(self.b_OR, left_NO.t(), right_NI @ a_RI.t(), self.scale)

    @torch.no_grad()
    def add_whole(self, grad: Tensor) -> None:
        """Add the gradients that one of the whole weight means for A and B."""
        grad_OI = (grad.t() if self.transposed else grad).to(self.a_RI.dtype)
        _add(self.a_RI, self.b_OR.t(), grad_OI, self.scale)
        _add(self.b_OR, grad_OI, self.a_RI.t(), self.scale)


class AdapterOptimizer(Optimizer):
    """AdamW on A and B; after each step the model's weights are merged anew."""

    def __init__(self, adapter: Adapter, *, weight_decay: float) -> None:
        self._adapter = adapter
        super().__init__(adapter, weight_decay=weight_decay)

    def _copy_back(self) -> None:
        super()._copy_back()
        self._adapter.merge()


def _add(weight: Tensor, left: Tensor, right: Tensor, scale: float) -> None:
    buffer = buffer_of(weight)
    assert buffer is not None  # the optimizer attached it
    if buffer.dtype == left.dtype:
        buffer.addmm_(left, right, alpha=scale)
    else:
        buffer.add_(left @ right, alpha=scale)


def _move_gradient(weight: Tensor) -> None:
    if weight.grad is not None:
        weight.adapter.add_whole(weight.grad)  # pyright: ignore[reportAttributeAccessIssue]
        weight.grad = None


def _drop(site: Site, share: float, _module: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> Tensor:
    """W x + s B A x, as computed with merged weights, to W x + s B A dropout(x)."""
    inputs = given[0].to(site.a_RI.dtype)
    change = F.dropout(inputs, share, training=True) - inputs
    return output + (F.linear(F.linear(change, site.a_RI), site.b_OR) * site.scale).to(output.dtype)


def _targets(model: nn.Module, wanted: Sequence[str] | None) -> dict[str, nn.Module]:
    """Adapted modules by name: every linear one but the output embedding, or those with a wanted ending."""
    head = model.get_output_embeddings()  # pyright: ignore[reportCallIssue]
    linear: dict[str, nn.Module] = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear | Conv1D) and module is not head
    }
    if wanted is None:
        return linear
    for target in wanted:
        if not any(_ends_with(name, target) for name in linear):
            known = ", ".join(sorted({name.rsplit(".", 1)[-1] for name in linear}))
            raise ModelError(
                msg(
                    "target_modules: the model has no linear layer {target!r} that can be adapted",
                    target=target,
                ),
                fix=msg("its layers: {known}", known=known),
            )
    return {
        name: module for name, module in linear.items() if any(_ends_with(name, target) for target in wanted)
    }


def _shortest(model: nn.Module, names: list[str]) -> list[str]:
    """The last parts of the names where they mean just these modules, else the names."""
    endings = sorted({name.rsplit(".", 1)[-1] for name in names})
    meant = [name for name, _ in model.named_modules() if any(_ends_with(name, one) for one in endings)]
    return endings if sorted(meant) == sorted(names) else names


def _ends_with(name: str, target: str) -> bool:
    return name == target or name.endswith(f".{target}")
