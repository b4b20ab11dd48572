"""DECLARE: name -> what an algorithm is made of. Torch-free, so that schema, pipeline and CLI can read it.

An algorithm is one `Algorithm` record. The built-in ones stand in `builtin.py`; another package adds its own
by
an entry point, without touching these files:

    [project.entry-points."strop.algorithms"]
    my_method = "my_package.declaration:MY_METHOD"

    # my_package/declaration.py, which imports no torch
    from strop.algorithms import Algorithm
    MY_METHOD = Algorithm(
        name="my_method", advantage="dr_grpo", policy_loss="my_package.loss:token_loss",
        aggregation="token-mean", clip_range=(0.2, 0.2), dual_clip=None,
        paper="https://...", en="One sentence.", zh="一句话。",
    )

`policy_loss` is a built-in kind (`ppo`, `gspo`, `cispo`, `sapo`) or `module:function`, a function of
`strop.learners.losses.surrogates.Inputs` that is imported when the learner first needs it. `advantage` is a
kind of `strop.rl.advantage`, or `module:function`, a function of one group's rewards.
"""

from strop.algorithms.record import ADVANTAGES, AGGREGATIONS, POLICY_LOSSES, Aggregation, Algorithm
from strop.algorithms.registry import (
    AlgorithmError,
    algorithm,
    algorithm_names,
    bound_knobs,
    load_named,
    nearest_name,
)

__all__ = [
    "ADVANTAGES",
    "AGGREGATIONS",
    "POLICY_LOSSES",
    "Aggregation",
    "Algorithm",
    "AlgorithmError",
    "algorithm",
    "algorithm_names",
    "bound_knobs",
    "load_named",
    "nearest_name",
]
