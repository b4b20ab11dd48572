"""Packs -> a teacher's logprobs of them: on-policy distillation.

The student samples; at each of its tokens the teacher says how likely it finds that token in that context.
Its logprob minus the student's is the token's advantage: the policy gradient of the reverse KL from student
to teacher, token by token. `rl.update` asks the teacher, `objective` takes the difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from strop.config.job import HyperParameters
from strop.errors import ModelError
from strop.learners.local.forward import Collected, check_trainable, tree_logprobs
from strop.learners.local.packed_trees import MAX_NODES, PackedTrees, pack_trees
from strop.learners.precision import compute_in, working_dtype
from strop.learners.weights_file import sha256_of
from strop.locales import msg
from strop.schema.batch import ForwardResult, Pack


class Teacher:
    """A frozen model of the student's tokenizer. `model` is taken over; `sha256` is that of its weights.

    Raises:
        ModelError: another vocabulary, a context shorter than `max_length`, or a model that trees cannot be
            run through.
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any,
        hyper_parameters: HyperParameters,
        *,
        student_tokenizer: Any,
        dtype: torch.dtype | None = None,
    ) -> None:
        _check_tokenizer(tokenizer, student_tokenizer)
        context = getattr(model.config, "max_position_embeddings", None)
        if context is not None and context < hyper_parameters.max_length:
            raise ModelError(
                msg(
                    "the teacher reads {context} tokens, max_length is {max_length}",
                    context=context,
                    max_length=hyper_parameters.max_length,
                ),
                fix=msg(
                    "set max_length to at most {context}, or take a teacher with a longer context",
                    context=context,
                ),
            )
        check_trainable(model)
        self.sha256 = sha256_of(dict(model.named_parameters()))
        chosen = dtype or working_dtype(hyper_parameters.train_dtype)[0]
        compute_in(model, chosen)
        self._model = model.eval().requires_grad_(False)
        self._vocabulary: int = model.get_input_embeddings().weight.shape[0]  # pyright: ignore[reportCallIssue]

    @torch.no_grad()
    def score(self, packs: Sequence[Pack]) -> ForwardResult:
        """The teacher's logprob of each sampled token, at the temperature of its sampling; NaN where it has
        none."""
        found = Collected()
        for trees in pack_trees(packs, max_nodes=MAX_NODES):
            logprobs_E, known_E = self.logprobs(trees)
            found.add_rows(trees, torch.where(known_E, logprobs_E, torch.nan)[trees.sequence_edges_ST])
        return found.over(packs)

    @torch.no_grad()
    def logprobs(self, trees: PackedTrees) -> tuple[Tensor, Tensor]:
        """(E,) the teacher's logprob of each sampled token, and (E,) whether it has one.

        A student's output layer may be padded beyond the teacher's: a token there, and whatever follows it,
        has none.
        """
        last = self._vocabulary - 1
        strange_N = torch.zeros(trees.num_nodes, dtype=torch.bool)
        for node in (trees.token_ids_N > last).nonzero().flatten().tolist():
            strange_N[node : int(trees.subtree_end_N[node])] = True
        within = replace(
            trees,
            token_ids_N=trees.token_ids_N.clamp(max=last),
            edge_tokens_E=trees.edge_tokens_E.clamp(max=last),
        )
        logprobs_E, _ = tree_logprobs(self._model, within)
        known_E = ~strange_N[trees.edge_nodes_E] & (trees.edge_tokens_E <= last) & logprobs_E.isfinite()
        return logprobs_E, known_E


def _check_tokenizer(teacher: Any, student: Any) -> None:
    """Ids must mean the same to both."""
    theirs, ours = teacher.get_vocab(), student.get_vocab()
    if theirs == ours:
        return
    differing = next(
        (token for token in sorted(ours, key=ours.__getitem__) if theirs.get(token) != ours[token]), None
    )
    detail = (
        f"{differing!r} is token {ours[differing]} to the student and {theirs.get(differing)} to the teacher"
        if differing is not None
        else f"the teacher knows {len(theirs)} tokens, the student {len(ours)}"
    )
    raise ModelError(
        msg("the teacher has another tokenizer: {detail}", detail=detail),
        fix=msg("take a teacher of the student's model family"),
    )
