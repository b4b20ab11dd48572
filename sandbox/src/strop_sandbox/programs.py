"""Code in a language -> a program in a box, compiled, and run as often as wanted; the wire's words for it."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from dataclasses import replace

from strop_sandbox.box import Box, BoxError, FileError, RunResult
from strop_sandbox.errors import SandboxError
from strop_sandbox.limits import MIB, Limits
from strop_sandbox.toolchains import Toolchain
from strop_sandbox.wire import CommandResult, CommandStatus, RunCodeResponse, RunStatus

COMPILE_CPU_FACTOR = 4.0
"""A compiler may use several processors; its time limit is about how long it takes."""

COMPILE_MEMORY_BYTES = 2048 * MIB
_IGNORED = "IGNORE_THIS_FILE"


class Program:
    """One program: `prepare` it in a box, then `run` it there."""

    def __init__(
        self,
        code: str,
        toolchain: Toolchain,
        *,
        compile_limits: Limits,
        run_limits: Limits,
        files: Mapping[str, bytes] | None = None,
        arguments: tuple[str, ...] = (),
    ) -> None:
        self._arguments = arguments
        self._toolchain, self._language = toolchain, toolchain.language
        self._file, self._entry = self._language.file_of(code), self._language.entry_of(code)
        beside = {name: text.encode() for name, text in self._language.beside}
        self._files = {**beside, **(files or {}), self._file: code.encode("utf-8", "surrogatepass")}
        self._compile_limits = replace(
            compile_limits,
            cpu_factor=COMPILE_CPU_FACTOR,
            memory_bytes=max(COMPILE_MEMORY_BYTES, run_limits.memory_bytes),
        )
        self._run_limits = replace(run_limits, cpu_factor=self._language.cpu_factor)
        self._built: dict[str, bytes] = {}
        self.compiled: RunResult | None = None

    async def prepare(self, box: Box) -> bool:
        """Write and compile; whether there is something to run."""
        await box.write(self._files)
        if not self._language.compile:
            return True
        limits = self._compile_limits
        argv = self._command(self._language.compile, limits)
        self.compiled = await box.run(argv, limits, env=dict(self._language.env))
        return self.compiled.ok

    def _command(self, words: tuple[str, ...], limits: Limits) -> list[str]:
        return self._toolchain.command(
            words, file=self._file, entry=self._entry, memory_bytes=limits.memory_bytes
        )

    async def keep(self, box: Box) -> None:
        """Take what was prepared out of a box, to be put into others: nothing is compiled twice."""
        self._built = self._files
        if self._language.compile:
            self._built, left_out = await box.fetch(None)
            if left_out:
                raise BoxError(f"what was compiled is too large to be copied: {left_out[0]}")

    async def put(self, box: Box) -> None:
        """Into another box, what `keep` took."""
        await box.write(self._built)

    async def run(self, box: Box, stdin: str | None) -> RunResult:
        limits = self._run_limits
        argv = self._command(self._language.run, limits)
        if self._language.forked:
            argv = [self._file]
        return await box.run(
            [*argv, *self._arguments],
            limits,
            stdin=(stdin or "").encode("utf-8", "surrogatepass"),
            env=dict(self._language.env),
            python=self._file if self._language.forked else None,
        )


def decoded_files(files: Mapping[str, str | None]) -> dict[str, bytes]:
    """Raises:
    FileError: content that is not base64.
    """
    decoded: dict[str, bytes] = {}
    for name, content in files.items():
        if content is None or _IGNORED in name:
            continue
        try:
            decoded[name] = base64.b64decode(content, validate=True)
        except (binascii.Error, ValueError) as error:
            raise FileError(f"files: the content of {name!r} is not base64: {error}") from error
    return decoded


def encoded_files(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: base64.b64encode(content).decode() for name, content in files.items()}


def described(ran: RunResult) -> CommandResult:
    """A command's end in the wire's words: limits of time are a status, all other deaths a return code."""
    late = ran.reason in ("cpu_time_limit", "wall_time_limit")
    return CommandResult(
        status=CommandStatus.TIME_LIMIT_EXCEEDED if late else CommandStatus.FINISHED,
        execution_time=ran.wall_s,
        return_code=None if late else -9 if ran.reason else ran.return_code,
        stdout=ran.stdout.decode("utf-8", "replace"),
        stderr=ran.stderr.decode("utf-8", "replace"),
        cpu_time=round(ran.cpu_s, 6),
        memory_MB=round(ran.peak_bytes / MIB, 1),
        reason=ran.reason,  # pyright: ignore[reportArgumentType]
        signal="SIGKILL" if ran.reason else ran.signal,
        stdout_bytes=ran.stdout_bytes,
    )


def answer(
    compiled: RunResult | None,
    ran: RunResult | None,
    files: Mapping[str, bytes] | None = None,
    message: str = "",
) -> RunCodeResponse:
    done = (compiled is None or compiled.ok) and ran is not None and ran.ok
    return RunCodeResponse(
        status=RunStatus.SUCCESS if done else RunStatus.FAILED,
        message=message,
        compile_result=described(compiled) if compiled is not None else None,
        run_result=described(ran) if ran is not None else None,
        executor_pod_name=pod_name(),
        files=encoded_files(files or {}),
    )


def failure(error: SandboxError) -> RunCodeResponse:
    return RunCodeResponse(status=RunStatus.SANDBOX_ERROR, message=str(error), executor_pod_name=pod_name())


def pod_name() -> str | None:
    return os.environ.get("MY_POD_NAME")
