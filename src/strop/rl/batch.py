"""Groups + advantages -> Batch: the mini-batches of one step, each group packed as a prefix tree.

Pure Python: no torch, no I/O. `rl.loop` calls it between advantage and policy update.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from collections.abc import Sequence as ListLike
from dataclasses import replace

from strop.rl.sequences import sequences_of
from strop.schema.batch import Batch, MiniBatch, Pack, Sequence
from strop.schema.trajectory import Group, Trajectory


def build_batch(
    step: int,
    groups: ListLike[Group],
    advantages: Mapping[str, float] | None,
    *,
    mini_batch_size: int,
    masked: Set[str] = frozenset(),
    scored: bool = True,
) -> Batch:
    """Cut a step's groups into mini-batches, in order, and pack what survived.

    A lone survivor without an advantage had no baseline and gives nothing. A group of equal rewards gives no
    policy gradient but stays, in the packs and in the normalisers: leaving it out would make the others weigh
    more. A `masked` rollout is in neither. Without `advantages` no group needs a baseline: a critic or a
    teacher will judge each token. With `scored` False a rollout needs no reward either.

    Shapes:
        advantages: one scalar a survivor, by rollout id. masked: rollout ids.
    Units:
        mini_batch_size counts groups before any is dropped, so a step makes the same cuts whatever failed; a
        mini-batch left without a group is no update at all.
    Raises:
        ValueError: a survivor without an advantage, or two with one rollout id.
    """
    if mini_batch_size < 1:
        raise ValueError(f"mini_batch_size must be at least 1 group, found {mini_batch_size}")
    _check_identities(groups)
    cuts = [groups[start : start + mini_batch_size] for start in range(0, len(groups), mini_batch_size)]
    mini_batches = [_mini_batch(cut, advantages, masked, scored) for cut in cuts]
    return Batch(step=step, mini_batches=tuple(mini for mini in mini_batches if mini.packs))


def repeat(batch: Batch, passes: int) -> Batch:
    """The updates of a step, gone through `passes` times in the same order."""
    return replace(batch, mini_batches=batch.mini_batches * passes)


def pack(sequences: ListLike[Sequence]) -> Pack:
    """Lay the sequences of one group out as a prefix tree in depth-first order.

    Taken in the order of their ids, sequences meet each node of the tree exactly when depth-first order does:
    a node is new where a sequence leaves the path of the one before it. The tree is therefore the same
    whatever order the rollouts finished in. Sequences that start with different tokens give several roots.
    """
    token_ids: list[int] = []
    positions: list[int] = []
    subtree_end: list[int] = []
    edges: dict[tuple[int, int, float], int] = {}
    sequence_edges: list[tuple[int, ...]] = [()] * len(sequences)
    path: list[int] = []  # nodes of the sequence before, from its root
    before: tuple[int, ...] = ()
    for index in sorted(range(len(sequences)), key=lambda index: sequences[index].token_ids):
        sequence = sequences[index]
        shared = _shared_length(before, sequence.token_ids)
        before = sequence.token_ids
        for node in path[shared:]:
            subtree_end[node] = len(token_ids)
        del path[shared:]
        for token in sequence.token_ids[shared:]:
            positions.append(len(path))
            path.append(len(token_ids))
            token_ids.append(token)
            subtree_end.append(-1)
        sequence_edges[index] = tuple(
            edges.setdefault((path[at - 1], sequence.token_ids[at], sequence.temperatures[at]), len(edges))
            for at, sampled in enumerate(sequence.loss_mask)
            if sampled
        )
    for node in path:
        subtree_end[node] = len(token_ids)
    return Pack(
        token_ids=tuple(token_ids),
        positions=tuple(positions),
        subtree_end=tuple(subtree_end),
        edge_nodes=tuple(node for node, _, _ in edges),
        edge_tokens=tuple(token for _, token, _ in edges),
        edge_temperatures=tuple(temperature for _, _, temperature in edges),
        sequence_edges=tuple(sequence_edges),
        sequences=tuple(sequences),
    )


def _shared_length(left: ListLike[int], right: ListLike[int]) -> int:
    length = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        length += 1
    return length


def _mini_batch(
    groups: ListLike[Group], advantages: Mapping[str, float] | None, masked: Set[str], scored: bool
) -> MiniBatch:
    members = [(group.group_id, group.survivors if scored else group.answered) for group in groups]
    found = [
        _sequences(key, kept, advantages, masked) for key, kept in members if not _is_alone(kept, advantages)
    ]
    packs = tuple(pack(sequences) for sequences in found if sequences)
    sequences = [sequence for item in packs for sequence in item.sequences]
    return MiniBatch(
        packs=packs,
        num_rollouts=len({sequence.rollout_id for sequence in sequences}),
        num_loss_tokens=sum(sequence.num_loss_tokens for sequence in sequences),
    )


def _is_alone(members: ListLike[Trajectory], advantages: Mapping[str, float] | None) -> bool:
    """Whether a group has one survivor, to which nothing was compared."""
    return len(members) == 1 and advantages is not None and members[0].rollout_id not in advantages


def _sequences(
    group_id: str,
    members: ListLike[Trajectory],
    advantages: Mapping[str, float] | None,
    masked: Set[str],
) -> list[Sequence]:
    sequences: list[Sequence] = []
    for trajectory in members:
        if advantages is not None and trajectory.rollout_id not in advantages:
            raise ValueError(f"group {group_id!r}: rollout {trajectory.rollout_id!r} has no advantage")
        if trajectory.rollout_id in masked:
            continue
        advantage = advantages[trajectory.rollout_id] if advantages is not None else 0.0
        made = sequences_of(trajectory, group_id=group_id)
        sequences += [
            replace(sequence, reward=trajectory.reward or 0.0, advantage=advantage) for sequence in made
        ]
    return sequences


def _check_identities(groups: ListLike[Group]) -> None:
    seen: set[str] = set()
    for group in groups:
        for trajectory in group.survivors:
            if trajectory.rollout_id in seen:
                raise ValueError(
                    f"rollout {trajectory.rollout_id!r} stands twice in one step; ids must differ"
                )
            seen.add(trajectory.rollout_id)
