"""A folder, or a configuration and weights -> a network of the engine's own.

Whatever trains keeps its model to itself: the two never share an object, and the engine can be made where
nothing is trained.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from strop.errors import EngineError, ModelError
from strop.locales import msg
from strop.schema.weights import WeightsRef


def network_from_folder(folder: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model in a Hugging Face folder, in float32, and its tokenizer.

    Raises:
        ModelError: the folder is incomplete, or transformers cannot load it.
    """
    try:
        network: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="sdpa", local_files_only=True
        )
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise ModelError(
            msg("the model in {folder!r} cannot be loaded: {error}", folder=str(folder), error=error),
            fix=msg("check that the folder is complete and is a causal language model with its tokenizer"),
        ) from error
    return network, tokenizer


def network_from_weights(config: PreTrainedConfig, weights: Mapping[str, Tensor]) -> PreTrainedModel:
    """A network of the architecture that `config` names, with these weights, named as in its `state_dict`.

    Raises:
        EngineError: a configuration of no causal language model.
    """
    try:
        network: Any = AutoModelForCausalLM.from_config(copy.deepcopy(config), dtype=_precision(weights))
    except ValueError as error:
        raise EngineError(
            msg("{name} is of no causal language model: {error}", name=type(config).__name__, error=error)
        ) from error
    network.load_state_dict(dict(weights), strict=False)
    network.tie_weights()
    return network


def _precision(weights: Mapping[str, Tensor]) -> torch.dtype:
    kinds = {tensor.dtype for tensor in weights.values() if tensor.is_floating_point()}
    return functools.reduce(torch.promote_types, kinds) if kinds else torch.float32


def tensors_of(weights: WeightsRef) -> Mapping[str, Tensor]:
    """The weights by name: those in memory as they are, those of a folder read from its safetensors files.

    Raises:
        ModelError: a folder without weights, or with files that cannot be read.
    """
    if weights.folder is None:
        assert weights.tensors is not None
        return weights.tensors
    found: dict[str, Tensor] = {}
    try:
        for file in sorted(weights.folder.glob("*.safetensors")):
            found |= load_file(file)
    except (OSError, SafetensorError) as error:
        raise ModelError(
            msg("the weights in {folder!r} cannot be read: {error}", folder=str(weights.folder), error=error)
        ) from error
    if not found:
        raise ModelError(msg("{folder!r} holds no weights", folder=str(weights.folder)))
    return found
