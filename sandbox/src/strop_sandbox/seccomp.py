"""Nothing -> a seccomp filter (BPF): the system calls that no program here has a use for, refused.

The filter lies over every process of a box. What namespaces, missing capabilities and limits forbid anyway
is refused here once more; what they do not cover (vsock leads out of a virtual machine, whatever the
namespace; io_uring passes by filters; keyrings are the user's) is refused here alone.
"""

from __future__ import annotations

import errno
import functools
import os
import resource
import socket
import tempfile
from typing import Any

from strop_sandbox.errors import SandboxError

REFUSED = (
    # looking into and steering other processes
    *("ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "process_madvise", "pidfd_getfd"),
    # mounts and roots
    *("mount", "umount2", "umount", "pivot_root", "chroot", "move_mount", "open_tree", "fsopen", "fsconfig"),
    *("fsmount", "fspick", "mount_setattr", "open_by_handle_at", "name_to_handle_at"),
    # namespaces
    *("unshare", "setns"),
    # the kernel
    *("bpf", "perf_event_open", "kexec_load", "kexec_file_load", "init_module", "finit_module"),
    *("delete_module", "reboot", "swapon", "swapoff", "syslog", "acct", "quotactl", "quotactl_fd"),
    *("iopl", "ioperm", "modify_ldt", "lookup_dcookie", "userfaultfd", "vhangup", "nfsservctl"),
    # calls that reach the kernel by a way which filters do not see
    *("io_uring_setup", "io_uring_enter", "io_uring_register"),
    # what the whole machine has a bounded number of, or does together
    *("io_setup", "sync"),
    # keys, clocks, names, watches of the whole system
    *("add_key", "keyctl", "request_key"),
    *("settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "stime", "sethostname", "setdomainname"),
    *("fanotify_init", "fanotify_mark", "mbind", "migrate_pages", "move_pages", "set_mempolicy"),
)

FAMILIES = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)
"""Address families that may be opened: their reach ends with the box's own network namespace."""

ON_INIT = {
    "prlimit64": 0,
    "sched_setaffinity": 0,
    "sched_setscheduler": 0,
    "sched_setparam": 0,
    "sched_setattr": 0,
    "setpriority": 1,
    "ioprio_set": 1,
}
"""Calls that are refused on process 1, and which argument names it. Its user id is that of its programs, and
one that ends it would turn a wrong answer into a failure of the sandbox."""

_BY_USER = {"setpriority": os.PRIO_USER, "ioprio_set": 3}
"""All processes of a user id, by the first argument."""

_NAMESPACE_FLAGS = 0x7E020080
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET, NEWTIME."""

_CORE_LIMIT = {"setrlimit": (0,), "prlimit64": (1, 2)}
"""Where a call names the limit, and where its new value. A machine that pipes cores to a program of its own
starts that for each crash, outside of the box, unless the limit is 1, which `Isolation` sets."""

_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_INT = 0xFFFFFFFF
"""What the kernel looks at of an argument that is an int."""


@functools.cache
def filter_bytes() -> bytes:
    """The program, as `bwrap --seccomp` takes it, for this machine's architecture.

    Raises:
        SandboxError: libseccomp is not there.
    """
    try:
        import pyseccomp as seccomp  # pyright: ignore[reportMissingTypeStubs]
    except (ImportError, RuntimeError, OSError) as error:
        raise SandboxError(
            f"seccomp filters cannot be made: {error}",
            fix="apt install libseccomp2",
        ) from error
    refuse = seccomp.ERRNO(errno.EPERM)
    rules = seccomp.SyscallFilter(defaction=seccomp.ALLOW)

    def rule(action: int, call: str, *conditions: Any) -> None:
        try:
            rules.add_rule(action, call, *conditions)
        except (
            OSError,
            ValueError,
            RuntimeError,
        ):  # a call that this architecture or library has no name for
            if call in ("ptrace", "mount", "unshare", "setns", "bpf", "socket", "clone", "clone3"):
                raise

    for call in REFUSED:
        rule(refuse, call)
    rule(seccomp.ERRNO(errno.ENOSYS), "clone3")  # its flags lie in memory; libraries then take clone
    for bit in range(32):
        if _NAMESPACE_FLAGS >> bit & 1:
            flag = 1 << bit
            rule(refuse, "clone", seccomp.Arg(0, seccomp.MASKED_EQ, flag, flag))
    for call, argument in ON_INIT.items():
        rule(refuse, call, seccomp.Arg(argument, seccomp.MASKED_EQ, _INT, 1))
    for call, kind in _BY_USER.items():
        rule(refuse, call, seccomp.Arg(0, seccomp.MASKED_EQ, _INT, kind))
    for call, (kind, *value) in _CORE_LIMIT.items():
        given = [seccomp.Arg(one, seccomp.NE, 0) for one in value]
        rule(refuse, call, seccomp.Arg(kind, seccomp.MASKED_EQ, _INT, resource.RLIMIT_CORE), *given)
    for request in (_TIOCSTI, _TIOCLINUX):
        rule(refuse, "ioctl", seccomp.Arg(1, seccomp.MASKED_EQ, _INT, request))
    for family in range(socket.AF_UNSPEC, 64):
        if family not in FAMILIES:
            rule(seccomp.ERRNO(errno.EAFNOSUPPORT), "socket", seccomp.Arg(0, seccomp.EQ, family))
    rule(seccomp.ERRNO(errno.EAFNOSUPPORT), "socket", seccomp.Arg(0, seccomp.GE, 64))
    with tempfile.TemporaryFile() as file:
        rules.export_bpf(file)
        file.seek(0)
        return file.read()


def filter_descriptor() -> int:
    """The filter in a file of memory, ready to be read; the caller closes it."""
    descriptor = os.memfd_create("seccomp")
    os.write(descriptor, filter_bytes())
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
