"""A run of jest -> its test cases, by the report that a reporter of ours leaves in the box.

What a report says was written beside a program that may have written there, too: it tells what happened and
decides nothing.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ValidationError

REPORT, REPORTER = "jest-report.json", "jest-reporter.js"

REPORTER_CODE = f"""\
const fs = require("fs");
module.exports = class {{
  onRunComplete(_, results) {{ fs.writeFileSync("{REPORT}", JSON.stringify(results)); }}
}};
"""


class _Case(BaseModel):
    status: str
    fullName: str
    title: str
    ancestorTitles: list[str]
    failureMessages: list[str]


class _Suite(BaseModel):
    testFilePath: str
    testResults: list[_Case]


class _Report(BaseModel):
    testResults: list[_Suite]


def cases_of(report: bytes) -> list[dict[str, Any]] | None:
    """The cases in the reference's words; None if it is not a report."""
    try:
        suites = _Report.model_validate_json(report).testResults
    except ValidationError:
        return None
    return [
        {
            "passed": case.status == "passed",
            "full_name": case.fullName,
            "file": suite.testFilePath,
            "suite": " > ".join(case.ancestorTitles),
            "test": case.title,
            "failure_messages": case.failureMessages,
        }
        for suite in suites
        for case in suite.testResults
    ]
