"""Checkout of a peer -> its loss and advantage functions, called as `bench.parity` needs them.

Their functions are cut out of their files and run with just what they refer to, so that no package of theirs
is imported.
"""

from __future__ import annotations

import ast
import logging
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

ALL = ("token-mean", "seq-mean-token-sum", "seq-mean-token-mean")


@dataclass(kw_only=True)
class Peer:
    """A system's functions behind one face; a fixture is `bench.parity.Fixture`."""

    name: str
    policy_loss: Callable[[str, Any, Tensor, float | None, str], Tensor]
    aggregations: Callable[[str], tuple[str, ...]]
    kl: Callable[[str, Tensor, Tensor], Tensor]
    kl_kinds: tuple[str, ...]
    advantages: dict[str, Callable[[Any], Tensor]] = field(default_factory=dict)
    value_loss: Callable[[Any, Tensor, float], Tensor] | None = None


def functions(path: Path, names: tuple[str, ...], **known: Any) -> SimpleNamespace:
    """Run the named function definitions of a file, without decorators and annotations."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = {
        node.name: node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in names
    }
    missing = sorted(set(names) - set(found))
    if missing:
        raise SystemExit(f"{path} has no {', '.join(missing)}: give a checkout that has them")
    body = ast.fix_missing_locations(_Bare().visit(ast.Module(body=list(found.values()), type_ignores=[])))
    scope = {"torch": torch, "np": np, "defaultdict": defaultdict, "logger_": logging.getLogger(), **known}
    exec(compile(body, str(path), "exec"), scope)
    return SimpleNamespace(**{name: scope[name] for name in names})


class _Bare(ast.NodeTransformer):
    """Takes away what needs packages of theirs: annotations, decorators, the logger that functions import."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.generic_visit(node)
        node.decorator_list, node.returns = [], None
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt:
        return ast.Pass()


class _Config(SimpleNamespace):
    def get(self, name: str, otherwise: Any = None) -> Any:
        return getattr(self, name, otherwise)


class _Other:
    """What a configuration is not."""


def verl(path: Path) -> Peer:
    """Of verl: `verl/trainer/ppo/core_algos.py`."""
    masked = functions(
        path / "verl/utils/torch_functional.py",
        ("masked_sum", "masked_mean", "masked_var", "masked_whiten", "clip_by_value"),
    )
    estimators = {
        "gae": "compute_gae_advantage_return",
        "grpo": "compute_grpo_outcome_advantage",
        "rloo": "compute_rloo_outcome_advantage",
        "reinforce_pp": "compute_reinforce_plus_plus_outcome_advantage",
        "reinforce_pp_baseline": "compute_reinforce_plus_plus_baseline_outcome_advantage",
    }
    losses = {
        "ppo": "compute_policy_loss_vanilla",
        "gspo": "compute_policy_loss_gspo",
        "cispo": "compute_policy_loss_cispo",
        "sapo": "compute_policy_loss_sapo",
    }
    theirs = functions(
        path / "verl/trainer/ppo/core_algos.py",
        (
            "agg_loss",
            "compute_value_loss",
            "kl_penalty",
            "kl_penalty_forward",
            *losses.values(),
            *estimators.values(),
        ),
        verl_F=masked,
        ActorConfig=_Config,
        AlgoConfig=_Other,
    )

    def policy_loss(kind: str, one: Any, policy: Tensor, dual: float | None, aggregation: str) -> Tensor:
        config = _Config(
            clip_ratio=0.2,
            clip_ratio_low=one.low,
            clip_ratio_high=one.high,
            clip_ratio_c=1e30 if dual is None else dual,
            tau_pos=1.0,
            tau_neg=1.05,
            global_batch_info={},
        )
        return getattr(theirs, losses[kind])(
            one.old, policy, one.advantages, one.holed_mask, loss_agg_mode=aggregation, config=config
        )[0]

    def estimate(kind: str, one: Any, **more: Any) -> Tensor:
        given = {"token_level_rewards": one.token_level_rewards, "response_mask": one.mask, **more}
        return getattr(theirs, estimators[kind])(**given)[0]

    def value_loss(one: Any, values: Tensor, clip: float) -> Tensor:
        return theirs.compute_value_loss(
            vpreds=values,
            returns=one.returns,
            values=one.values,
            response_mask=one.holed_mask,
            cliprange_value=clip,
        )[0]

    def knows(kind: str) -> bool:
        """Some versions name k3+ in their documentation and raise when they are asked for it."""
        try:
            theirs.kl_penalty(torch.zeros(1), torch.zeros(1), kind)
        except NotImplementedError:
            print(f"verl: this version has no KL estimator {kind!r}")
            return False
        return True

    return Peer(
        name="verl",
        policy_loss=policy_loss,
        # GSPO and SAPO are always a mean of means there.
        aggregations=lambda kind: ("seq-mean-token-mean",) if kind in ("gspo", "sapo") else ALL,
        kl=lambda kind, policy, reference: theirs.kl_penalty(policy, reference, kind),
        kl_kinds=tuple(kind for kind in ("k1", "abs", "k2", "k3", "k3+") if knows(kind)),
        value_loss=value_loss,
        advantages={
            "grpo": lambda one: estimate("grpo", one, index=one.groups),
            "dr_grpo": lambda one: estimate("grpo", one, index=one.groups, norm_adv_by_std_in_grpo=False),
            "rloo": lambda one: estimate("rloo", one, index=one.groups),
            "reinforce_pp_baseline": lambda one: estimate("reinforce_pp_baseline", one, index=one.groups),
            "reinforce_pp": lambda one: estimate("reinforce_pp", one, config=_Config(gamma=one.gamma)),
            "gae": lambda one: estimate("gae", one, values=one.values, gamma=one.gamma, lam=one.lam),
        },
    )


_REDUCTIONS = {
    "token-mean": "token_mean",
    "seq-mean-token-mean": "sequence_mean",
    "seq-mean-token-sum-norm": "seq_mean_token_sum_norm",
}


def skyrl(path: Path) -> Peer:
    """Of SkyRL: `skyrl/backends/skyrl_train/utils/ppo_utils.py`."""
    folder = path / "skyrl/backends/skyrl_train/utils"
    basic = functions(folder / "torch_utils.py", ("masked_mean", "safe_exp_delta"))
    losses = {
        "ppo": "ppo_policy_loss",
        "gspo": "gspo_policy_loss",
        "cispo": "compute_policy_loss_cispo",
        "sapo": "sapo_policy_loss",
    }
    estimators = {
        "gae": "compute_gae_advantage_return",
        "grpo": "compute_grpo_outcome_advantage",
        "rloo": "compute_rloo_outcome_advantage",
        "reinforce_pp": "compute_reinforce_plus_plus_outcome_advantage",
    }
    theirs = functions(
        folder / "ppo_utils.py",
        (
            "masked_var",
            "masked_whiten",
            "reduce_loss",
            "compute_approx_kl",
            "apply_loss_reduction_to_advantages_minibatch",
            *losses.values(),
            *estimators.values(),
        ),
        masked_mean=basic.masked_mean,
        safe_exp_delta=basic.safe_exp_delta,
        # The correction of off-policy data is switched off.
        apply_off_policy_correction=lambda loss, _old, _rollout, mask, _config: (loss, mask, {}),
    )

    def policy_loss(kind: str, one: Any, policy: Tensor, dual: float | None, aggregation: str) -> Tensor:
        reduction = _REDUCTIONS[aggregation]
        config = _Config(
            policy_loss_type="regular" if dual is None else "dual_clip",
            loss_reduction="sequence_mean",  # only a warning hangs on it there
            eps_clip_low=one.low,
            eps_clip_high=one.high,
            clip_ratio_c=dual,
            sapo=_Config(tau_pos=1.0, tau_neg=1.05),
            cispo=_Config(cispo_eps_clip_low=one.low, cispo_eps_clip_high=one.high, cispo_anchor="old"),
            off_policy_correction=None,
        )
        scaled = theirs.apply_loss_reduction_to_advantages_minibatch(
            one.advantages, one.holed_mask, reduction, one.rows, one.tokens
        )
        return getattr(theirs, losses[kind])(policy, one.old, scaled, config, loss_mask=one.holed_mask)[0]

    def estimate(kind: str, one: Any, **more: Any) -> Tensor:
        given = {"token_level_rewards": one.token_level_rewards, "response_mask": one.mask, **more}
        return getattr(theirs, estimators[kind])(**given)[0]

    return Peer(
        name="SkyRL",
        policy_loss=policy_loss,
        aggregations=lambda _kind: tuple(_REDUCTIONS),
        kl=lambda kind, policy, reference: theirs.compute_approx_kl(policy, reference, None, kind),
        kl_kinds=("k1", "abs", "k2", "k3"),
        advantages={
            "grpo": lambda one: estimate("grpo", one, index=one.groups),
            "dr_grpo": lambda one: estimate("grpo", one, index=one.groups, grpo_norm_by_std=False),
            "rloo": lambda one: estimate("rloo", one, index=one.groups),
            "reinforce_pp": lambda one: estimate("reinforce_pp", one, gamma=one.gamma),
            "gae": lambda one: estimate(
                "gae", one, values=one.values * one.mask, gamma=one.gamma, lambd=one.lam
            ),
        },
    )
