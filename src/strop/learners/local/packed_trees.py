"""Packs -> micro-batches: several prefix trees side by side, as tensors of one forward pass.

The packs of an update are cut into micro-batches of a bounded number of nodes: short packs are joined,
because longer matrix products run faster; a pack beyond the bound is split by its sequences, each part with
its own copy of the common prefix. Neither changes any number of the update.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import nan

import numpy as np
import torch
from torch import Tensor

from strop.schema.batch import Pack
from strop.schema.batch import Sequence as TokenSequence

# Nodes in one forward and backward pass, unless one sequence is longer. Twice as many ran 3 % faster for
# SmolLM2-135M on two cores and took 0.8 GB more for activations.
MAX_NODES = 768


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedTrees:
    """Trees in depth-first order: node j is i or an ancestor of i exactly when `j <= i < subtree_end[j]`.

    Shapes:
        token_ids_N, positions_N, subtree_end_N: nodes. edge_nodes_E, edge_tokens_E, edge_temperatures_E:
        sampled tokens. sequence_edges_ST, mask_ST, behaviour_logprobs_ST: rows padded to the longest;
        advantages_ST: the rollout's at each token, or the token's own. old_values_ST, returns_ST: the
        critic's, 0 where there is none. old_logprobs_ST, reference_logprobs_ST, teacher_logprobs_ST: float64,
        where any row brings them, NaN in rows that do not. weights_S, lengths_S, rollout_ids: one a row.
        Sequences without a sampled token are left out; a token whose behaviour logprob is not finite, or that
        was rejected, is not in the mask, but counts in `lengths_S`.
    """

    token_ids_N: Tensor
    positions_N: Tensor
    subtree_end_N: Tensor
    edge_nodes_E: Tensor
    edge_tokens_E: Tensor
    edge_temperatures_E: Tensor
    sequence_edges_ST: Tensor
    mask_ST: Tensor
    behaviour_logprobs_ST: Tensor
    advantages_ST: Tensor
    old_values_ST: Tensor
    returns_ST: Tensor
    weights_S: Tensor
    lengths_S: Tensor
    rollout_ids: tuple[str, ...]
    old_logprobs_ST: Tensor | None = None
    reference_logprobs_ST: Tensor | None = None
    teacher_logprobs_ST: Tensor | None = None

    @property
    def num_nodes(self) -> int:
        return len(self.token_ids_N)

    @property
    def num_loss_tokens(self) -> int:
        return int(self.mask_ST.sum())

    def attention_mask(self) -> Tensor:
        """(1, 1, N, N), True where row i may look at column j."""
        order_N = torch.arange(self.num_nodes)
        return ((order_N[None, :] <= order_N[:, None]) & (order_N[:, None] < self.subtree_end_N[None, :]))[
            None, None
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A pack cut down to some of its sequences and the nodes that those need."""

    nodes: np.ndarray
    subtree_end: np.ndarray
    edges: np.ndarray
    edge_nodes: np.ndarray
    sequences: tuple[int, ...]
    pack: Pack


def pack_trees(packs: Sequence[Pack], *, max_nodes: int) -> list[PackedTrees]:
    """Cut and join `packs`, in their order, into micro-batches of at most `max_nodes` nodes.

    One sequence alone may exceed the bound; it is never cut. Nodes that predict nothing, such as the last
    token of a completion, are left out.
    """
    micro_batches: list[PackedTrees] = []
    waiting: list[_Part] = []
    size = 0
    for part in (part for pack in packs for part in _parts(pack, max_nodes)):
        if waiting and size + len(part.nodes) > max_nodes:
            micro_batches.append(_join(waiting))
            waiting, size = [], 0
        waiting.append(part)
        size += len(part.nodes)
    if waiting:
        micro_batches.append(_join(waiting))
    return micro_batches


def _parts(pack: Pack, max_nodes: int) -> Iterator[_Part]:
    rows = [row for row, edges in enumerate(pack.sequence_edges) if edges]
    if not rows:
        return
    whole = _cut(pack, rows)
    if len(whole.nodes) <= max_nodes:
        yield whole
        return
    chosen = rows[:1]
    for row in rows[1:]:
        if len(_cut(pack, [*chosen, row]).nodes) > max_nodes:
            yield _cut(pack, chosen)
            chosen = []
        chosen = [*chosen, row]
    yield _cut(pack, chosen)


def _cut(pack: Pack, rows: Sequence[int]) -> _Part:
    edges = np.unique(np.concatenate([np.asarray(pack.sequence_edges[row]) for row in rows]))
    edge_nodes = np.asarray(pack.edge_nodes)[edges]
    subtree_end = np.asarray(pack.subtree_end)
    predicting = np.zeros(len(subtree_end) + 1, dtype=np.int64)
    predicting[edge_nodes + 1] = 1
    before = predicting.cumsum()  # before[i]: predicting nodes among 0..i-1
    needed = before[subtree_end] > before[:-1]
    new_index = np.concatenate([[0], needed.cumsum()])
    return _Part(
        nodes=np.flatnonzero(needed),
        subtree_end=new_index[subtree_end][needed],
        edges=edges,
        edge_nodes=new_index[edge_nodes],
        sequences=tuple(rows),
        pack=pack,
    )


def _join(parts: Sequence[_Part]) -> PackedTrees:
    node_start = np.cumsum([0, *(len(part.nodes) for part in parts)])
    edge_start = np.cumsum([0, *(len(part.edges) for part in parts)])
    rows: list[np.ndarray] = []
    behaviour: list[np.ndarray] = []
    sequences = [part.pack.sequences[row] for part in parts for row in part.sequences]
    for part, start in zip(parts, edge_start, strict=False):
        for row in part.sequences:
            rows.append(np.searchsorted(part.edges, part.pack.sequence_edges[row]) + start)
            sequence = part.pack.sequences[row]
            behaviour.append(np.asarray(sequence.behaviour_logprobs)[np.asarray(sequence.loss_mask)])
    lengths = torch.tensor([len(row) for row in rows])
    behaviour_ST = _pad([torch.from_numpy(row).float() for row in behaviour])
    kept_ST = _pad([torch.tensor(row.kept or (True,) * row.num_loss_tokens) for row in sequences])
    within_ST = torch.arange(int(lengths.max()))[None, :] < lengths[:, None]

    def nodes(values: Sequence[np.ndarray]) -> Tensor:
        return torch.from_numpy(np.concatenate(values)).long()

    return PackedTrees(
        token_ids_N=nodes([np.asarray(part.pack.token_ids)[part.nodes] for part in parts]),
        positions_N=nodes([np.asarray(part.pack.positions)[part.nodes] for part in parts]),
        subtree_end_N=nodes(
            [part.subtree_end + start for part, start in zip(parts, node_start, strict=False)]
        ),
        edge_nodes_E=nodes([part.edge_nodes + start for part, start in zip(parts, node_start, strict=False)]),
        edge_tokens_E=nodes([np.asarray(part.pack.edge_tokens)[part.edges] for part in parts]),
        edge_temperatures_E=torch.from_numpy(
            np.concatenate([np.asarray(part.pack.edge_temperatures)[part.edges] for part in parts])
        ).float(),
        sequence_edges_ST=_pad([torch.from_numpy(row) for row in rows]),
        mask_ST=within_ST & behaviour_ST.isfinite() & kept_ST,
        behaviour_logprobs_ST=behaviour_ST,
        advantages_ST=_pad([_by_token(one.token_advantages, one.advantage, one) for one in sequences]),
        old_values_ST=_pad([_by_token(one.old_values, 0.0, one) for one in sequences]),
        returns_ST=_pad([_by_token(one.returns, 0.0, one) for one in sequences]),
        weights_S=torch.tensor([sequence.weight for sequence in sequences]),
        lengths_S=lengths,
        rollout_ids=tuple(sequence.rollout_id for sequence in sequences),
        old_logprobs_ST=_where_known(sequences, lambda row: row.old_logprobs),
        reference_logprobs_ST=_where_known(sequences, lambda row: row.reference_logprobs),
        teacher_logprobs_ST=_where_known(sequences, lambda row: row.teacher_logprobs),
    )


def _by_token(values: Sequence[float], otherwise: float, sequence: TokenSequence) -> Tensor:
    """The values, or `otherwise` at each sampled token where there are none."""
    return torch.tensor(values or (otherwise,) * sequence.num_loss_tokens)


def _where_known(
    sequences: Sequence[TokenSequence], of: Callable[[TokenSequence], Sequence[float]]
) -> Tensor | None:
    if not any(of(row) for row in sequences):
        return None
    return _pad(
        [torch.tensor(of(row) or (nan,) * row.num_loss_tokens, dtype=torch.float64) for row in sequences]
    )


def _pad(rows: Sequence[Tensor]) -> Tensor:
    return torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True)
