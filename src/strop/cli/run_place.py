"""A job and what it names -> the server that `strop run` submits it to, or why it trains in its own process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from strop.cli.text import t
from strop.errors import AccessError, MissingError, StropError
from strop.schema.watching import is_loopback, is_server

if TYPE_CHECKING:
    from strop.config.job import JobConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlace:
    """`url` is the server that runs in this home and takes the job; None is this process. `why` is said where a
    server runs and is not used.
    """

    url: str | None = None
    why: str | None = None


def place_of_run(config: JobConfig, *, out: Path | None, resume: str | None) -> RunPlace:
    """The server of this home where one answers, opens to this home's key and can do what the job asks; else
    this process.
    """
    from strop.client.place import running_server

    url = running_server()
    if url is None:
        return RunPlace()
    if out is not None:
        why = t("--out names a folder of this command's own", "--out 指定的是本命令自己的目录")
        return RunPlace(why=why)
    if resume is not None:
        why = t("--resume goes on from a checkpoint of this machine", "--resume 从本机的检查点继续")
        return RunPlace(why=why)
    if any(one.tracking_uri is not None and not is_server(one.tracking_uri) for one in config.trackers):
        why = t(
            "it takes no tracking_uri but http:// or https://",
            "它只接受 http:// 或 https:// 形式的 tracking_uri",
        )
        return RunPlace(why=why)
    if any(one.host is not None and not is_loopback(one.host) for one in config.trackers):
        why = t("a tracker's host opens a port of this machine", "tracker 的 host 会在本机开放端口")
        return RunPlace(why=why)
    why = _obstacle(url, config)
    return RunPlace(url=url) if why is None else RunPlace(why=why)


def told(place: RunPlace) -> str | None:
    """What a person should know of it; None where there is nothing to know."""
    if place.url is not None:
        return t(
            f"trains on the server that runs here, {place.url}; --out FOLDER trains in this command",
            f"在本机运行的服务 {place.url} 上训练；用 --out 目录 可在本命令内训练",
        )
    if place.why is not None:
        return t(
            f"trains in this command, not on the server that runs here: {place.why}",
            f"在本命令内训练，不使用本机运行的服务：{place.why}",
        )
    return None


def _obstacle(url: str, config: JobConfig) -> str | None:
    """Why that server cannot take the job."""
    from strop.client import Client

    try:
        with Client(url) as client:
            for name in filter(None, (config.model.name, config.training.teacher_model)):
                try:
                    client.models.get(name)
                except MissingError:
                    return t(
                        f"it has no model {name!r}; strop models add NAME SOURCE gives it one",
                        f"它没有模型 {name!r}；可用 strop models add 名称 来源 添加",
                    )
    except AccessError as error:
        return error.message
    except StropError as error:
        return t(f"it does not answer ({error.message})", f"它没有应答（{error.message}）")
    return None
