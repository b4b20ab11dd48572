"""Trees -> attention that computes only what the tree lets through, forwards and backwards.

A dense mask over the nodes of a group is mostly False: each branch sees its own path only. Here the nodes are
cut into runs, chains in which every node is the child of the one before; a run attends to its ancestors and
itself, so that the work is that of separate sequences while the linear layers still see each common prefix
once. Runs of like size go through together.

Plain functions without autograd: `learners.local.llama` calls them inside its own backward.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

# Longer runs are cut: a piece of queries has one score matrix, and causal waste grows with the piece.
_MAX_RUN = 128
# Runs join a bucket while padding keeps its score matrix below this multiple of what the runs need by
# themselves,
_MAX_WASTE = 1.3
# and below this many scores a head.
_MAX_SCORES = 400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """R runs padded to Q queries and K keys.

    Shapes:
        query_index_RQ: (R * Q,) node of each query, N for padding. query_read_RQ: the same, 0 for padding.
        key_index_RK: (R * K,) node of each key, 0 for padding. bias_RQK: (R, 1, 1, Q, K) 0 or -inf; a padded
        query sees key 0, so that its softmax is finite. padding: where in R * Q the padded queries are.
    """

    runs: int
    query_index_RQ: Tensor
    query_read_RQ: Tensor
    key_index_RK: Tensor
    bias_RQK: Tensor
    padding: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class TreePlan:
    """How the attention of some trees is cut; made once, used by every layer."""

    num_nodes: int
    buckets: tuple[Bucket, ...]


def plan_attention(subtree_end_N: Tensor, dtype: torch.dtype) -> TreePlan:
    """Cut trees into buckets of runs. `dtype` is that of the scores' softmax."""
    subtree_end = subtree_end_N.numpy()
    runs = sorted(_runs(subtree_end), key=lambda run: (len(run[0]), len(run[1])), reverse=True)
    buckets: list[Bucket] = []
    start = 0
    while start < len(runs):
        width, keys = len(runs[start][0]), len(runs[start][1])
        needed = width * keys
        stop = start + 1
        while stop < len(runs):
            wider = max(keys, len(runs[stop][1]))
            area = (stop + 1 - start) * width * wider
            needed += len(runs[stop][0]) * len(runs[stop][1])
            if area > _MAX_WASTE * needed or area > _MAX_SCORES:
                break
            keys = wider
            stop += 1
        buckets.append(_bucket(runs[start:stop], width, keys, len(subtree_end), dtype))
        start = stop
    return TreePlan(num_nodes=len(subtree_end), buckets=tuple(buckets))


def _runs(subtree_end: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Each run as (its nodes, its ancestors and nodes)."""
    cuts = [0]
    for node in range(1, len(subtree_end)):
        is_child = subtree_end[node - 1] > node
        if not is_child or node - cuts[-1] >= _MAX_RUN:
            cuts.append(node)
    runs: list[tuple[np.ndarray, np.ndarray]] = []
    for start, stop in zip(cuts, [*cuts[1:], len(subtree_end)], strict=True):
        nodes = np.arange(start, stop)
        ancestors = np.flatnonzero(subtree_end[:start] > start)
        runs.append((nodes, np.concatenate([ancestors, nodes])))
    return runs


def _bucket(
    runs: list[tuple[np.ndarray, np.ndarray]], width: int, keys: int, num_nodes: int, dtype: torch.dtype
) -> Bucket:
    query_index = np.full((len(runs), width), num_nodes, dtype=np.int64)
    key_index = np.zeros((len(runs), keys), dtype=np.int64)
    visible = np.zeros((len(runs), width, keys), dtype=bool)
    visible[:, :, 0] = True
    for row, (nodes, path) in enumerate(runs):
        query_index[row, : len(nodes)] = nodes
        key_index[row, : len(path)] = path
        depth = len(path) - len(nodes)
        visible[row, : len(nodes), :depth] = True
        visible[row, : len(nodes), depth : len(path)] = np.tril(np.ones((len(nodes), len(nodes)), dtype=bool))
    query_index = query_index.reshape(-1)
    bias = torch.zeros(visible.shape, dtype=dtype).masked_fill_(~torch.from_numpy(visible), float("-inf"))
    return Bucket(
        runs=len(runs),
        query_index_RQ=torch.from_numpy(query_index),
        query_read_RQ=torch.from_numpy(np.where(query_index == num_nodes, 0, query_index)),
        key_index_RK=torch.from_numpy(key_index.reshape(-1)),
        bias_RQK=bias[:, None, None],
        padding=torch.from_numpy(np.flatnonzero(query_index == num_nodes)),
    )


def attend(queries_N: Tensor, keys_N: Tensor, values_N: Tensor, plan: TreePlan, scale: float) -> Tensor:
    """Attention output of every node.

    Shapes:
        queries_N: (N, heads, D). keys_N, values_N: (N, key heads, D), the heads a multiple of the key heads.
    Returns:
        (N, heads, D).
    """
    output = torch.empty(plan.num_nodes + 1, *queries_N.shape[1:], dtype=queries_N.dtype)
    for bucket in plan.buckets:
        queries = _gather_queries(queries_N, bucket, keys_N.shape[1])
        keys, values = _gather_keys(keys_N, bucket), _gather_keys(values_N, bucket)
        weights = _weights(queries, keys, bucket, scale)
        output.index_copy_(0, bucket.query_index_RQ, _ungather(torch.bmm(weights, values), bucket, queries_N))
    return output[:-1]


def attend_backward(
    grad_N: Tensor,
    queries_N: Tensor,
    keys_N: Tensor,
    values_N: Tensor,
    output_N: Tensor,
    plan: TreePlan,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of queries, keys and values; the attention weights are computed again, not kept.

    Shapes:
        As in `attend`; grad_N is that of output_N.
    """
    key_heads = keys_N.shape[1]
    grad_queries = torch.empty(plan.num_nodes + 1, *queries_N.shape[1:], dtype=queries_N.dtype)
    # A node's key collects from many runs: summed in the softmax's dtype.
    exact = plan.buckets[0].bias_RQK.dtype
    grad_keys, grad_values = torch.zeros_like(keys_N, dtype=exact), torch.zeros_like(values_N, dtype=exact)
    # softmax backward needs the sum over keys of weight x its gradient, which is output . grad.
    dots_N = (grad_N.to(exact) * output_N).sum(-1, keepdim=True)
    for bucket in plan.buckets:
        queries = _gather_queries(queries_N, bucket, key_heads)
        keys, values = _gather_keys(keys_N, bucket), _gather_keys(values_N, bucket)
        grad = _gather_queries(grad_N, bucket, key_heads, zero_padding=True)
        dots = _gather_queries(dots_N, bucket, key_heads, zero_padding=True)
        weights = _weights(queries, keys, bucket, scale)
        _scatter_keys(grad_values, torch.bmm(weights.transpose(1, 2), grad), bucket)
        grad_scores = (
            torch.bmm(grad, values.transpose(1, 2)).to(dots.dtype).sub_(dots).mul_(weights).mul_(scale)
        )
        grad_scores = grad_scores.to(queries.dtype)
        grad_queries.index_copy_(
            0, bucket.query_index_RQ, _ungather(torch.bmm(grad_scores, keys), bucket, queries_N)
        )
        _scatter_keys(grad_keys, torch.bmm(grad_scores.transpose(1, 2), queries), bucket)
    return grad_queries[:-1], grad_keys.to(keys_N.dtype), grad_values.to(values_N.dtype)


def _weights(queries: Tensor, keys: Tensor, bucket: Bucket, scale: float) -> Tensor:
    """(R * key heads, heads a key head * Q, K) attention weights."""
    shape = (bucket.runs, -1, queries.shape[1] // bucket.bias_RQK.shape[3], *bucket.bias_RQK.shape[3:])
    scores = torch.bmm(queries, keys.transpose(1, 2)).to(bucket.bias_RQK.dtype).mul_(scale)
    scores.view(shape).add_(bucket.bias_RQK)
    return torch.softmax(scores, dim=-1).to(queries.dtype)


def _gather_queries(
    values_N: Tensor, bucket: Bucket, key_heads: int, *, zero_padding: bool = False
) -> Tensor:
    """(N, heads, D) -> (R * key heads, heads a key head * Q, D): query heads of one key head side by side."""
    _, heads, width = values_N.shape
    picked = values_N.index_select(0, bucket.query_read_RQ)
    if zero_padding and len(bucket.padding):
        picked[bucket.padding] = 0.0
    grouped = picked.view(bucket.runs, -1, key_heads, heads // key_heads, width)
    return grouped.permute(0, 2, 3, 1, 4).reshape(bucket.runs * key_heads, -1, width)


def _ungather(values: Tensor, bucket: Bucket, like_N: Tensor) -> Tensor:
    """The inverse shape change of `_gather_queries`: (R * Q, heads, D)."""
    _, heads, width = like_N.shape
    key_heads = values.shape[0] // bucket.runs
    grouped = values.view(bucket.runs, key_heads, heads // key_heads, -1, width)
    return grouped.permute(0, 3, 1, 2, 4).reshape(-1, heads, width)


def _gather_keys(values_N: Tensor, bucket: Bucket) -> Tensor:
    """(N, key heads, D) -> (R * key heads, K, D)."""
    _, heads, width = values_N.shape
    picked = values_N.index_select(0, bucket.key_index_RK).view(bucket.runs, -1, heads, width)
    return picked.transpose(1, 2).reshape(bucket.runs * heads, -1, width)


def _scatter_keys(target_N: Tensor, values: Tensor, bucket: Bucket) -> None:
    """Add what `_gather_keys` spread back onto the nodes."""
    _, heads, width = target_N.shape
    rows = values.view(bucket.runs, heads, -1, width).transpose(1, 2).reshape(-1, heads, width)
    target_N.index_add_(0, bucket.key_index_RK, rows.to(target_N.dtype))
