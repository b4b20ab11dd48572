"""`python -m bench.sandbox_conformance`: SandboxFusion's own HTTP tests, asked of ours -> what failed, and
whether it is what `docs/sandbox_conformance.md` names, neither more nor less.

Its tests and models are those of `setup_sandbox_fusion.sh`, unmodified; their client is ours
(`bench.fusion_tests`). Ends with 1 where a test failed that is not named, or one that is named passed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import yaml

from bench.contender import ROOT
from bench.sandbox import CACHE, strop

NAMED = ROOT / "docs" / "sandbox_conformance.md"
_TESTS = "sandbox/tests"
_NO_PROBLEMS = ("minif2f_lean4_test", "minif2f_lean4_valid", "verilogeval_human", "verilogeval_machine")
"""Their rows are of languages that are not run, and of no class that is served."""

_LIMIT_S = 1500.0

_MBPP_1 = {
    "id": 1,
    "content": "Write a function to find the minimum cost path to reach (m, n) from (0, 0) for the given "
    "cost matrix cost[][] and a position (m, n) in cost[][].",
    "labels": {"test_setup_code": ""},
    "test_list": [
        "assert min_cost([[1, 2, 3], [4, 8, 2], [1, 5, 3]], 2, 2) == 8",
        "assert min_cost([[2, 3, 4], [5, 9, 3], [2, 6, 4]], 2, 2) == 12",
        "assert min_cost([[3, 4, 5], [6, 10, 4], [3, 7, 5]], 2, 2) == 16",
    ],
}
_MORE = {"mbpp": b"\n" + json.dumps(_MBPP_1).encode()}
"""Rows that their tests ask and their samples lack, as they are published (MBPP, CC BY 4.0)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`unnamed` failed and are no exception; `stale` are exceptions of which nothing failed."""

    passed: int
    failed: int
    unnamed: list[str]
    stale: list[str]

    @property
    def holds(self) -> bool:
        return bool(self.passed) and not self.unnamed and not self.stale


def exceptions(text: str) -> list[str]:
    """The first column of the document's tables: a test, or a file of tests.

    >>> exceptions("| test | why |\\n|---|---|\\n| `a/test_b.py` | no c |\\n| `a/test_d.py::e` | f |")
    ['a/test_b.py', 'a/test_d.py::e']
    """
    cells = (line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| `"))
    return [cell.strip("`") for cell in cells]


def compare(results: dict[str, bool], named: Iterable[str]) -> Verdict:
    """
    >>> compare({"a.py::x": True, "a.py::y[1]": False, "b.py::z": False}, ["a.py::y", "c.py"])
    Verdict(passed=1, failed=2, unnamed=['b.py::z'], stale=['c.py'])
    """

    def covers(name: str, test: str) -> bool:
        return test == name or test.startswith((f"{name}::", f"{name}["))

    names, failed = list(named), sorted(test for test, passed in results.items() if not passed)
    return Verdict(
        passed=sum(results.values()),
        failed=len(failed),
        unnamed=[test for test in failed if not any(covers(name, test) for name in names)],
        stale=[name for name in names if not any(covers(name, test) for test in failed)],
    )


def tables(configuration: str) -> dict[str, str]:
    """Data sets of their configuration, and the table of their store that holds each.

    >>> tables("dataset:\\n  registry:\\n  - class_name: A\\n    dataset_tables: {mbpp: code_eval_mbpp}")
    {'mbpp': 'code_eval_mbpp'}
    """
    registry = yaml.safe_load(configuration)["dataset"]["registry"]
    return {name: table for one in registry for name, table in one.get("dataset_tables", {}).items()}


def run(chosen: list[str]) -> dict[str, bool]:
    """Ask their tests of a server of ours; gives what passed of all that were not skipped.

    Raises:
        RuntimeError: they are not there, or could not be run.
    """
    python = CACHE / "envs" / "server" / "bin" / "python"
    if not python.exists():
        raise RuntimeError(f"SandboxFusion is not in {CACHE}: bash bench/setup_sandbox_fusion.sh")
    source = CACHE / "source"
    with tempfile.TemporaryDirectory() as temporary:
        folder, report = Path(temporary), Path(temporary) / "report.xml"
        problems = folder / "datasets"
        problems.mkdir()
        for name, table in tables((source / "sandbox/configs/local.yaml").read_text()).items():
            sample = source / _TESTS / "datasets" / "samples" / f"{table}.jsonl"
            if sample.exists() and name not in _NO_PROBLEMS:
                (problems / f"{name}.jsonl").write_bytes(sample.read_bytes() + _MORE.get(name, b""))
        with strop(folder, "--datasets", str(problems)) as url:
            command = [
                *(str(python), "-m", "pytest", "-q", "-o", "addopts=", "-p", "no:cacheprovider"),
                *("-p", "bench.fusion_tests", "-W", "ignore", f"--junitxml={report}", "--tb=line"),
                f"--ignore={_TESTS}/runners/samples",  # files that its tests send
                *(f"{_TESTS}/{one}" for one in chosen),
            ]
            env = {**os.environ, "STROP_SANDBOX_URL": url, "PYTHONPATH": f"{ROOT}:{source}"}
            subprocess.run(command, cwd=source, env=env, timeout=_LIMIT_S, check=False)
        if not report.exists():
            raise RuntimeError("their tests did not run")
        return results(ET.parse(report).getroot())


def results(report: ET.Element) -> dict[str, bool]:
    """Tests of a JUnit report by `folder/file.py::name`; those that were skipped are left out."""
    found: dict[str, bool] = {}
    for case in report.iter("testcase"):
        outcome = {child.tag for child in case}
        if "skipped" not in outcome:
            file = case.attrib["classname"].removeprefix("sandbox.tests.").replace(".", "/")
            found[f"{file}.py::{case.attrib['name']}"] = not outcome & {"failure", "error"}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.sandbox_conformance", description=__doc__)
    parser.add_argument(
        "tests", nargs="*", default=["runners", "datasets"], help="files or folders of theirs"
    )
    given = parser.parse_args()
    named = [
        name
        for name in exceptions(NAMED.read_text())
        if any(name.startswith(one) or one.startswith(name) for one in given.tests)
    ]
    verdict = compare(run(given.tests), named)
    print(f"{verdict.passed} passed, {verdict.failed} failed")
    for test in verdict.unnamed:
        print(f"failed and not named in {NAMED.name}: {test}")
    for name in verdict.stale:
        print(f"named in {NAMED.name}, and nothing of it failed: {name}")
    sys.exit(not verdict.holds)


if __name__ == "__main__":
    main()
