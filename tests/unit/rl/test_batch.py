"""Groups and advantages -> packed mini-batches, on trees worked by hand and on random conversations."""

from __future__ import annotations

from collections.abc import Sequence as ListLike

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strop.rl.batch import build_batch, pack
from strop.schema.batch import Pack, Sequence
from strop.schema.function import TaskStatus
from strop.schema.sample import Sample
from strop.schema.sampling import FinishReason
from strop.schema.trajectory import Group, Trajectory, Turn


def sequence(
    ids: ListLike[int], sampled: ListLike[int], *, temperature: float = 1.0, name: str = "r"
) -> Sequence:
    """`sampled` are positions that carry loss."""
    return Sequence(
        rollout_id=name,
        group_id="g",
        token_ids=tuple(ids),
        loss_mask=tuple(at in sampled for at in range(len(ids))),
        behaviour_logprobs=tuple(-0.5 if at in sampled else 0.0 for at in range(len(ids))),
        temperatures=tuple(temperature if at in sampled else 1.0 for at in range(len(ids))),
    )


def rollout(
    name: str, *answers: tuple[int, ...], reward: float | None = 1.0, prompt: tuple[int, ...] = (1, 2)
) -> Trajectory:
    turns: list[Turn] = []
    for index, answer in enumerate(answers):
        turns.append(
            Turn(
                index=index,
                prompt_ids=prompt,
                completion_ids=answer,
                behaviour_logprobs=(-0.25,) * len(answer),
                policy_versions=(0,) * len(answer),
                temperature=1.0,
                finish_reason=FinishReason.STOP,
                messages=(),
                response={},
                latency_s=0.0,
            )
        )
        prompt = (*prompt, *answer, 99)
    failed = reward is None
    return Trajectory(
        rollout_id=name,
        attempt_id="1",
        group_id="g",
        sample_id="s",
        attempts=1,
        status=TaskStatus.FAILED if failed else TaskStatus.SUCCESS,
        turns=tuple(turns),
        reward=reward,
    )


def group(name: str, *trajectories: Trajectory) -> Group:
    return Group(group_id=name, sample=Sample(sample_id="s", row=1, messages=[]), trajectories=trajectories)


def unpack(packed: Pack) -> list[tuple[tuple[int, ...], tuple[bool, ...], tuple[float, ...]]]:
    """Ids, loss mask and temperatures of each sequence, from the tree and its edges alone."""
    restored: list[tuple[tuple[int, ...], tuple[bool, ...], tuple[float, ...]]] = []
    for edges in packed.sequence_edges:
        ids: list[int] = []
        last = edges[-1]
        for node in ancestors(packed, packed.edge_nodes[last]):
            ids.append(packed.token_ids[node])
        ids.append(packed.edge_tokens[last])
        mask, temperatures = [False] * len(ids), [1.0] * len(ids)
        for edge in edges:
            at = packed.positions[packed.edge_nodes[edge]] + 1
            assert ids[at] == packed.edge_tokens[edge]
            mask[at], temperatures[at] = True, packed.edge_temperatures[edge]
        restored.append((tuple(ids), tuple(mask), tuple(temperatures)))
    return restored


def ancestors(packed: Pack, node: int) -> list[int]:
    """What the attention mask lets `node` see, itself included."""
    return [other for other in range(node + 1) if other <= node < packed.subtree_end[other]]


def test_a_pack_is_the_depth_first_prefix_tree_of_its_sequences() -> None:
    packed = pack(
        [sequence([1, 2, 5, 6], [2, 3]), sequence([1, 2, 3], [2]), sequence([1, 2, 5, 7, 8], [2, 3, 4])]
    )
    assert packed.token_ids == (1, 2, 3, 5, 6, 7, 8)
    assert packed.positions == (0, 1, 2, 2, 3, 3, 4)
    assert packed.subtree_end == (7, 7, 3, 7, 5, 7, 7)
    assert packed.edge_nodes == (1, 1, 3, 3, 5)
    assert packed.edge_tokens == (3, 5, 6, 7, 8)
    assert packed.sequence_edges == ((1, 2), (0,), (1, 3, 4))


def test_identical_rollouts_share_every_node_and_edge() -> None:
    one = pack([sequence([1, 2, 3], [1, 2])])
    four = pack([sequence([1, 2, 3], [1, 2], name=f"r{index}") for index in range(4)])
    assert four.token_ids == one.token_ids == (1, 2, 3)
    assert four.edge_nodes == one.edge_nodes == (0, 1)
    assert four.sequence_edges == ((0, 1),) * 4


def test_the_same_token_sampled_at_two_temperatures_is_two_edges_of_one_node() -> None:
    packed = pack([sequence([1, 2], [1]), sequence([1, 2], [1], temperature=0.5)])
    assert packed.token_ids == (1, 2)
    assert packed.edge_nodes == (0, 0)
    assert packed.edge_temperatures == (1.0, 0.5)
    assert packed.sequence_edges == ((0,), (1,))


def test_different_first_tokens_give_several_roots_that_do_not_see_each_other() -> None:
    packed = pack([sequence([4, 5], [1]), sequence([1, 2], [1])])
    assert packed.positions == (0, 1, 0, 1)
    assert packed.subtree_end == (2, 2, 4, 4)
    assert ancestors(packed, 3) == [2, 3]


def test_a_prefix_that_one_rollout_was_given_and_another_sampled_is_one_node_with_one_edge() -> None:
    packed = pack([sequence([1, 2, 3], [2]), sequence([1, 2, 3], [1, 2])])
    assert packed.token_ids == (1, 2, 3)
    assert packed.sequence_edges == ((0,), (1, 0))


def test_the_tree_does_not_depend_on_the_order_of_the_rollouts() -> None:
    sequences = [sequence([1, 2, 5], [2]), sequence([1, 2, 3], [2]), sequence([1, 4], [1])]
    one, other = pack(sequences), pack(sequences[::-1])
    assert one.token_ids == other.token_ids
    assert one.subtree_end == other.subtree_end
    assert one.sequence_edges == other.sequence_edges[::-1]


@given(
    st.lists(
        st.lists(
            st.tuples(st.integers(0, 2), st.booleans(), st.sampled_from([0.5, 1.0])), min_size=1, max_size=8
        ),
        min_size=1,
        max_size=8,
    )
)
def test_unpacking_gives_back_the_sequences_exactly(drawn: list[list[tuple[int, bool, float]]]) -> None:
    sequences: list[Sequence] = []
    for tokens in drawn:
        ids = (7, *(token for token, _, _ in tokens))
        mask = (
            False,
            *(sampled for _, sampled, _ in tokens[:-1]),
            True,
        )  # a sequence ends with a sampled token
        temperatures = (1.0, *(temperature for _, _, temperature in tokens))
        sequences.append(
            Sequence(
                rollout_id="r",
                group_id="g",
                token_ids=ids,
                loss_mask=mask,
                behaviour_logprobs=tuple(-0.5 if sampled else 0.0 for sampled in mask),
                temperatures=tuple(
                    temperature if sampled else 1.0
                    for temperature, sampled in zip(temperatures, mask, strict=True)
                ),
            )
        )
    packed = pack(sequences)
    assert unpack(packed) == [(item.token_ids, item.loss_mask, item.temperatures) for item in sequences]
    assert packed.sequences == tuple(sequences)
    prefixes = {item.token_ids[:length] for item in sequences for length in range(1, len(item.token_ids) + 1)}
    assert len(packed.token_ids) == len(prefixes)
    for node, depth in enumerate(packed.positions):
        assert len(ancestors(packed, node)) == depth + 1
    assert len(set(zip(packed.edge_nodes, packed.edge_tokens, packed.edge_temperatures, strict=True))) == len(
        packed.edge_nodes
    )


def test_mini_batches_are_cut_by_groups_in_order() -> None:
    groups = [
        group(f"g{number}", rollout(f"{number}a", (3,)), rollout(f"{number}b", (4,))) for number in range(5)
    ]
    advantages = {f"{number}{letter}": 0.0 for number in range(5) for letter in "ab"}
    batch = build_batch(7, groups, advantages, mini_batch_size=2)
    assert batch.step == 7
    assert [[item.sequences[0].group_id for item in mini.packs] for mini in batch.mini_batches] == [
        ["g0", "g1"],
        ["g2", "g3"],
        ["g4"],
    ]
    assert batch.num_sequences == 10


def test_a_group_with_fewer_than_two_survivors_gives_nothing_and_leaves_the_other_cuts_alone() -> None:
    groups = [
        group("lonely", rollout("a", (3,)), rollout("b", (4,), reward=None)),
        group("kept", rollout("c", (3,)), rollout("d", (4, 5)), rollout("e", (6,), reward=None)),
        group("empty", rollout("f", (3,), reward=None), rollout("g", (3,), reward=None)),
        group("silent", rollout("h"), rollout("i", (4,))),
    ]
    batch = build_batch(0, groups, {"c": 0.5, "d": -0.5}, mini_batch_size=2)
    assert len(batch.mini_batches) == 1
    (mini,) = batch.mini_batches
    assert [item.group_id for item in mini.packs[0].sequences] == ["kept", "kept"]
    assert mini.num_rollouts == 2
    assert mini.num_loss_tokens == 3


def test_a_group_of_equal_rewards_stays_in_packs_and_normalisers() -> None:
    groups = [
        group("equal", rollout("a", (3, 4)), rollout("b", (5, 6, 7))),
        group("mixed", rollout("c", (3,)), rollout("d", (4,))),
    ]
    batch = build_batch(0, groups, {"a": 0.0, "b": 0.0, "c": 1.0, "d": -1.0}, mini_batch_size=2)
    (mini,) = batch.mini_batches
    assert mini.num_rollouts == 4
    assert mini.num_loss_tokens == 7
    assert len(mini.packs) == 2


def test_each_sequence_carries_the_advantage_of_its_own_rollout() -> None:
    two_parts = Trajectory(
        rollout_id="a",
        attempt_id="1",
        group_id="g",
        sample_id="s",
        attempts=1,
        status=TaskStatus.SUCCESS,
        turns=(*rollout("a", (3,)).turns, *rollout("a", (4,), prompt=(8, 9)).turns),
        reward=1.0,
    )
    batch = build_batch(
        0, [group("g", two_parts, rollout("b", (5,)))], {"a": 2.0, "b": -2.0}, mini_batch_size=1
    )
    sequences = batch.mini_batches[0].packs[0].sequences
    assert [(item.rollout_id, item.advantage, item.weight) for item in sequences] == [
        ("a", 2.0, 0.5),
        ("a", 2.0, 0.5),
        ("b", -2.0, 1.0),
    ]


def test_a_survivor_without_an_advantage_is_named() -> None:
    groups = [group("g", rollout("a", (3,)), rollout("b", (4,)))]
    with pytest.raises(ValueError, match="rollout 'b' has no advantage"):
        build_batch(0, groups, {"a": 1.0}, mini_batch_size=1)


def test_two_rollouts_of_one_id_are_refused() -> None:
    groups = [group("g", rollout("a", (3,)), rollout("a", (4,)))]
    with pytest.raises(ValueError, match="rollout 'a' stands twice"):
        build_batch(0, groups, {"a": 1.0}, mini_batch_size=1)


def test_a_mini_batch_of_no_groups_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 group, found 0"):
        build_batch(0, [], {}, mini_batch_size=0)


@settings(max_examples=30)
@given(st.integers(1, 6))
def test_normalisers_of_all_mini_batches_add_up_to_the_same_totals(mini_batch_size: int) -> None:
    groups = [
        group(f"g{number}", rollout(f"{number}a", (3,) * (number + 1)), rollout(f"{number}b", (4,)))
        for number in range(6)
    ]
    advantages = {f"{number}{letter}": 0.0 for number in range(6) for letter in "ab"}
    batch = build_batch(0, groups, advantages, mini_batch_size=mini_batch_size)
    assert sum(mini.num_rollouts for mini in batch.mini_batches) == 12
    assert sum(mini.num_loss_tokens for mini in batch.mini_batches) == 21 + 6
