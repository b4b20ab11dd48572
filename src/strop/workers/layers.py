"""A requirements text -> a virtual environment that function workers run in, cached by the text's hash.

Strop's own packages come after the layer's in the search path: what a requirement asks for differently wins
in the layer, everything else is found where it is installed already, so most builds fetch little.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from strop import __version__
from strop.errors import FunctionError
from strop.locales import msg

BUILD_LIMIT_S = 1800.0
_MAX_LOG_CHARS = 200_000
_MAX_REQUIREMENTS_CHARS = 64_000
_OTHER_FILES = re.compile(r"^(-r|--requirement|-c|--constraint|-e|--editable)\b")


def layer_code(requirements: str) -> str:
    """The name of the layer: equal requirements on an equal Python give the same.

    >>> layer_code("requests\\n# why\\n") == layer_code("requests")
    True
    """
    text = "\n".join((*requirement_lines(requirements), sys.version, __version__))
    return f"layer-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def requirement_lines(requirements: str) -> list[str]:
    """What a requirements text asks for, without comments and blank lines.

    Raises:
        FunctionError: too long, or it points at files that are not part of it.
    """
    if len(requirements) > _MAX_REQUIREMENTS_CHARS or "\0" in requirements:
        raise FunctionError(
            msg(
                "the requirements have {num_requirements} characters, the limit is {max_requirements_chars}",
                num_requirements=len(requirements),
                max_requirements_chars=_MAX_REQUIREMENTS_CHARS,
            )
        )
    lines = [line.partition(" #")[0].strip() for line in requirements.replace("\\\n", " ").splitlines()]
    kept = [line for line in lines if line and not line.startswith("#")]
    for line in kept:
        if _OTHER_FILES.match(line) or line.startswith((".", "/", "file:")) or "@ file:" in line:
            raise FunctionError(
                msg("the requirement {line!r} points at a file that a layer does not have", line=line),
                fix=msg("name packages and versions only, or an https:// address"),
            )
    return kept


def layer_python(home: Path, code: str) -> Path | None:
    """The interpreter of a finished layer; None before it is finished."""
    python = home / "layers" / code / "bin" / "python"
    return python if python.exists() else None


def build_log(home: Path, code: str) -> str:
    """What the last build of this layer printed."""
    try:
        return (home / "layers" / f"{code}.log").read_text(errors="replace")[-_MAX_LOG_CHARS:]
    except OSError:
        return ""


def build_layer(home: Path, code: str, requirements: str, *, limit_s: float = BUILD_LIMIT_S) -> Path:
    """Make the environment where it is missing. Returns its interpreter.

    Raises:
        FunctionError: pip could not install it; the end of its output is in the text, all in `build_log`.
    Side effects:
        Runs pip, which may use the network and run the packages' build scripts.
    Concurrency:
        Any number of processes may build the same layer; it appears whole, once.
    """
    ready = layer_python(home, code)
    if ready is not None:
        return ready
    lines = requirement_lines(requirements)
    root = home / "layers"
    root.mkdir(parents=True, exist_ok=True)
    log = root / f"{code}.log"
    work = root / f".{code}.{secrets.token_hex(4)}"
    try:
        _run([sys.executable, "-m", "venv", "--without-pip", str(work)], log, limit_s, new=True)
        _see_our_packages(work)
        if lines:
            wanted = work / "requirements.txt"
            wanted.write_text("\n".join(lines) + "\n")
            pip = [sys.executable, "-m", "pip", "--python", str(work / "bin" / "python")]
            options = ["--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
            _run([*pip, "install", *options, "--requirement", str(wanted)], log, limit_s)
        try:
            work.rename(root / code)
        except OSError:
            if layer_python(home, code) is None:
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    ready = layer_python(home, code)
    assert ready is not None
    return ready


def _see_our_packages(venv: Path) -> None:
    """`addsitedir` and not a plain path: an editable install is known by a .pth file of its own."""
    site = next((venv / "lib").glob("python*/site-packages"))
    ours = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    lines = [f"import site; site.addsitedir({path!r})" for path in sorted(ours)]
    (site / "_strop.pth").write_text("\n".join(lines) + "\n")


def _run(command: list[str], log: Path, limit_s: float, *, new: bool = False) -> None:
    with log.open("w" if new else "a") as sink:
        sink.write("$ " + " ".join(command[:6]) + " ...\n")
        sink.flush()
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=_environment(),
                timeout=limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise FunctionError(
                msg("the layer was not built within {limit_s:g} s", limit_s=limit_s),
                fix=msg("require fewer or smaller packages"),
            ) from error
    if done.returncode:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise FunctionError(
            msg(
                "the layer could not be built (pip exited with {returncode}):\n{tail}",
                returncode=done.returncode,
                tail=tail,
            )
        )


def _environment() -> dict[str, str]:
    """Ours without the secrets of the server, and without a PYTHONPATH that would shadow the layer."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("STROP_", "PYTHONPATH"))}
