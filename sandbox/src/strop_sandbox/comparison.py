"""A program's output and the expected one -> whether they agree, by SandboxFusion's rules or stricter."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_TOLERANCE = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Lenient: letters of either case are the same, and lines of one number may differ by `tolerance`
    (relative). Strict: the same but for spaces at the ends of lines and empty lines at the end.
    """

    strict: bool = False
    tolerance: float = DEFAULT_TOLERANCE

    def agree(self, output: str, expected: str) -> bool:
        """
        >>> Comparison().agree("YES\\r\\n0.333333", "yes\\n0.3333334\\n")
        True
        >>> Comparison(strict=True).agree("YES", "yes")
        False
        >>> Comparison().agree("1 2", "1  2")
        False
        """
        if self.strict:
            return _ends_stripped(output) == _ends_stripped(expected)
        ours, theirs = output.strip().split("\n"), expected.strip().split("\n")
        if len(ours) - len(theirs) == 1 and not ours[-1].strip():
            ours.pop()
        elif len(theirs) - len(ours) == 1 and not theirs[-1].strip():
            theirs.pop()
        return len(ours) == len(theirs) and all(map(self._same_line, ours, theirs))

    def _same_line(self, ours: str, theirs: str) -> bool:
        ours, theirs = ours.lower().strip(), theirs.lower().strip()
        if ours == theirs:
            return True
        try:
            number, wanted = float(ours), float(theirs)
        except ValueError:
            return False
        return abs(number - wanted) / max(abs(wanted), 1e-10) < self.tolerance


def _ends_stripped(text: str) -> list[str]:
    lines = [line.rstrip() for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines
