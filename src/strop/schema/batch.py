"""What the learner takes: sequences, packed so that nothing common is computed twice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequence:
    """One trainable token sequence of a rollout.

    Shapes:
        token_ids, loss_mask, behaviour_logprobs, temperatures: (T,). The mask is True exactly on tokens the
        policy sampled; the other two hold 0.0 and 1.0 elsewhere. The first token is never sampled.
        token_advantages, reference_logprobs: one a sampled token, in order, or empty: then the advantage is
        `advantage` everywhere, and no term needs the reference.
        returns, old_values: likewise; old values are empty without a critic.
        old_logprobs: those of the step's start; empty where this very pass computes them, ratio 1.
        teacher_logprobs: NaN where the teacher does not know the token; with them, a token's advantage is the
        teacher's logprob minus the old one.
        kept: what rejection leaves of the sampled tokens; empty for all of them.
    Units:
        reward and advantage are the rollout's. `weight` is this sequence's share of the rollout's sampled
        tokens: a rollout weighs the same however many sequences it gave.
    """

    rollout_id: str
    group_id: str
    token_ids: tuple[int, ...]
    loss_mask: tuple[bool, ...]
    behaviour_logprobs: tuple[float, ...]
    temperatures: tuple[float, ...]
    reward: float = 0.0
    advantage: float = 0.0
    weight: float = 1.0
    token_advantages: tuple[float, ...] = ()
    reference_logprobs: tuple[float, ...] = ()
    returns: tuple[float, ...] = ()
    old_values: tuple[float, ...] = ()
    old_logprobs: tuple[float, ...] = ()
    teacher_logprobs: tuple[float, ...] = ()
    kept: tuple[bool, ...] = ()

    @property
    def num_loss_tokens(self) -> int:
        return sum(self.loss_mask)

    @property
    def sampled_behaviour(self) -> tuple[float, ...]:
        """The behaviour logprobs of the sampled tokens alone, in order."""
        pairs = zip(self.loss_mask, self.behaviour_logprobs, strict=True)
        return tuple(value for sampled, value in pairs if sampled)

    @property
    def has_advantage(self) -> bool:
        """Whether the policy loss has a gradient here."""
        return any(self.token_advantages) if self.token_advantages else self.advantage != 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """Sequences of one group as a prefix tree in depth-first order: each common prefix stands once.

    Node j is an ancestor of node i, or i itself, exactly when `j <= i < subtree_end[j]`: that is the whole
    attention mask. Identical rollouts share their nodes and edges.

    Shapes:
        token_ids, positions, subtree_end: (N,) nodes. `positions` is the depth, the root's is 0.
        edge_nodes, edge_tokens, edge_temperatures: (E,) each sampled token once: the node that predicts it,
        the token, the temperature it was sampled at.
        sequence_edges: one tuple a sequence: its sampled tokens, in order, as indices into the edges.
        pairs: (preferred, rejected) as indices into the sequences; preference learning only.
    """

    token_ids: tuple[int, ...]
    positions: tuple[int, ...]
    subtree_end: tuple[int, ...]
    edge_nodes: tuple[int, ...]
    edge_tokens: tuple[int, ...]
    edge_temperatures: tuple[float, ...]
    sequence_edges: tuple[tuple[int, ...], ...]
    sequences: tuple[Sequence, ...]
    pairs: tuple[tuple[int, int], ...] = ()

    @property
    def has_advantage(self) -> bool:
        """Whether the policy loss has a gradient anywhere in it."""
        return any(sequence.has_advantage for sequence in self.sequences)


@dataclass(frozen=True, slots=True, kw_only=True)
class MiniBatch:
    """The packs of one optimizer update, with the normalisers of the whole update.

    `num_rollouts` and `num_loss_tokens` are counted over all packs before any backward pass, so that no loss
    depends on how the packs are cut or spread.
    """

    packs: tuple[Pack, ...]
    num_rollouts: int
    num_loss_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LossNormalizer:
    """The denominators of a loss, counted over all packs of an update: its parts add up to the whole, however
    they are cut or spread over processes.

    Units:
        num_tokens: taught tokens; learning from rows, weighted ones. num_rollouts: rollouts that kept a
        token. num_pairs: compared answers.
    """

    num_tokens: float
    num_rollouts: int = 0
    num_pairs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardResult:
    """What one forward pass over packs found.

    Shapes:
        logprobs: one row a sequence, in the order of the packs: its sampled tokens' under the weights of now,
        or, of a critic, the values of their contexts.
    Units:
        entropy: the sum over the tokens that count. metrics: under their registry names, parts of the values
        of the whole update, which add up; `tokens` and `drift_tokens` count what some of them are sums over.
    """

    logprobs: tuple[tuple[float, ...], ...] = ()
    entropy: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimStep:
    """Whether the weights were moved, and the global norm of the gradient before clipping. A norm that is not
    finite moves nothing."""

    applied: bool
    grad_norm: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What the learner knows of one sequence before the update: one number a sampled token, in order.

    `values` are the critic's, `reference_logprobs` the frozen reference's; empty where there is none.
    """

    old_logprobs: tuple[float, ...]
    reference_logprobs: tuple[float, ...] = ()
    values: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """All that one step trains on, in the order of its optimizer updates."""

    step: int
    mini_batches: tuple[MiniBatch, ...]

    @property
    def num_sequences(self) -> int:
        return sum(len(pack.sequences) for mini in self.mini_batches for pack in mini.packs)
