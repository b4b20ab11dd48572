"""This machine -> how a box is closed here, proven by trying; or a refusal that says what is missing.

Two ways, both by bubblewrap. `userns`: any user, in a user namespace, in which all else is done without
rights outside. `uids`: root only: bubblewrap makes the namespaces, and what runs in a box is a user that
nobody else is, one a box. Both: own process, network (loopback alone), IPC, host-name and mount namespaces,
nothing writable but memory of bounded size, no capability, a seccomp filter, no environment.
"""

from __future__ import annotations

import os
import py_compile
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from strop_sandbox.cgroups import Cgroups, open_cgroups
from strop_sandbox.errors import SandboxError
from strop_sandbox.limits import MIB
from strop_sandbox.seccomp import filter_bytes, filter_descriptor
from strop_sandbox.text import t
from strop_sandbox.zygotes import Zygote

WORK = "/tmp/box"
"""Where a program finds itself."""

_ETC = (
    *("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "mime.types", "protocols"),
    *("services", "R", "php", "perl", "fonts", "java-17-openjdk", "java-21-openjdk", "java-11-openjdk"),
    *("ssl/certs", "ssl/openssl.cnf", "ImageMagick-6", "lua", "matplotlibrc"),
)
"""Parts of /etc that toolchains read. No name of a user, a host or a key is among them."""

_OWN_ETC = {
    "passwd": "root:x:0:0::/:/bin/false\nbox:x:1000:1000:box:/tmp:/bin/bash\n",
    "group": "root:x:0:\nbox:x:1000:\n",
    "hosts": "127.0.0.1 localhost box\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}

_INIT, _ZYGOTE, _FILTER = "strop_init.pyc", "zygote.pyc", "filter.bpf"
_NAMESPACES = ("--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try")
_ZYGOTE_RIGHTS = ("SYS_ADMIN", "NET_ADMIN", "SETUID", "SETGID", "SETPCAP")
"""To make namespaces and mounts, raise the loopback, become another user, and have no rights any more."""

_THERE = ("/", "/tmp", "/mnt", "/dev", "/proc", "/usr")
_PATH = "/usr/local/bin:/usr/bin:/bin"
_UID_SPAN, _NUM_SPANS = 4096, 480_000
"""Boxes at once, more than a large machine runs; and spans, so many that all ids stay below 2^31."""

_PROBE_S = 20.0
_PROGRAMS = (("bwrap", "bubblewrap"), ("prlimit", "util-linux"))
"""What no box starts without, and the Debian package that it comes with."""

_LAST_RESORT = "only where the machine itself is thrown away afterwards: --isolation none"


class Kind(StrEnum):
    """How boxes are closed."""

    USERNS = "userns"
    UIDS = "uids"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that holds here or does not, in English and in Chinese."""

    name: str
    holds: bool
    text: str
    zh: str


@dataclass(slots=True)
class Isolation:
    """A way that was proven, and what it needs. `roots` are folders that a box sees besides the system's."""

    kind: Kind
    python: str
    folder: Path
    roots: tuple[str, ...]
    cgroups: Cgroups | None
    tmp_bytes: int = 512 * MIB
    facts: list[Fact] = field(default_factory=list[Fact])
    zygote: Zygote | None = None
    _num_boxes: int = 0

    @property
    def init(self) -> str:
        """Path of the compiled init process, as a box sees it."""
        return str(self.folder / _INIT) if self.kind is Kind.NONE else f"/strop/{_INIT}"

    @property
    def _places(self) -> list[tuple[str, int]]:
        """Memory that a box may write to, and how much."""
        return [("/dev/shm", 64 * MIB), ("/tmp", self.tmp_bytes), ("/mnt", 64 * MIB)]

    def next_uid(self) -> int:
        self._num_boxes += 1
        return _first_uid() + self._num_boxes % _UID_SPAN

    def open_zygote(self) -> None:
        """Let boxes be forks of one process from now on.

        Raises:
            SandboxError: it does not work here.
        """
        rights = [word for name in _ZYGOTE_RIGHTS for word in ("--cap-add", f"CAP_{name}")]
        command = [
            *(*_no_cores(), "bwrap", "--new-session", "--as-pid-1", *_NAMESPACES),
            *("--cap-drop", "ALL", *rights),
            *("--hostname", "box", *self._environment(), *self._file_system()),
            *("--chdir", "/", "--", self.python, "-B", f"/strop/{_ZYGOTE}"),
        ]
        plan = {"places": self._places, "roots": self.roots, "filter": f"/strop/{_FILTER}"}
        self.zygote = Zygote(command, plan)

    def command(self, seccomp: int, info: int) -> list[str]:
        """What starts a box; `seccomp` and `info` are descriptors that bubblewrap reads and writes."""
        python = [self.python, "-B", self.init]
        if self.kind is Kind.NONE:
            return python
        namespaces = list(_NAMESPACES)
        start: list[str] = []
        entry: list[str] = []
        if self.kind is Kind.USERNS:
            namespaces += ["--unshare-user", "--uid", "1000", "--gid", "1000"]
            if os.geteuid() == 0:  # root's user id opens /proc/sys for writing, even without one capability
                start = [
                    "setpriv",
                    "--reuid=65534",
                    "--regid=65534",
                    "--clear-groups",
                    "--inh-caps=-all",
                    "--",
                ]
        else:
            uid = str(self.next_uid())
            namespaces += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
            namespaces += ["--cap-add", "CAP_SETPCAP"]
            entry = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--no-new-privs"]
            entry += ["--inh-caps=-all", "--bounding-set=-all", "--"]
        return [
            *(
                *_no_cores(),
                *start,
                "bwrap",
                "--die-with-parent",
                "--new-session",
                "--as-pid-1",
                *namespaces,
                "--hostname",
                "box",
            ),
            *("--seccomp", str(seccomp), "--info-fd", str(info)),
            *self._environment(),
            *self._file_system(),
            *("--chdir", "/tmp", "--", *entry, *python),
        ]

    def environment(self) -> dict[str, str]:
        """All that a program finds in its environment."""
        return {
            "PATH": f"{os.path.dirname(self.python)}:{_PATH}",
            "HOME": "/tmp",
            "LANG": "C.UTF-8",
            "USER": "box",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONINTMAXSTRDIGITS": "0",  # as judges have it: a number may be printed, however long
            "PYTHONHASHSEED": "0",  # a program's sets have one order, whenever and wherever it runs
            "MPLBACKEND": "Agg",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "GOCACHE": "/tmp/.cache/go",
            "GOFLAGS": "-mod=mod",
            "CGO_ENABLED": "0",
            "NODE_PATH": "/usr/local/lib/node_modules:/usr/lib/node_modules:/usr/share/nodejs",
        }

    def _environment(self) -> list[str]:
        pairs = self.environment().items()
        return ["--clearenv", *(part for pair in pairs for part in ("--setenv", *pair))]

    def _file_system(self) -> list[str]:
        told = [*_folders("/etc", "/etc/ssl", "/strop", "/var"), "--ro-bind", "/usr", "/usr"]
        for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
            path = Path("/") / name
            if path.is_symlink():
                told += ["--symlink", os.readlink(path), str(path)]
            elif path.is_dir():
                told += ["--ro-bind", str(path), str(path)]
        for name in _ETC:
            told += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
        for name in _OWN_ETC:
            told += ["--ro-bind", str(self.folder / name), f"/etc/{name}"]
        for name in (_INIT, _ZYGOTE, _FILTER):
            told += ["--ro-bind", str(self.folder / name), f"/strop/{name}"]
        told += ["--proc", "/proc", "--dev", "/dev"]
        shared, *writable = self._places
        told += [*_memory(*shared), "--remount-ro", "/dev"]
        told += [word for place in writable for word in _memory(*place)]
        for root in self.roots:  # after /tmp, below which one may lie
            told += [
                *_folders(*(str(parent) for parent in reversed(Path(root).parents))),
                "--ro-bind",
                root,
                root,
            ]
        return [*told, "--symlink", "../tmp", "/var/tmp", "--remount-ro", "/"]

    def close(self) -> None:
        if self.zygote is not None:
            self.zygote.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.cgroups is not None:
            self.cgroups.close()


def _folders(*paths: str) -> list[str]:
    """Folders that others may enter; those that bubblewrap makes by itself are its user's alone."""
    return [part for path in paths if path not in _THERE for part in ("--perms", "0755", "--dir", path)]


def _memory(path: str, size: int) -> list[str]:
    return ["--perms", "1777", "--size", str(size), "--tmpfs", path]


def _no_cores() -> list[str]:
    """A crash writes no file and starts no program of the machine, which with 0 it may, to take cores."""
    limit = 0 if resource.getrlimit(resource.RLIMIT_CORE)[1] == 0 else 1
    return ["prlimit", f"--core={limit}:{limit}"]


def _first_uid() -> int:
    """A span of user ids of this server's own, far above any that a system gives."""
    return 100_000_000 + os.getpid() % _NUM_SPANS * _UID_SPAN


def refuse_without_programs(wanted: Kind | None) -> None:
    """Raises:
    SandboxError: what closes boxes in is not installed.
    """
    if wanted is Kind.NONE:
        return
    missing = {package: name for name, package in _PROGRAMS if shutil.which(name) is None}
    if missing:
        named = ", ".join(f"{package} ({name})" for package, name in missing.items())
        raise SandboxError(
            t(
                f"programs cannot be isolated here: not installed: {named}",
                f"无法在本机隔离程序：未安装 {named}",
            ),
            fix=f"apt install {' '.join(missing)}; {_LAST_RESORT}",
        )


def open_isolation(
    wanted: Kind | None = None,
    *,
    python: str | None = None,
    roots: Sequence[str] = (),
    tmp_bytes: int = 512 * MIB,
) -> Isolation:
    """The best way that works here, or the one that is `wanted`.

    Raises:
        SandboxError: none works; nothing is run without walls unless `Kind.NONE` is asked for.
    """
    refuse_without_programs(wanted)
    python = interpreter(python)
    folder = Path(tempfile.mkdtemp(prefix="strop-sandbox-"))
    try:
        folder.chmod(0o755)
        _write_folder(folder, python)
        ways = [wanted] if wanted else [Kind.UIDS, Kind.USERNS] if os.geteuid() == 0 else [Kind.USERNS]
        failures: list[str] = []
        for kind in ways:
            isolation = Isolation(
                kind=kind,
                python=python,
                folder=folder,
                roots=(*python_roots(python), *roots),
                cgroups=None,
                tmp_bytes=tmp_bytes,
            )
            if kind is not Kind.NONE:
                _write_filter(folder)
            problem = "" if kind is Kind.NONE else _try(isolation)
            if not problem:
                try:
                    _add_facts(isolation)
                except BaseException:
                    isolation.close()
                    raise
                return isolation
            failures.append(f"{kind}: {problem}")
        raise SandboxError(
            "programs cannot be isolated here; " + "; ".join(failures),
            fix="allow user namespaces (sysctl user.max_user_namespaces; "
            f"kernel.apparmor_restrict_unprivileged_userns=0); {_LAST_RESORT}",
        )
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _write_folder(folder: Path, python: str) -> None:
    for name, text in _OWN_ETC.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o644)  # whatever this process's umask: another user reads it in the box
    for module, compiled in (("init", _INIT), ("zygote", _ZYGOTE)):
        source, target = str(Path(__file__).with_name(f"{module}.py")), str(folder / compiled)
        if python == sys.executable:
            py_compile.compile(source, target, doraise=True)
        else:
            code = "import py_compile, sys; py_compile.compile(sys.argv[1], sys.argv[2], doraise=True)"
            done = subprocess.run([python, "-c", code, source, target], capture_output=True, text=True)
            if done.returncode:
                raise SandboxError(f"{python} cannot run the init process of a box: {done.stderr.strip()}")
        os.chmod(target, 0o644)


def _write_filter(folder: Path) -> None:
    (folder / _FILTER).write_bytes(filter_bytes())
    (folder / _FILTER).chmod(0o644)


def _try(isolation: Isolation) -> str:
    """Start one box; the reason why it does not, or nothing."""
    seccomp = filter_descriptor()
    read, write = os.pipe()
    try:
        done = subprocess.run(
            isolation.command(seccomp, write),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            pass_fds=(seccomp, write),
            timeout=_PROBE_S,
        )
    except subprocess.TimeoutExpired:
        return f"a box did not start within {_PROBE_S:g} s"
    finally:
        for descriptor in (seccomp, read, write):
            os.close(descriptor)
    # `init` finds no socket at its descriptor 0 and says so: it was reached, and all before it held.
    if "Socket operation on non-socket" in done.stderr or "not a socket" in done.stderr:
        return ""
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"bwrap ended with status {done.returncode}"


def _add_facts(isolation: Isolation) -> None:
    facts = isolation.facts
    walls = isolation.kind is not Kind.NONE
    facts.append(Fact("isolation", walls, *_KIND_TEXTS[isolation.kind]))
    loaded = ("loaded in every box", "每个沙箱均已加载") if walls else ("not used", "未使用")
    facts.append(Fact("seccomp", walls, *loaded))
    loopback = ("loopback of its own in every box", "每个沙箱仅有独立的回环网络")
    facts.append(Fact("network", walls, *(loopback if walls else ("the machine's", "与本机共用"))))
    groups = _groups_fact(isolation)  # first: version 2 makes none while another process is beside this one
    if isolation.kind is Kind.UIDS:
        facts.append(_zygote_fact(isolation))
    facts.append(groups)
    waits = Path("/proc/self/schedstat").exists()
    en, zh = "waiting for a processor does not count as a program's time", "等待处理器的时间不计入程序用时"
    facts.append(Fact("run delay", waits, *((en, zh) if waits else ("not told here", "本机不提供"))))


def _groups_fact(isolation: Isolation) -> Fact:
    try:
        isolation.cgroups = open_cgroups()
    except SandboxError as error:
        en = f"{error}; memory and processes are counted by the box's init process"
        return Fact("cgroup", False, en, f"{error}；内存与进程数由沙箱内的 init 进程统计")
    version = isolation.cgroups.version
    en, zh = f"version {version}: memory, processes", f"版本 {version}：限制内存与进程数"
    return Fact("cgroup", True, en, zh)


def _zygote_fact(isolation: Isolation) -> Fact:
    try:
        isolation.open_zygote()
    except (SandboxError, OSError) as error:
        en, zh = f"started one by one by bubblewrap: {error}", f"由 bubblewrap 逐个启动：{error}"
        return Fact("boxes", False, en, zh)
    return Fact("boxes", True, "forked from one that stands ready", "由常驻进程派生，毫秒级就绪")


_KIND_TEXTS = {
    Kind.USERNS: (
        "user, pid, net, ipc, uts, mount namespaces; no rights outside",
        "user、pid、net、ipc、uts、mount 命名空间；对外没有任何权限",
    ),
    Kind.UIDS: (
        "pid, net, ipc, uts, mount namespaces; a user id of its own for each box, no capability",
        "pid、net、ipc、uts、mount 命名空间；每个沙箱使用独立的用户 ID，没有任何 capability",
    ),
    Kind.NONE: (
        "NONE: programs run as this user, on this machine's files and network",
        "无隔离：程序以当前用户身份运行，可访问本机的文件与网络",
    ),
}


def interpreter(python: str | None = None) -> str:
    """The one named, or this process's, by a path that names no folder which a box lacks.

    >>> interpreter("/opt/project/../python/bin/python")
    '/opt/python/bin/python'
    """
    python = python or sys.executable
    return os.path.abspath(python) if os.sep in python else python


def python_roots(python: str) -> tuple[str, ...]:
    """Folders outside /usr that an interpreter is made of: its environment, and what that was made from."""
    code = "import sys; print(sys.prefix, sys.base_prefix, sys.exec_prefix, sep='\\n')"
    if python == sys.executable:
        found = [sys.prefix, sys.base_prefix, sys.exec_prefix]
    else:
        try:
            found = subprocess.run(
                [python, "-c", code], capture_output=True, text=True, check=True
            ).stdout.splitlines()
        except (OSError, subprocess.CalledProcessError) as error:
            raise SandboxError(f"{python!r} cannot be started as a Python interpreter: {error}") from error
    return outside_system(found)


def outside_system(paths: Sequence[str]) -> tuple[str, ...]:
    """Those that a box would not see anyway, each once."""
    real = dict.fromkeys(os.path.abspath(path) for path in paths)
    return tuple(path for path in real if not f"{path}/".startswith("/usr/") and os.path.isdir(path))
