"""Environment -> an allocator that suits large tensors, and a collector that leaves imports alone.

A training step allocates and frees tensors of many megabytes. glibc maps each anew, and the kernel hands
it over in pages of 4 kB: measured at 430,000 page faults and a third of the matrix rate on a virtual machine;
with huge pages it was 32,000. The setting is read when a process starts, so whoever starts a trainer sets it,
and one that was started without replaces itself once.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager

_NAME, _VALUE = "GLIBC_TUNABLES", "glibc.malloc.hugetlb=1"


def with_huge_pages(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment to start a trainer in; tunables that the user set stay as they are.

    >>> with_huge_pages({"GLIBC_TUNABLES": "glibc.malloc.arena_max=2"})
    {'GLIBC_TUNABLES': 'glibc.malloc.arena_max=2'}
    """
    return {_NAME: _VALUE, **environment} if sys.platform == "linux" else dict(environment)


def use_huge_pages() -> None:
    """Start over with huge pages, unless that was done or the user set tunables of their own.

    Side effects:
        Replaces the process by itself, same id and arguments. Only on Linux; ignored where libc knows it not.
    """
    if sys.platform == "linux" and _NAME not in os.environ:
        os.environ[_NAME] = _VALUE
        os.execv(sys.executable, sys.orig_argv)


@contextmanager
def loading() -> Generator[None]:
    """Inside, modules are imported without looking for garbage; what they made is never looked at again.

    torch and transformers are a million objects that live as long as the process. The collector would go
    through them dozens of times while they load (measured: a seventh of that time), and in every full round
    later.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()
