"""Where in a completion the program is."""

import pytest

from strop_sandbox.extraction import CodeBlock, extract, without_entry

TWO = "```cpp\nint a;\n```\ntext\n```python\nb = 1\n```"


@pytest.mark.parametrize(
    ("completion", "language", "code", "kind"),
    [
        (TWO, "python", "b = 1", "fenced"),
        (TWO, "cpp", "int a;", "fenced"),
        (TWO, "go", "int a;", "fenced"),
        ("```c++\nint a;\n```", "cpp", "int a;", "fenced"),
        ("```\nx\n```", "python", "x", "fenced"),
        ("```js\nlet a = '```'\nb\n```", "nodejs", "let a = '```'\nb", "fenced"),
        ("so\n```py\nx = 1\ny", "python", "x = 1\ny", "incomplete_fenced"),
        ("import os\n\ndef f():\n    pass\n\nAll.", "python", "import os\n\ndef f():\n    pass", "heuristic"),
        ("Use this: SELECT 1; done", "sql", "SELECT 1;", "heuristic"),
        ("ls -l", "bash", "ls -l", "heuristic"),
        ("no code", "cpp", "", "empty"),
        ("", "python", "", "empty"),
    ],
)  # fmt: skip
def test_the_program_is_found(completion: str, language: str, code: str, kind: str) -> None:
    assert extract(completion, language) == (code, kind)


def test_a_caller_s_own_block_goes_by_its_priority() -> None:
    assert extract(TWO, "python", [CodeBlock(priority=40, code="mine")]) == ("mine", None)
    assert extract(TWO, "python", [CodeBlock(priority=15, code="mine")])[0] == "b = 1"


def test_what_starts_a_program_is_taken_from_its_functions() -> None:
    assert without_entry("def f(): ...\nif __name__ == '__main__':\n    f()\n", "python") == "def f(): ...\n"
    assert without_entry("int f();\nint main() {\n}\n", "cpp") == "int f();\n"
    assert without_entry("package main\nfunc f() {}", "go").strip() == "func f() {}"
