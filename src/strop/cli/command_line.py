"""Words on a command line -> the command, and an exit status.

0 done, 1 failed, 2 wrong usage or configuration, 130 ended by Ctrl-C.
"""

from __future__ import annotations

import asyncio
import sys

from strop.cli.commands import app
from strop.cli.interrupts import EXIT_CANCELED, interrupted_text
from strop.cli.text import t, told
from strop.errors import ConfigError, DataError, RequestError, StropError, ThrottledError
from strop_sandbox.errors import SandboxError


def _is_wrong_input(error: StropError) -> bool:
    """Refused here or by the server: the same again would be refused again."""
    return isinstance(error, ConfigError | DataError | RequestError) and not isinstance(error, ThrottledError)


def command_line() -> None:
    """Run `sys.argv`; what went wrong is told once, on stderr, with what to do.

    Raises:
        SystemExit: always.
    """
    try:
        app()
    except StropError as error:
        _tell(told(error.told))
        sys.exit(2 if _is_wrong_input(error) else 1)
    except SandboxError as error:
        _tell(str(error))
        sys.exit(error.exit_status)
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "transformers", "safetensors", "peft"):
            raise
        _tell(f"{error.name} is not installed\n  fix: pip install 'strop[train]'")
        sys.exit(1)
    except OSError as error:
        if error.filename is None:
            raise
        _tell(f"{error.filename}: {error.strerror}")  # a file that a command was told to read or write
        sys.exit(1)
    except SystemExit as error:
        # Typer makes an exit of Ctrl-C, and says nothing.
        if isinstance(getattr(error.__context__, "__cause__", None), KeyboardInterrupt):
            print(interrupted_text(), file=sys.stderr)
        raise
    except (KeyboardInterrupt, asyncio.CancelledError):
        print(interrupted_text(), file=sys.stderr)
        sys.exit(EXIT_CANCELED)


def _tell(text: str) -> None:
    """An error may repeat what a file says; nothing of that steers the terminal."""
    shown = "".join(one if one.isprintable() or one == "\n" else ascii(one)[1:-1] for one in text)
    print(f"{t('error', '错误')}: {shown}", file=sys.stderr)
