"""Packs cut and joined into micro-batches."""

import torch

from fakes.packs import random_pack, sequence
from strop.learners.local.packed_trees import pack_trees
from strop.rl.batch import pack

PROMPT, LEFT, RIGHT = [10, 11], [20, 21, 22], [20, 31]


def small_pack():
    return pack(
        [
            sequence(PROMPT, RIGHT, advantage=-1.0, weight=0.5, behaviour=[-0.1, -0.2]),
            sequence(PROMPT, LEFT, advantage=1.0, behaviour=[-0.3, -0.4, -0.5]),
        ]
    )


def test_a_micro_batch_keeps_only_nodes_that_predict_something():
    [trees] = pack_trees([small_pack()], max_nodes=100)
    assert trees.token_ids_N.tolist() == [10, 11, 20, 21]  # 22 and 31 end their sequences
    assert trees.positions_N.tolist() == [0, 1, 2, 3]
    assert trees.subtree_end_N.tolist() == [4, 4, 4, 4]


def test_rows_name_the_edges_of_their_tokens_in_order():
    [trees] = pack_trees([small_pack()], max_nodes=100)
    tokens = trees.edge_tokens_E[trees.sequence_edges_ST]
    assert trees.mask_ST.tolist() == [[True, True, False], [True, True, True]]
    assert tokens[0, :2].tolist() == RIGHT
    assert tokens[1].tolist() == LEFT
    nodes = trees.edge_nodes_E[trees.sequence_edges_ST]
    assert nodes[0, :2].tolist() == [1, 2]
    assert nodes[1].tolist() == [1, 2, 3]
    torch.testing.assert_close(
        trees.behaviour_logprobs_ST, torch.tensor([[-0.1, -0.2, 0], [-0.3, -0.4, -0.5]])
    )
    assert trees.advantages_ST.tolist() == [[-1.0, -1.0, 0.0], [1.0, 1.0, 1.0]]
    assert trees.weights_S.tolist() == [0.5, 1.0]


def test_trees_side_by_side_do_not_see_each_other():
    [trees] = pack_trees([small_pack(), small_pack()], max_nodes=8)
    mask = trees.attention_mask()[0, 0]
    assert trees.num_nodes == 8
    assert not mask[4:, :4].any()
    assert torch.equal(mask[4:, 4:], torch.ones(4, 4).tril().bool())
    # Four sampled tokens a tree: 20 after the prompt, 21 and 31 after 20, 22 after 21.
    assert sorted(trees.edge_nodes_E.tolist()) == [1, 2, 2, 3, 5, 6, 6, 7]


def test_branches_see_their_ancestors_and_not_each_other():
    packed = pack([sequence([1, 2], [3, 4, 9]), sequence([1, 2], [5, 6, 9])])
    [trees] = pack_trees([packed], max_nodes=100)
    assert trees.token_ids_N.tolist() == [1, 2, 3, 4, 5, 6]
    assert trees.attention_mask()[0, 0].int().tolist() == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [1, 1, 1, 1, 0, 0],
        [1, 1, 0, 0, 1, 0],
        [1, 1, 0, 0, 1, 1],
    ]


def test_packs_are_joined_up_to_the_bound_and_no_further():
    packs = [random_pack(seed) for seed in range(4)]
    sizes = [pack_trees([one], max_nodes=1000)[0].num_nodes for one in packs]
    micro_batches = pack_trees(packs, max_nodes=sizes[0] + sizes[1])
    assert micro_batches[0].num_nodes == sizes[0] + sizes[1]
    assert sum(trees.num_nodes for trees in micro_batches) == sum(sizes)


def test_a_pack_beyond_the_bound_is_split_by_its_sequences():
    whole = random_pack(0)
    micro_batches = pack_trees([whole], max_nodes=10)
    assert len(micro_batches) > 1
    assert sum(len(trees.mask_ST) for trees in micro_batches) == 3
    rows = [
        trees.edge_tokens_E[trees.sequence_edges_ST[row][trees.mask_ST[row]]].tolist()
        for trees in micro_batches
        for row in range(len(trees.mask_ST))
    ]
    assert rows == [[whole.edge_tokens[edge] for edge in edges] for edges in whole.sequence_edges]


def test_one_sequence_longer_than_the_bound_is_not_cut():
    [trees] = pack_trees([pack([sequence(range(3, 13), [20, 21])])], max_nodes=4)
    assert trees.num_nodes == 11


def test_sequences_without_a_sampled_token_are_left_out():
    assert pack_trees([pack([sequence([1, 2, 3], [])])], max_nodes=10) == []
