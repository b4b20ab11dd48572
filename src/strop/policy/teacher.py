"""Forest + old logprobs -> advantages from a teacher: on-policy distillation.

The student samples; at each of its tokens the teacher says how likely it finds that token in that context.
Its logprob minus the student's is the token's advantage: the policy gradient of the reverse KL from student
to teacher, token by token. `policy.update` asks the teacher instead of taking advantages from rewards.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from strop.errors import ModelError
from strop.policy.forest import Forest
from strop.policy.forward import check_trainable, forest_logprobs
from strop.policy.precision import compute_in, working_dtype
from strop.policy.weights_file import sha256_of
from strop.schema.config import HyperParameters


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
                f"the teacher reads {context} tokens, max_length is {hyper_parameters.max_length}",
                fix=f"set max_length to at most {context}, or take a teacher with a longer context",
            )
        check_trainable(model)
        self.sha256 = sha256_of(dict(model.named_parameters()))
        chosen = dtype or working_dtype(hyper_parameters.train_dtype)[0]
        compute_in(model, chosen)
        self._model = model.eval().requires_grad_(False)
        self._vocabulary: int = model.get_input_embeddings().weight.shape[0]  # pyright: ignore[reportCallIssue]

    @torch.no_grad()
    def judged(
        self, forest: Forest, old_ST: Tensor, mask_ST: Tensor, *, num_tokens: int
    ) -> tuple[Forest, dict[str, float]]:
        """The forest with advantages `teacher - old logprob` at each token, 0 where the teacher knows none.

        Both logprobs are at the temperature of the sampling.

        Shapes:
            old_ST: the student's at the step's start. mask_ST: the tokens that count.
        Units:
            num_tokens are those of the whole update: its forests' metrics add up.
        Source:
            On-policy distillation by policy gradient, discount 0: arXiv:2306.13649, and
            https://thinkingmachines.ai/blog/on-policy-distillation/.
        """
        teacher_E, known_E = self.logprobs(forest)
        rows = forest.sequence_edges_ST
        known_ST = known_E[rows] & mask_ST & old_ST.isfinite()
        advantages_ST = torch.where(known_ST, teacher_E[rows] - old_ST, 0.0)
        valid = float(known_ST.sum()) / max(num_tokens, 1)
        missing = float((mask_ST & ~known_ST).sum()) / max(num_tokens, 1)
        return replace(forest, advantages_ST=advantages_ST), {
            "actor/distillation/loss": -float(advantages_ST.sum()) / max(num_tokens, 1),
            "trace/distillation/valid_token_rate": valid,
            "trace/distillation/missing_token_rate": missing,
        }

    @torch.no_grad()
    def logprobs(self, forest: Forest) -> tuple[Tensor, Tensor]:
        """(E,) the teacher's logprob of each sampled token, and (E,) whether it has one.

        A student's output layer may be padded beyond the teacher's: a token there, and whatever follows it,
        has none.
        """
        last = self._vocabulary - 1
        strange_N = torch.zeros(forest.num_nodes, dtype=torch.bool)
        for node in (forest.token_ids_N > last).nonzero().flatten().tolist():
            strange_N[node : int(forest.subtree_end_N[node])] = True
        within = replace(
            forest,
            token_ids_N=forest.token_ids_N.clamp(max=last),
            edge_tokens_E=forest.edge_tokens_E.clamp(max=last),
        )
        logprobs_E, _ = forest_logprobs(self._model, within)
        known_E = ~strange_N[forest.edge_nodes_E] & (forest.edge_tokens_E <= last) & logprobs_E.isfinite()
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
        f"the teacher has another tokenizer: {detail}",
        fix="take a teacher of the student's model family",
    )
