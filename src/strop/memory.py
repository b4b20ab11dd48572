"""Environment -> an allocator that suits large tensors, and a collector that leaves imports alone.

A training step allocates and frees tensors of many megabytes. glibc maps each anew, and the kernel hands
it over in pages of 4 kB: measured at 430,000 page faults and a third of the matrix rate on a virtual machine;
with huge pages it was 32,000. The setting is read when a process starts, so whoever starts a trainer sets it,
and one that was started without replaces itself once.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import cache

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


def give_back_free_memory() -> None:
    """Hand what was freed back to the system, so that another thread's large tensors can take its place.

    glibc keeps freed memory for the thread that freed it. Does nothing where libc knows it not.
    """
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> Callable[[int], int] | None:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):  # another libc; Windows has no library without a name
        return None


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
