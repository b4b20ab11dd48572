"""Words on a command line -> the machines, wired. The only place that sees everything.

Importing it loads nothing; `main` first decides what Ctrl-C does, and only then loads the command.
"""

from __future__ import annotations

import os
import sys

from strop.cli.text import t

_TRAINS = ("run", "demo", "train")
"""Commands that train in this process."""


def main() -> None:
    """What `strop` is. Ctrl-C at any moment of it ends with one line and exit status 130."""
    try:
        from strop.cli.interrupts import leave_from_now_on, leaving_at_once

        with leaving_at_once():
            if sys.argv[1:2] and sys.argv[1] in _TRAINS:
                from strop.memory import use_huge_pages

                use_huge_pages()
            from strop.cli.commands import command_line
        try:
            command_line()
        finally:
            leave_from_now_on()
    except KeyboardInterrupt:
        # It came before there was a handler, or between two of them.
        os.write(2, f"\n{t('interrupted')}\n".encode())
        os._exit(130)
