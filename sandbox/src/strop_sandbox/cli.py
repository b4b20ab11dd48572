"""`strop-sandbox` serves the API, `strop-sandbox check` says what holds here; `strop sandbox` is the same command.

Importing it loads no web framework: help comes at once.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from strop_sandbox.errors import ConfigError, Problem, SandboxError
from strop_sandbox.text import t

if TYPE_CHECKING:
    from strop_sandbox.isolation import Isolation, Kind
    from strop_sandbox.sandbox import Sandbox
    from strop_sandbox.toolchains import Toolchains

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    help=t(
        "Run code that a model wrote, isolated, with SandboxFusion's API. Without a command: serve until Ctrl-C.",
        "隔离运行模型编写的代码，兼容 SandboxFusion API。不带子命令时启动服务，Ctrl-C 结束。",
    ),
)

LOOPBACK = ("127.0.0.1", "localhost", "::1")

IsolationOption = Annotated[
    str,
    typer.Option(
        help=t(
            "auto, userns (any user), uids (root), or none: no walls at all.",
            "auto、userns（任意用户）、uids（root）或 none（完全不隔离）。",
        )
    ),
]
PythonOption = Annotated[
    str | None,
    typer.Option(
        envvar="STROP_SANDBOX_PYTHON",
        help=t(
            "Interpreter for Python programs; if not given, the one that runs the sandbox.",
            "运行 Python 程序的解释器；默认为运行沙箱的解释器。",
        ),
    ),
]


@app.callback(invoke_without_command=True)
def serve(
    context: typer.Context,
    host: Annotated[
        str,
        typer.Option(
            help=t("Address; others than loopback need a key.", "监听地址；非回环地址必须设置密钥。")
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help=t("0 takes a free one.", "0 表示任选空闲端口。"))
    ] = 8090,
    isolation: IsolationOption = "auto",
    python: PythonOption = None,
    api_key: Annotated[
        str | None,
        typer.Option(
            envvar="STROP_SANDBOX_API_KEY",
            help=t(
                "Key that clients must send, as a bearer token or as /key/KEY before the path.",
                "客户端必须携带的密钥：Bearer token，或路径前的 /key/KEY。",
            ),
        ),
    ] = None,
    trusted_host: Annotated[
        list[str] | None,
        typer.Option(
            envvar="STROP_SANDBOX_TRUSTED_HOSTS",
            help=t(
                "Another name than loopback's that it answers to without a key. May be given again.",
                "未设置密钥时，除回环地址外还可使用的主机名。可多次给出。",
            ),
        ),
    ] = None,
    memory_mb: Annotated[
        int,
        typer.Option(
            min=64, help=t("MiB of memory a program may use at most.", "单个程序的内存上限（MiB）。")
        ),
    ] = 1024,
    max_running: Annotated[
        int,
        typer.Option(
            min=0,
            help=t("Programs that run at once; 0: four a processor.", "同时运行的程序数；0 表示每核 4 个。"),
        ),
    ] = 0,
    max_waiting: Annotated[
        int,
        typer.Option(
            min=0, help=t("Requests that may wait; beyond it 429.", "可排队的请求数；超出返回 429。")
        ),
    ] = 1000,
    datasets: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            file_okay=False,
            help=t("Folder of problems, one JSONL file a data set.", "题目目录，每个数据集一个 JSONL 文件。"),
        ),
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            help=t(
                "Where tests named by URL may come from: a host, or a prefix such as file:///tests/. May be given"
                " again. With no host: every public one.",
                "允许读取测试用例 URL 的来源：主机名，或 file:///tests/ 之类的前缀。可多次给出。未给出主机时允许所有公网主机。",
            )
        ),
    ] = None,
    max_test_mb: Annotated[
        int, typer.Option(min=1, help=t("MiB of a test file at most.", "单个测试文件上限（MiB）。"))
    ] = 4096,
) -> None:
    """"""
    if context.invoked_subcommand is not None:
        return
    import logging

    from strop_sandbox.app import create_app
    from strop_sandbox.datasets import Datasets
    from strop_sandbox.listening import bind, run_server
    from strop_sandbox.sandbox import Sandbox, Settings
    from strop_sandbox.sources import Allowed
    from strop_sandbox.test_files import TestFiles

    refuse_open_door(host, api_key)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    kind = _kind(isolation)
    problems = Datasets(datasets)
    opened, toolchains = _open(kind, python)
    sandbox = Sandbox(
        opened,
        toolchains,
        Settings(memory_mb=memory_mb, max_running=max_running, max_waiting=max_waiting),
    )
    test_files = TestFiles(Allowed(hosts=tuple(allow or ()), max_bytes=max_test_mb * 2**20))
    served = create_app(
        sandbox,
        datasets=problems,
        test_files=test_files,
        api_key=api_key,
        trusted_hosts=trusted_host or (),
    )
    listener = bind(host, port)
    run_server(served, listener, lambda: _announce(sandbox, host, listener.getsockname()[1]))


def _announce(sandbox: Sandbox, host: str, port: int) -> None:
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{port}"
    details = [
        f"{sandbox.isolation.kind}, {sandbox.settings.running} {t('at once', '并发')}",
        ", ".join(sorted(sandbox.toolchains.found)),
    ]
    typer.echo(t(f"The sandbox answers at {address}", f"沙箱地址：{address}") + f"  ({'; '.join(details)})")
    sys.stdout.flush()


def refuse_open_door(host: str, api_key: str | None) -> None:
    """Raises:
    ConfigError: anyone on the network could run programs here.
    """
    if api_key is None and host not in LOOPBACK:
        raise ConfigError(
            "sandbox",
            [
                Problem(
                    place="--host",
                    message=t(f"{host} is reachable from other machines", f"{host} 可被其他机器访问"),
                    fix=t(
                        "set STROP_SANDBOX_API_KEY, or leave --host out",
                        "设置 STROP_SANDBOX_API_KEY，或去掉 --host",
                    ),
                )
            ],
        )


def _kind(isolation: str) -> Kind | None:
    """The kind that was asked for, if what it needs is installed; None: whichever works.

    Raises:
        ConfigError: there is no such kind; SandboxError: a program is missing.
    """
    from strop_sandbox.isolation import Kind, refuse_without_programs

    kinds = [str(kind) for kind in Kind]
    if isolation not in ("auto", *kinds):
        raise ConfigError(
            "sandbox",
            [
                Problem(
                    place="--isolation",
                    message=t(f"found {isolation!r}", f"收到 {isolation!r}"),
                    fix=t(f"write auto, {', '.join(kinds)}", f"可用 auto、{'、'.join(kinds)}"),
                )
            ],
        )
    kind = None if isolation == "auto" else Kind(isolation)
    refuse_without_programs(kind)
    return kind


def _open(kind: Kind | None, python: str | None) -> tuple[Isolation, Toolchains]:
    from strop_sandbox.isolation import interpreter, open_isolation
    from strop_sandbox.toolchains import Toolchains

    toolchains = Toolchains(interpreter(python))
    return open_isolation(kind, python=python, roots=toolchains.roots), toolchains


@app.command()
def check(isolation: IsolationOption = "auto", python: PythonOption = None) -> None:
    """"""
    opened, toolchains = _open(_kind(isolation), python)
    try:
        for fact in opened.facts:
            mark = t("holds", "成立") if fact.holds else t("NOT", "不成立")
            typer.echo(f"{fact.name:<10} {mark:<6} {t(fact.text, fact.zh)}")
        typer.echo(t("runs       ", "可运行     ") + ", ".join(sorted(toolchains.found)))
        for why in toolchains.missing.values():
            typer.echo(t("lacks      ", "缺少       ") + why)
    finally:
        opened.close()


check.__doc__ = t(
    "Print what isolation holds on this machine, proven by trying, and which languages it runs.",
    "实际检测并打印本机可用的隔离手段与可运行的语言。",
)


def main() -> None:
    """What `strop-sandbox` is: what went wrong is told once, on stderr, with what to do.

    Raises:
        SystemExit: always. 0 done, 1 failed, 2 wrong usage, 130 ended by Ctrl-C.
    """
    try:
        app(prog_name="strop-sandbox")
    except SandboxError as error:
        _tell(str(error))
        sys.exit(error.exit_status)
    except OSError as error:
        if error.filename is None:
            raise
        _tell(f"{error.filename}: {error.strerror}")
        sys.exit(1)
    except KeyboardInterrupt:
        print(t("interrupted", "已中断"), file=sys.stderr)
        sys.exit(130)


def _tell(text: str) -> None:
    """An error may repeat what a file says; nothing of that steers the terminal."""
    shown = "".join(one if one.isprintable() or one == "\n" else ascii(one)[1:-1] for one in text)
    print(f"{t('error', '错误')}: {shown}", file=sys.stderr)
