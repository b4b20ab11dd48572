"""Words on a command line -> the command, and an exit status.

0 done, 1 failed, 2 wrong usage or configuration, 130 ended by Ctrl-C.

A command's module is loaded when that command is called: `strop --help` needs the outline below and no more.
Heavy imports (torch, the web framework, the database) stand inside the functions that need them.
"""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command_from_info, get_group
from typer.models import CommandInfo

from strop import __version__
from strop.cli.interrupts import EXIT_CANCELED, interrupted_text, leaving_at_once
from strop.cli.text import t, told

EXIT_CLOSED_PIPE = 128 + signal.SIGPIPE
"""As a shell reports a program whose output nobody read to the end."""


class Outline(NamedTuple):
    """What the help of `strop` says of a command, and where it is: `module:attribute`, a function or, for a
    group of commands, a `typer.Typer`."""

    target: str
    help: str
    hidden: bool = False


OUTLINES = {
    "run": Outline(
        target="strop.cli.run:run",
        help=t(
            "Train the job of a YAML file. Ctrl-C ends it, and every finished step is "
            "kept; a second one ends it at once, or leaves the rest to the server that "
            "trains it."
        ),
    ),
    "demo": Outline(
        target="strop.cli.demo:demo",
        help=t("Train a small model to use a calculator, and ask it three questions it has not seen."),
    ),
    "doctor": Outline(
        target="strop.cli.doctor:doctor",
        help=t(
            "Check which parts of Strop work on this machine: torch, memory, disk, "
            "database, model, server, sandbox, GPU. Exit status: 0 it can train, 1 "
            "something is broken."
        ),
    ),
    "init": Outline(
        target="strop.cli.init:init",
        help=t("Make a project from a template, with tests that pass."),
    ),
    "chat": Outline(
        target="strop.cli.chat:chat",
        help=t("Talk to a model: a checkpoint, a published name, a folder or a hub id. Ctrl-D ends."),
    ),
    "serve": Outline(
        target="strop.cli.serve:serve",
        help=t(
            "Serve a model with the OpenAI API: /v1/chat/completions, /v1/models, "
            "/healthz, /metrics. Ctrl-C ends it."
        ),
    ),
    "up": Outline(
        target="strop.cli.up:up",
        help=t("Start the server: jobs, files, functions, models and deployments over HTTP."),
    ),
    "train": Outline(
        target="strop.cli.train:train",
        help=t("Train a submitted job; the server starts this."),
        hidden=True,
    ),
    "jobs": Outline(target="strop.cli.jobs:app", help=t("Training jobs of a server.")),
    "evaluations": Outline(target="strop.cli.evaluations:app", help=t("Measuring models of a server.")),
    "files": Outline(target="strop.cli.files:app", help=t("Files of rows on a server.")),
    "functions": Outline(
        target="strop.cli.functions:app",
        help=t("Rollout, reward and group-reward functions: try them here, register them on a server."),
    ),
    "models": Outline(
        target="strop.cli.models:app",
        help=t("Models: names, publishing, fetching."),
    ),
    "deployments": Outline(
        target="strop.cli.deployments:app",
        help=t("Models that a server serves."),
    ),
    "keys": Outline(
        target="strop.cli.keys:app",
        help=t("API keys of the server of this home."),
    ),
    "data": Outline(target="strop.cli.data:app", help=t("Files of rows on this machine.")),
    "sandbox": Outline(
        target="strop_sandbox.cli:app",
        help=t(
            "Run code that a model wrote, isolated, with SandboxFusion's API. Without a "
            "command: serve until Ctrl-C."
        ),
    ),
}
"""Every command, in the order of the help."""


class LazyGroup(TyperGroup):
    """A group that loads a command when it is asked for. Its own help shows the outlines."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands.update(
            {name: TyperCommand(name, help=one.help, hidden=one.hidden) for name, one in OUTLINES.items()}
        )
        self._outlined = False

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self._outlined = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._outlined = False

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if self._outlined or cmd_name not in OUTLINES:
            return super().get_command(ctx, cmd_name)
        return load(cmd_name)


def load(name: str) -> Any:
    """The command or the group of commands of that name."""
    outline = OUTLINES[name]
    module, _, attribute = outline.target.partition(":")
    with leaving_at_once():
        found = getattr(import_module(module), attribute)
    if isinstance(found, typer.Typer):
        group = get_group(found)
        group.name, group.help = name, outline.help
        return group
    return get_command_from_info(
        CommandInfo(name=name, callback=found, help=outline.help, hidden=outline.hidden),
        pretty_exceptions_short=True,
        rich_markup_mode=app.rich_markup_mode,
    )


app = typer.Typer(
    name="strop",
    cls=LazyGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help=t("Reinforcement fine-tuning of language models and agents, on your own machines."),
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"strop {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", is_eager=True, callback=_print_version, help=t("Print the version.")
    ),
) -> None:
    pass


def command_line() -> None:
    """Run `sys.argv`; what went wrong is told once, on stderr, with what to do.

    Raises:
        SystemExit: always.
    """
    from strop.errors import StropError
    from strop_sandbox.errors import SandboxError

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
        if isinstance(error.__context__, BrokenPipeError) or not _flushed():
            _leave_closed_pipe()
        raise
    except BaseException as error:
        if not _is_interrupt(error):
            raise
        print(interrupted_text(), file=sys.stderr)
        sys.exit(EXIT_CANCELED)


def _flushed() -> bool:
    """Write out what is left for stdout; False where nobody reads it any more."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return False
    return True


def _leave_closed_pipe() -> None:
    """End without a word, as a program that SIGPIPE ends: whoever read stdout has seen enough."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(EXIT_CLOSED_PIPE)


def _is_interrupt(error: BaseException) -> bool:
    asyncio = sys.modules.get("asyncio")  # what has not been loaded has raised nothing
    return isinstance(error, KeyboardInterrupt) or (
        asyncio is not None and isinstance(error, asyncio.CancelledError)
    )


def _is_wrong_input(error: Exception) -> bool:
    """Refused here or by the server: the same again would be refused again."""
    from strop.errors import ConfigError, DataError, RequestError, ThrottledError

    return isinstance(error, ConfigError | DataError | RequestError) and not isinstance(error, ThrottledError)


def _tell(text: str) -> None:
    """An error may repeat what a file says; nothing of that steers the terminal."""
    shown = "".join(one if one.isprintable() or one == "\n" else ascii(one)[1:-1] for one in text)
    print(f"{t('error')}: {shown}", file=sys.stderr)
