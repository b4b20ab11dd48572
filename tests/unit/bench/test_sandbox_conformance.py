"""SandboxFusion's own tests against ours: what may fail is named, once, and read by what runs them."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from bench.sandbox_conformance import NAMED, compare, exceptions, results

REPORT = """<testsuites><testsuite>
<testcase classname="sandbox.tests.runners.test_go" name="test_a[1]"><failure /></testcase>
<testcase classname="sandbox.tests.runners.test_go" name="test_b" />
<testcase classname="sandbox.tests.datasets.test_c" name="test_d"><skipped /></testcase>
</testsuite></testsuites>"""


def test_a_failure_that_is_not_named_and_a_name_without_a_failure_are_both_told() -> None:
    found = results(ET.fromstring(REPORT))
    assert found == {"runners/test_go.py::test_a[1]": False, "runners/test_go.py::test_b": True}
    assert compare(found, ["runners/test_go.py::test_a"]).holds
    assert compare(found, []).unnamed == ["runners/test_go.py::test_a[1]"]
    stale = compare(found, ["runners/test_go.py", "runners/test_golang.py"])
    assert (stale.holds, stale.unnamed, stale.stale) == (False, [], ["runners/test_golang.py"])
    assert not compare({}, []).holds


def test_no_exception_is_a_language_that_this_server_runs() -> None:
    from strop_sandbox.languages import LANGUAGES

    named = exceptions(NAMED.read_text())
    assert len(named) == len(set(named)) == 21
    assert [name.partition("::")[0] for name in named if "::" in name] == [
        "runners/test_isolation.py",
        "datasets/test_multiple.py",
        "datasets/test_humanevalds.py",
        "datasets/test_humanevalds.py",
        "datasets/test_mbxp.py",
        "datasets/test_mbxp.py",
        "datasets/test_cruxeval_x.py",
    ]
    ours = {f"runners/test_{one.name.lower()}.py" for one in LANGUAGES}
    assert not ours & set(named)
