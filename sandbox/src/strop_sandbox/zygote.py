"""Orders on a socket -> boxes: each a fork of this process, behind walls of its own.

Started once, by bubblewrap, inside what every box sees of the machine; process 1 there, on the standard
library alone. It keeps the rights that making namespaces needs, runs nothing but itself, and every box gives
them up before its first program. So a box costs two forks instead of a start of bubblewrap and of Python.

Descriptor 0 is the socket. Its first message is the plan: `places` [[path, bytes]] (memory that each box has
of its own), `roots` (folders to be seen again where a place hides them), `filter` (a file). Each further one
is {uid} with two descriptors: the box's channel, and where it says why it could not be made.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import fcntl
import gc
import json
import os
import signal
import socket
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # a box loads no more than it needs
    from typing import Any

_NAMESPACES = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x20000000 | 0x40000000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWPID, NEWNET."""

_RDONLY, _NOSUID, _NODEV, _NOEXEC, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
_PR_SET_SECCOMP, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 22, 24, 38
_SECCOMP_MODE_FILTER = 2
_CAPABILITY_VERSION = 0x20080522
_SIOCSIFFLAGS, _UP_AND_RUNNING = 0x8914, 1 | 64
_NUM_TERMINALS = 64
"""Of a box: the machine has a few thousand for all."""

_BOUNDS = {"kernel/shmall": "16384", "kernel/msgmni": "256", "kernel/sem": "250 8000 32 64"}
"""Of a box's own System V memory (64 MiB, in pages), queues and semaphores, which no process need hold."""

_COVERED = ("sys", "sysrq-trigger", "irq", "bus")
"""Of a box's /proc: what is read-only for everybody."""

_libc = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def serve() -> None:
    """Make boxes until the other side closes the socket; returns in each box, and ends here with all."""
    control = socket.socket(fileno=os.dup(0))
    plan = json.loads(control.recv(1 << 20))
    os.umask(0o022)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for what ends here
    gc.freeze()
    handle = os.pidfd_open(os.getpid())
    socket.send_fds(control, [b"ready"], [handle])
    os.close(handle)
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, 1 << 12, 2)
        if not data:
            sys.exit(0)
        channel, words = descriptors
        try:
            if os.fork() == 0:
                control.detach()  # its number is the box's to use
                _become_box(json.loads(data)["uid"], channel, words, plan)
                return
        except OSError as error:
            os.write(words, f"cannot fork: {error.strerror}\n".encode())
        for descriptor in descriptors:
            os.close(descriptor)


def _become_box(uid: int, channel: int, words: int, plan: dict[str, Any]) -> None:
    """In the fork: returns in process 1 of the new box, with its channel as descriptor 0."""
    try:
        os.dup2(channel, 0)
        os.dup2(words, 2)
        _check(_libc.unshare(_NAMESPACES), "namespaces")
        _own_places(plan)
        if os.fork() != 0:
            os._exit(0)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _own_proc()
        _loopback()
        os.chdir("/tmp")
        _give_up_rights(uid)
        _filter(plan["filter"])
        with socket.socket(fileno=os.dup(0)) as told:
            socket.send_fds(told, [b"p"], [os.pidfd_open(os.getpid())])
    except BaseException as error:  # noqa: BLE001 - the process's edge: the one place where it can be told
        os.write(2, f"a box could not be made: {error}\n".encode())
        os._exit(1)


def _own_places(plan: dict[str, Any]) -> None:
    _mount("", "/", "", _REC | _PRIVATE)
    hidden = [
        root for root in plan["roots"] if any(root.startswith(f"{path}/") for path, _ in plan["places"])
    ]
    roots = {root: os.open(root, os.O_PATH | os.O_DIRECTORY) for root in hidden}
    for path, size in plan["places"]:
        _mount("tmpfs", path, "tmpfs", _NOSUID | _NODEV, f"size={size},mode=1777")
    terminals = f"newinstance,ptmxmode=0666,mode=620,max={_NUM_TERMINALS}"
    _mount("devpts", "/dev/pts", "devpts", _NOSUID | _NOEXEC, terminals)
    for root, descriptor in roots.items():
        os.makedirs(root, exist_ok=True)
        _mount(f"/proc/self/fd/{descriptor}", root, "", _BIND | _REC)
        os.close(descriptor)


def _own_proc() -> None:
    _mount("proc", "/proc", "proc", _NOSUID | _NODEV | _NOEXEC)
    for name, value in _BOUNDS.items():
        with contextlib.suppress(FileNotFoundError), open(f"/proc/sys/{name}", "w") as file:
            file.write(value)  # a kernel without System V memory has none to bound
    for name in _COVERED:
        path = f"/proc/{name}"
        if os.path.exists(path):
            _mount(path, path, "", _BIND | _REC)
            _mount("", path, "", _BIND | _REMOUNT | _RDONLY | _NOSUID | _NODEV | _NOEXEC)


def _mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    words = [word.encode() or None for word in (source, target, kind)]
    done = _libc.mount(*words, ctypes.c_ulong(flags), options.encode() or None)
    _check(done, f"mount {target}")


def _loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _UP_AND_RUNNING))


def _give_up_rights(uid: int) -> None:
    """No capability is held, none can be had again, and the user is one that nobody else is."""
    with open("/proc/sys/kernel/cap_last_cap") as file:
        last = int(file.read())
    for capability in range(last + 1):
        _check(_libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0), "bounding set")
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    head, none = struct.pack("=Ii", _CAPABILITY_VERSION, 0), bytes(24)
    _check(_libc.capset(head, none), "capabilities")
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")


def _filter(path: str) -> None:
    with open(path, "rb") as file:
        instructions = array.array("B", file.read())
    address, length = instructions.buffer_info()
    program = _Program(length // 8, address)
    _check(_libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0), "seccomp")


def _check(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


if __name__ == "__main__":
    import strop_init  # pyright: ignore[reportMissingImports] - `strop_sandbox.init`, which lies beside this file there

    serve()
    del sys.modules["strop_init"]  # a program's module may have any name
    strop_init.main()  # pyright: ignore[reportUnknownMemberType]
