"""Text -> half a character that stands in it, if one does: a surrogate of UTF-16 without its other half.

JSON and YAML can spell one (`\\ud83d`), and no file, process or database can hold it.
"""

from __future__ import annotations

import re

_HALF = re.compile("[\ud800-\udfff]")


def half_character(text: str) -> str | None:
    r"""What to say of the first one; None where all are whole.

    >>> half_character("whole"), half_character("half \ud83d")
    (None, "contains half a character, '\\ud83d'")
    """
    found = _HALF.search(text)
    return None if found is None else f"contains half a character, {found[0]!r}"


HALF_FIX = "write the whole character: in JSON and YAML two \\u escapes make one, or write it as it is"
