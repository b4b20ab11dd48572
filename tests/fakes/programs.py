"""Names of programs -> their paths, or a skipped test: what `make test` cannot install by itself."""

import os
import shutil

import pytest


def program(*names: str) -> str:
    """The path of the first of `names` that is installed, Debian's folder of PostgreSQL included.

    Where none is, the test is skipped; with `STROP_TEST_PROGRAMS=required`, as in CI, it fails.
    """
    folders = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/lib/postgresql/15/bin"])
    for name in names:
        if found := shutil.which(name, path=folders):
            return found
    text = f"needs {' or '.join(names)}: see .ci/debian-packages"
    if os.environ.get("STROP_TEST_PROGRAMS") == "required":
        pytest.fail(text)
    pytest.skip(text)
