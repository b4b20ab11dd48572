"""Every command, under its name.

Heavy imports (torch, the web framework, the database) stand inside the commands that need them, so that help
comes at once.
"""

from __future__ import annotations

import typer

from strop import __version__
from strop.cli.chat import chat
from strop.cli.data import app as data
from strop.cli.demo import demo
from strop.cli.deployments import app as deployments
from strop.cli.doctor import doctor
from strop.cli.evaluations import app as evaluations
from strop.cli.files import app as files
from strop.cli.functions_show import app as functions
from strop.cli.init import init
from strop.cli.jobs import app as jobs
from strop.cli.keys import app as keys
from strop.cli.models import app as models
from strop.cli.run import run
from strop.cli.serve import serve
from strop.cli.text import t
from strop.cli.train import train
from strop.cli.up import up
from strop_sandbox.cli import app as sandbox

app = typer.Typer(
    name="strop",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help=t(
        "Reinforcement fine-tuning of language models and agents, on your own machines.",
        "在你自己的机器上对语言模型与智能体做强化学习微调。",
    ),
)
app.command("run")(run)
app.command("demo")(demo)
app.command("doctor")(doctor)
app.command(
    "init",
    help=t("Make a project from a template, with tests that pass.", "从模板创建项目，自带可通过的测试。"),
)(init)
app.command("chat")(chat)
app.command("serve")(serve)
app.command("up")(up)
app.command("train", hidden=True)(train)
app.add_typer(jobs, name="jobs")
app.add_typer(evaluations, name="evaluations")
app.add_typer(files, name="files")
app.add_typer(functions, name="functions")
app.add_typer(models, name="models")
app.add_typer(deployments, name="deployments")
app.add_typer(keys, name="keys")
app.add_typer(data, name="data")
app.add_typer(sandbox, name="sandbox")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"strop {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", is_eager=True, callback=_print_version, help=t("Print the version.", "打印版本。")
    ),
) -> None:
    pass
