"""Rewards that need no code: each a plain function here, and a `preset` by the same name in a job.

    >>> from strop.functions import presets
    >>> presets.exact_match("Paris", "paris")
    1.0

What each takes is in docs/rewards.md. They give 0 to 1, penalties 0 to -1; they raise `CannotScore` where
there is no score to give. `judge` asks a model, and is awaited.
"""

from strop.functions.presets.answer import Answer, CannotScore, RowLacks, Scored
from strop.functions.presets.code import check_code_tests, code_tests
from strop.functions.presets.equations import math_equal
from strop.functions.presets.judged import judge
from strop.functions.presets.lengths import (
    check_length_penalty,
    check_overlong_penalty,
    length_penalty,
    overlong_penalty,
    repetition_penalty,
)
from strop.functions.presets.matching import check_regex_match, contains, exact_match, regex_match
from strop.functions.presets.numbers import numeric_close
from strop.functions.presets.shapes import (
    answered,
    check_format_match,
    check_json_schema,
    format_match,
    json_schema,
)
from strop.functions.presets.similarity import text_similarity
from strop.functions.presets.tools import tool_use

NAMES = (
    "exact_match",
    "contains",
    "regex_match",
    "numeric_close",
    "math_equal",
    "text_similarity",
    "json_schema",
    "format_match",
    "code_tests",
    "tool_use",
    "judge",
    "answered",
    "length_penalty",
    "overlong_penalty",
    "repetition_penalty",
)

__all__ = [
    "NAMES",
    "Answer",
    "CannotScore",
    "RowLacks",
    "Scored",
    "answered",
    "check_code_tests",
    "check_format_match",
    "check_json_schema",
    "check_length_penalty",
    "check_overlong_penalty",
    "check_regex_match",
    "code_tests",
    "contains",
    "exact_match",
    "format_match",
    "json_schema",
    "judge",
    "length_penalty",
    "math_equal",
    "numeric_close",
    "overlong_penalty",
    "regex_match",
    "repetition_penalty",
    "text_similarity",
    "tool_use",
]
