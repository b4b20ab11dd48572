"""Environment -> the same command with an allocator that suits large tensors.

A training step allocates and frees tensors of many megabytes. glibc maps each anew, and the kernel hands it over in
pages of 4 kB: measured at 430,000 page faults and a third of the matrix rate on a virtual machine. With huge pages
it was 32,000. The setting is read when a process starts, so the command replaces itself once.
"""

from __future__ import annotations

import os
import sys

_NAME, _VALUE = "GLIBC_TUNABLES", "glibc.malloc.hugetlb=1"


def use_huge_pages() -> None:
    """Start over with huge pages, unless that was done or the user set tunables of their own.

    Side effects:
        Replaces the process by itself, same id and arguments. Only on Linux; ignored where libc knows it not.
    """
    if sys.platform == "linux" and _NAME not in os.environ:
        os.environ[_NAME] = _VALUE
        os.execv(sys.executable, sys.orig_argv)
