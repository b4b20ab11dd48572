"""A language -> the commands that compile and run its programs here, or a clear word on what is missing."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from strop_sandbox.errors import SandboxError
from strop_sandbox.isolation import outside_system
from strop_sandbox.languages import LANGUAGES, Language
from strop_sandbox.limits import MIB

JAVA_FOLDER = Path("/usr/share/java")

_COMPILER_SHARE = 0.75
"""Of a program's memory that a runtime with a heap of its own may take for it."""


class ToolchainError(SandboxError):
    """A language that this server cannot run."""

    boundary = "sandbox"
    http_status = 501


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """A language whose tools were found. `roots` are the folders outside the system that they lie in."""

    language: Language
    places: dict[str, str]
    jars: str
    roots: tuple[str, ...]

    def command(self, words: tuple[str, ...], *, file: str, entry: str, memory_bytes: int) -> list[str]:
        values = {
            "{file}": file,
            "{class}": entry,
            "{jars}": self.jars,
            "{heap_mb}": str(max(32, int(memory_bytes / MIB * _COMPILER_SHARE))),
        }
        told = [_filled(word, values) for word in words]
        return [self.places.get(told[0], told[0]), *told[1:]]


def _filled(word: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        word = word.replace(name, value)
    return word


class Toolchains:
    """What was found on this machine, for the interpreter that boxes use."""

    def __init__(self, python: str) -> None:
        self.python = python
        self._missing: dict[str, str] = {}
        self.found: dict[str, Toolchain] = {}
        for language in LANGUAGES:
            try:
                self.found[language.name] = _look(language, python)
            except ToolchainError as error:
                self._missing[language.name] = error.message

    @property
    def missing(self) -> dict[str, str]:
        """Language -> what it lacks here."""
        return dict(self._missing)

    @property
    def roots(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(root for one in self.found.values() for root in one.roots))

    def of(self, name: str) -> Toolchain:
        """Raises:
        ToolchainError: there is no such language, or its tools are not installed here.
        """
        if name in self.found:
            return self.found[name]
        if name in self._missing:
            raise ToolchainError(self._missing[name])
        raise ToolchainError(
            f"this server runs no {name!r} programs; it runs {', '.join(sorted(self.found))}"
        )


def _look(language: Language, python: str) -> Toolchain:
    places = {"python": python}
    for tool in language.tools:
        place = next(filter(None, (_real_place(tool, found) for found in _on_path(tool))), None)
        if place is None:
            raise ToolchainError(_lacks(language, tool))
        places[tool] = place
    for package in language.packages:
        if not has_package(python, package):
            raise ToolchainError(_lacks(language, f"the Python package {package}"))
    jars = list(_jars(language))
    roots = outside_system([_prefix(place) for tool, place in places.items() if tool != "python"])
    return Toolchain(language=language, places=places, jars=":".join([".", *jars]), roots=roots)


def _lacks(language: Language, what: str) -> str:
    return f"{language.name} programs cannot be run here: {what} is not installed (Debian: {language.debian})"


def _jars(language: Language) -> Iterable[str]:
    """Those that the language needs; for plain Java, the one library that the reference has, if here."""
    for name in language.jars:
        path = JAVA_FOLDER / f"{name}.jar"
        if not path.exists():
            raise ToolchainError(_lacks(language, path.name))
        yield str(path)
    if language.name == "java" and (JAVA_FOLDER / "javatuples.jar").exists():
        yield str(JAVA_FOLDER / "javatuples.jar")


def _on_path(tool: str) -> Iterable[str]:
    """Every program of that name on PATH, in its order."""
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        if folder and (place := shutil.which(tool, path=folder)) is not None:
            yield place


def _real_place(tool: str, place: str) -> str | None:
    """Where a tool is that stands behind a switch: rustup's `rustc` only finds the real one by its home.
    None where that home holds no toolchain: such a switch runs nothing."""
    if not _is_rustup(place):
        return place
    # It must not fetch a toolchain because it was asked for one.
    environment = {**os.environ, "RUSTUP_AUTO_INSTALL": "0"}
    done = subprocess.run([place, "--print", "sysroot"], capture_output=True, text=True, env=environment)
    real = os.path.join(done.stdout.strip(), "bin", tool)
    return real if done.returncode == 0 and os.path.exists(real) else None


def _is_rustup(place: str) -> bool:
    """Its tools are itself under other names: symbolic links, or hard ones in its own folder."""
    real = os.path.realpath(place)
    beside = os.path.join(os.path.dirname(real), "rustup")
    return os.path.basename(real) == "rustup" or (os.path.exists(beside) and os.path.samefile(real, beside))


def _prefix(place: str) -> str:
    """`/opt/tool` of `/opt/tool/bin/name`; the system's own tools have none that would be missed."""
    real = os.path.realpath(place)
    if real.startswith(("/usr/", "/bin/")) and place.startswith(("/usr/", "/bin/")):
        return "/usr"
    return os.path.dirname(os.path.dirname(place))


@functools.cache
def has_package(python: str, package: str) -> bool:
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({package!r}) is None)"
    return subprocess.run([python, "-c", code], capture_output=True).returncode == 0
