"""A model as the judge of answers: graded by a rubric or compared in pairs, by any OpenAI-compatible
endpoint.

What goes wrong on the way to a grade raises `CannotScore`: it is FAILED and tried again, and never a reward
of 0.
"""

from strop.functions.judge.endpoint import Endpoint, Spent
from strop.functions.judge.hybrid import Hybrid
from strop.functions.judge.judge import Comparison, Judge, Verdict
from strop.functions.judge.rubric import Rubric

__all__ = ["Comparison", "Endpoint", "Hybrid", "Judge", "Rubric", "Spent", "Verdict"]
