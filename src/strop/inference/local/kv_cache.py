"""Keys and values of every slot, and which tokens they belong to: one tensor, bounded, with reuse of
prefixes.

A slot holds one sequence of at most `max_length` tokens. Sequences that run lie in the first slots, so that
attention of a batch reads a view; slots of sequences that ended keep their KV until room is needed. All
bookkeeping of a slot (tokens, logprobs, versions, counts) lies in arrays beside it and moves with it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class KVShape:
    """What one token needs: `layers x 2 x kv_heads x head_dim` numbers."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    dtype: torch.dtype

    @property
    def bytes_per_token(self) -> int:
        return self.num_layers * 2 * self.num_kv_heads * self.head_dim * self.dtype.itemsize


class KVCache:
    """Slots for KV.

    Shapes:
        data: (layers, 2, slots, kv_heads, max_length, head_dim), keys then values.
        tokens_SL, logprobs_SL, versions_SL: (slots, max_length). logprobs and versions are set for sampled
        tokens.
        num_tokens_S: tokens known; num_cached_S: tokens whose KV is in `data`, from the first on.
        adapter_S: key of the adapter that the KV was made with, 0 for none.
    Units:
        fewest_attended: tokens that are attended to at least, masked ones among them; `Attention` sets it.
    """

    def __init__(self, shape: KVShape, *, num_slots: int, max_length: int, device: torch.device) -> None:
        self.shape = shape
        self.num_slots = num_slots
        self.max_length = max_length
        self.fewest_attended = 0
        self._device = device
        self.data: Tensor
        self.flat_layers: list[Tensor]
        self._allocate()
        self.tokens_SL = np.zeros((num_slots, max_length), dtype=np.int64)
        self.logprobs_SL = np.zeros((num_slots, max_length), dtype=np.float32)
        self.versions_SL = np.zeros((num_slots, max_length), dtype=np.int64)
        self.num_tokens_S = np.zeros(num_slots, dtype=np.int64)
        self.num_cached_S = np.zeros(num_slots, dtype=np.int64)
        self.used_at_S = np.zeros(num_slots, dtype=np.int64)
        self.adapter_S = np.zeros(num_slots, dtype=np.int64)
        heads = np.arange(shape.num_kv_heads)
        keys_and_values = np.arange(2)[:, None] * num_slots * shape.num_kv_heads + heads[None, :]
        self._head_rows = keys_and_values.reshape(-1) * max_length

    def rows_of(self, slot_N: npt.NDArray[np.int64], position_N: npt.NDArray[np.int64]) -> Tensor:
        """Where tokens lie in a layer of `flat_layers`: (N, 2 * kv_heads), keys before values."""
        first_N = slot_N * (self.shape.num_kv_heads * self.max_length) + position_N
        rows = torch.from_numpy(first_N[:, None] + self._head_rows[None, :])
        return rows.to(self.data.device)

    def common_prefix(
        self, token_ids: npt.NDArray[np.int64], known_S: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """How many first tokens each slot shares with `token_ids`, of its `known_S` first ones."""
        length = len(token_ids)
        same_SL = self.tokens_SL[:, :length] == token_ids
        same_S = np.where(same_SL.all(axis=1), length, same_SL.argmin(axis=1))
        return np.minimum(same_S, known_S)

    def oldest(self, first: int) -> int:
        """The slot from `first` on that was used longest ago."""
        return first + int(self.used_at_S[first:].argmin())

    def copy_prefix(self, source: int, target: int, length: int) -> None:
        """Give `target` the first `length` tokens of `source` with their KV."""
        if length:
            self.data[:, :, target, :, :length] = self.data[:, :, source, :, :length]
        self.tokens_SL[target, :length] = self.tokens_SL[source, :length]
        self.num_cached_S[target] = length
        self.num_tokens_S[target] = length

    def swap(self, a: int, b: int) -> None:
        if a == b:
            return
        length = int(max(self.num_cached_S[a], self.num_cached_S[b]))
        if length:
            kept = self.data[:, :, a, :, :length].clone()
            self.data[:, :, a, :, :length] = self.data[:, :, b, :, :length]
            self.data[:, :, b, :, :length] = kept
        tokens = int(max(self.num_tokens_S[a], self.num_tokens_S[b]))
        for table in (self.tokens_SL, self.logprobs_SL, self.versions_SL):
            table[[a, b], :tokens] = table[[b, a], :tokens]
        for counts in (self.num_tokens_S, self.num_cached_S, self.used_at_S, self.adapter_S):
            counts[[a, b]] = counts[[b, a]]

    def forget(self) -> None:
        """Drop all KV, because the weights it came from are gone."""
        self.num_cached_S[:] = 0

    def empty(self, slot: int) -> None:
        self.num_cached_S[slot] = self.num_tokens_S[slot] = 0

    def wipe(self) -> None:
        """Drop all KV and its numbers, after some that were not finite: 0 times NaN is NaN."""
        self.give_back()

    def give_back(self) -> None:
        """Drop all KV and the memory that it took; what is written later takes memory again."""
        self.forget()
        del self.data, self.flat_layers
        self._allocate()

    def _allocate(self) -> None:
        shape = self.shape
        sizes = (shape.num_layers, 2, self.num_slots, shape.num_kv_heads, self.max_length, shape.head_dim)
        self.data = _zeros(sizes, shape.dtype, self._device)
        self.flat_layers = [layer.view(-1, shape.head_dim) for layer in self.data]


def _zeros(sizes: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros, because masked positions are multiplied by 0 and not skipped.

    On a CPU numpy asks for zeroed pages, which take no memory until they are written; torch writes them all.
    """
    if device.type != "cpu":
        return torch.zeros(sizes, dtype=dtype, device=device)
    num_bytes = math.prod(sizes) * dtype.itemsize
    return torch.from_numpy(np.zeros(num_bytes, dtype=np.uint8)).view(dtype).view(sizes)
