"""Models, dicts, lists -> what JSON can hold, with NaN and infinity still visible.

Pydantic's own dumps write NaN as null, which would be another value and no error.
"""

from __future__ import annotations

from typing import Any, cast

from pydantic import BaseModel
from pydantic_core import to_jsonable_python


def jsonable(value: object) -> Any:
    """Raises ValueError (pydantic's serialization error is one) for a type that JSON has nothing for."""
    return to_jsonable_python(_plain(value), inf_nan_mode="constants")


def _plain(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump(warnings=False)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in cast("dict[object, object]", value).items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in cast("list[object]", value)]
    return value
