"""`strop run --resume ID` of a job that a server trained -> the server's to go on with, where it still can.

A job that is paused goes on there; one that has ended is a new job's start, in this command; one that trains is
left alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from strop.cli.next_steps import Given, program
from strop.cli.text import t
from strop.errors import ConfigError, Problem
from strop.schema.job import JobStatus

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from strop.schema.job import Job


def server_job(given: str) -> Job | None:
    """The job of that id in this home's store, where a server looks after it and no `strop run` does."""
    from strop.cli.resume import of_the_store
    from strop.store.jobs import get_job
    from strop.store.submissions import get_submission

    def read(session: Session) -> Job | None:
        of_a_server = get_submission(session, given).local is None
        return get_job(session, given) if of_a_server else None

    return of_the_store(read)


def resume_there(
    given: str, asked: Given, console: Console, *, out: Path | None, accept_changes: bool, as_json: bool
) -> int | None:
    """Let a paused job of a server go on, and show it to its end. Returns the exit status; None where the job is
    no server's, or has ended there, so that this command goes on from its checkpoint.

    Raises:
        ConfigError: the job trains, or no server runs here, or options are given that the job cannot take.
    """
    from strop.client.place import running_server

    job = server_job(given)
    if job is None:
        return None
    url = running_server()
    if job.status is JobStatus.SUSPENDED and url is not None:
        _refuse_options(given, asked, out=out, accept_changes=accept_changes)
        return _go_on(url, given, console, as_json=as_json)
    if not job.status.final:
        raise _refused(*_why(given, job.status, here=url is not None))
    text = t(
        f"{given} was trained by a server and is {job.status.value}: a new job goes on from its checkpoint, in "
        "this command",
        f"{given} 由服务训练，状态为 {job.status.value}：将在本命令内由新任务从其检查点继续",
    )
    console.print(text, style="dim", highlight=False, soft_wrap=True, markup=False)
    return None


def _go_on(url: str, job_id: str, console: Console, *, as_json: bool) -> int:
    from strop.cli.remote import open_client
    from strop.cli.submitting import show_to_the_end

    text = t(
        f"goes on on the server that runs here, {url}, as it was submitted; the job file is not read again",
        f"在本机运行的服务 {url} 上按提交时的配置继续；不再读取任务文件",
    )
    console.print(text, style="dim", highlight=False, soft_wrap=True, markup=False)
    with open_client(url) as client:
        client.jobs.resume(job_id)
        return show_to_the_end(client, job_id, console, as_json=as_json, here=True)


def _why(job_id: str, status: JobStatus, *, here: bool) -> tuple[str, str]:
    if not here:
        return (
            t(
                f"{job_id} is {status.value} on a server, and none runs here",
                f"{job_id} 在服务上的状态为 {status.value}，而本机没有运行服务",
            ),
            t(
                f"start it: {program()} up; a paused job then goes on by: {program()} jobs resume {job_id}",
                f"先启动服务：{program()} up；暂停的任务再用 {program()} jobs resume {job_id} 继续",
            ),
        )
    return (
        t(f"{job_id} is {status.value} on the server", f"{job_id} 在服务上的状态为 {status.value}"),
        t(f"look on: {program()} jobs watch {job_id}", f"查看：{program()} jobs watch {job_id}"),
    )


def _refuse_options(given: str, asked: Given, *, out: Path | None, accept_changes: bool) -> None:
    values, given_by = asked
    options = [given_by.get(key, "--set") for key in values]
    options += ["--out"] * (out is not None) + ["--accept-changes"] * accept_changes
    if options:
        names = ", ".join(dict.fromkeys(options))
        raise _refused(
            t(
                f"{given} goes on on its server, as it was submitted: {names} would have no effect",
                f"{given} 将在其服务上按提交时的配置继续：{names} 不会生效",
            ),
            t("leave it out", "请去掉"),
        )


def _refused(message: str, fix: str) -> ConfigError:
    return ConfigError("--resume", [Problem(place="--resume", message=message, fix=fix)])
