"""What people see of rows that were tried."""

import pytest

from strop.cli.function_calls import Tried, _print_table
from strop.schema.reply import FunctionReply


def test_a_result_is_shown_as_it_is_whatever_brackets_it_holds(capsys: pytest.CaptureFixture[str]):
    reply = FunctionReply(error="[bold]no[/bold] :bug:", error_code="failed")
    _print_table([Tried(values={}, reply=reply)])
    assert "[bold]no[/bold] :bug:" in capsys.readouterr().out.replace("\n", "")
