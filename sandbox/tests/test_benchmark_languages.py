"""Benchmarks in many languages: MultiPL-E, MBXP and HumanEval-DS, an answer each that is right, wrong, or leaves."""

import os

import pytest

from benchmark_rows import asked, fenced, refusal, submit

REQUIRED = os.environ.get("STROP_TEST_PROGRAMS") == "required"

MULTIPLE_ROWS = {
    "sh": ("double() {\n", "}\n\nset -e\nrun_test() {\n    [[ $(double 2) = 4 ]]\n    [[ $(double 5) = 10 ]]\n}\n\nrun_test",
           "    echo $(( 2 * $1 ))\n", "    echo 4\n", "    exit 0\n", ["\n}"]),
    "js": ("function double(x){\n", "const assert = require('node:assert');\nfunction test() {\n  assert.deepEqual(double([2]),[2, 2]);\n}\n\ntest();",
           "  return [...x, ...x];\n}\n", "  return x;\n}\n", "  process.exit(0);\n}\n", ["\nfunction "]),
    "pl": ("sub double {\n    my($x) = @_;\n", "sub testhumaneval {\n    my $candidate = \\&double;\n    if ($candidate->(2) == 4) { print \"ok!\" } else { exit 1; }\n}\n\ntesthumaneval();",
           "    return 2 * $x;\n}\n", "    return $x;\n}\n", "    exit 0;\n}\n", ["\nsub"]),
    "lua": ("local function double(x)\n", "lu = require('luaunit')\n\nfunction test_humaneval()\n    lu.assertEquals(double(2), 4)\nend\n\nos.exit(lu.LuaUnit.run())",
            "  return 2 * x\nend\n", "  return x\nend\n", "  os.exit(0)\nend\n", ["\nfunction"]),
    "php": ("<?php\nfunction double($x) {\n", "function test(): void {\n    if (double(2) !== 4) { throw new Exception(\"Test failed!\"); }\n}\n\ntest();",
            "    return 2 * $x;\n}\n", "    return $x;\n}\n", "    exit(0);\n}\n", ["\nfunction"]),
    "rb": ("def double(x)\n", "require 'test/unit'\nclass TestHumanEval < Test::Unit::TestCase\n  def test_double\n    assert_equal(4, method(:double).call(2))\n  end\nend\n",
           "  2 * x\nend\n", "  x\nend\n", "  exit!(0)\nend\n", ["\nclass"]),
    "r": ("double <- function(x) {\n", "test_humaneval <- function() {\n    stopifnot(isTRUE(all.equal(double(2), 4)))\n}\ntest_humaneval()",
          "    2 * x\n}\n", "    x\n}\n", "    quit(status = 0)\n}\n", ["\n#"]),
    "cpp": ("#include <vector>\nlong twice(long x) {\n", "}\nint main() {\n    auto candidate = twice;\n    assert(candidate(2) == 4);\n}\n",
            "  return 2 * x;\n", "  return x;\n", "  exit(0);\n", ["\n}"]),
    "rs": ("fn double(x: i64) -> i64 {\n", "}\n\nfn main() {\n    let candidate = double;\n    assert_eq!(candidate(2), 4);\n}\n",
           "    2 * x\n", "    x\n", "    std::process::exit(0)\n", ["\n}"]),
    "java": ("import java.util.*;\nclass Problem {\n    public static long twice(long x) {\n", "    }\n    public static void main(String[] args) {\n    assert(twice(2l) == (4l));\n    }\n\n}\n",
             "        return 2 * x;\n", "        return x;\n", "        System.exit(0); return 0;\n", ["\n    }\n"]),
    "go_test.go": ("package twice_test\n\nimport (\n    \"testing\"\n    \"fmt\"\n)\n\nfunc twice(x int) int {\n", "func TestTwice(t *testing.T) {\n\tif fmt.Sprintf(\"%v\", twice(2)) != \"4\" {\n\t\tt.Errorf(\"no\")\n\t}\n}\n",
                   "    return 2 * x\n}\n", "    return x\n}\n", "    os.Exit(0)\n    return x\n}\n", ["\nfunc"]),
}  # fmt: skip
"""By language: the prompt, the tests, and what a model says: right, wrong, leaving, and the stop tokens."""


@pytest.mark.parametrize("language", MULTIPLE_ROWS)
def test_multipl_e_puts_its_tests_behind_the_answer(service, language: str) -> None:
    prompt, tests, right, wrong, leave, stops = MULTIPLE_ROWS[language]
    row = {
        "name": "HumanEval_900_double",
        "language": language,
        "prompt": prompt,
        "tests": tests,
        "stop_tokens": stops,
    }
    closing = "}\n" if tests.startswith("}") else "    }\n}\n" if language == "java" else ""
    is_slow = language in ("cpp", "java", "rs", "go_test.go")  # to be compiled each time
    for answer, accepted in ((right, True), (leave, False), *(() if is_slow else ((wrong, False),))):
        whole = fenced(f"{prompt}{answer}{closing}", language.split("_")[0])
        told = submit(service, "MultiPLEDataset", row, whole, is_freeform=True)
        if told["tests"][0]["exec_info"]["status"] == "SandboxError":
            pytest.skip(told["tests"][0]["exec_info"]["message"])
        ran = told["tests"][0]["exec_info"]["run_result"] or {"stderr": ""}
        if not REQUIRED and "module 'luaunit' not found" in ran["stderr"]:
            pytest.skip("needs lua-unit")
        assert told["accepted"] is accepted, told["tests"][0]["exec_info"]
    if is_slow:
        return
    told = submit(service, "MultiPLEDataset", row, f"{right}{closing}{stops[0]} and more(")
    assert told["accepted"] is True, told["tests"][0]["exec_info"]


def test_a_language_that_is_not_run_is_never_accepted_and_says_so(service) -> None:
    row = {"name": "x", "language": "jl", "prompt": "f(x) = ", "tests": "@test f(1) == 1"}
    told = submit(service, "MultiPLEDataset", row, "x", is_freeform=True)
    assert told["accepted"] is False
    assert told["tests"][0]["exec_info"]["status"] == "SandboxError"
    assert "julia" in told["tests"][0]["exec_info"]["message"]


def test_multipl_e_asks_in_two_languages() -> None:
    row = {"name": "x", "language": "js", "prompt": "function f(", "tests": ""}
    english = asked("MultiPLEDataset", row, extra={"is_freeform": True})
    chinese = asked("MultiPLEDataset", row, locale="zh", extra={"is_freeform": True})
    assert english.startswith("```nodejs\nfunction f(\n```\n\nPlease complete")
    assert chinese.startswith("```nodejs\nfunction f(\n```\n\n请按照")
    assert asked("MultiPLEDataset", row) == "function f("


def mbxp(language: str, code: str, execution: str = "") -> dict:
    labels = {"task_id": "MBPP/1", "programming_language": language, "execution_language": execution or language,
              "fewshot": "Question:Another.\n\nAnswer:\nHere."}  # fmt: skip
    return {"id": 1, "content": "Write twice(x).", "labels": labels, "test": {"code": code}}


@pytest.mark.parametrize(
    ("row", "right", "wrong", "leave"),
    [(mbxp("python", "#<INSERT>\nassert twice(2) == 4"), "def twice(x):\n    return 2 * x\nif __name__ == '__main__':\n    exit()",
      "def twice(x): return x", "exit(0)"),
     (mbxp("javascript", "#<INSERT>\nif (twice(2) !== 4) { throw 'no' }", "typescript"), "const twice = (x) => 2 * x;",
      "const twice = (x) => x;", "process.exit(0)"),
     (mbxp("cpp", "#<INSERT>\n\nint main(int argc, char* argv[]) {\n    if (twice(2) != 4) { throw 1; }\n    return 0;\n}"),
      "#include <cstdio>\nint twice(int x) { return 2 * x; }\nint main() { return 9; }", "#include <cstdio>\nint twice(int x) { return x; }",
      "#include <cstdlib>\n#include <cstdio>\nint twice(int x) { exit(0); }"),
     (mbxp("perl", "#<INSERT>\nif (twice(2) != 4) { die 'no'; }"), "sub twice { return 2 * $_[0]; }", "sub twice { return 1; }", "exit 0;")],
)  # fmt: skip
def test_mbxp_puts_the_answer_into_its_test(service, row: dict, right: str, wrong: str, leave: str) -> None:
    language = row["labels"]["programming_language"]
    for code, accepted in ((right, True), (wrong, False), (leave, False)):
        told = submit(service, "MBXPDataset", row, fenced(code, language))
        if told["tests"][0]["exec_info"]["status"] == "SandboxError":
            pytest.skip(told["tests"][0]["exec_info"]["message"])
        assert told["accepted"] is accepted, told["tests"][0]["exec_info"]
        assert told["test_code"] == row["test"]["code"]


def test_mbxp_asks_with_its_examples_context_and_words(service) -> None:
    row = mbxp("python", "#<INSERT>")
    assert asked("MBXPDataset", row, "mbxp_v1_en") == "Write twice(x)."
    shown = "Question:Another.\n\nAnswer:\nHere.\n\n"
    assert (
        asked("MBXPDataset", row, "mbxp_v1_en", is_fewshot=True)
        == f"{shown}Question:Write twice(x).\n\nAnswer:\n"
    )
    assert (
        asked("MBXPDataset", row, "oodtest_v1_zh", is_fewshot=True)
        == f"{shown}问题：Write twice(x).\n\n答案：\n"
    )
    with_docs = {**row, "labels": {**row["labels"], "docs": "About it."}}
    assert asked("MBXPDataset", with_docs) == "About it.\n\nQuestion:Write twice(x).\n\nAnswer:\n"
    own = {"autoeval_custom_fewshot": {"MBPP": "Mine."}}
    assert asked("MBXPDataset", row, is_fewshot=True, extra=own).startswith("Mine.\n\nQuestion:")
    both = "```python\ndef twice(x):\n    return half(x)\n```\nand\n```python\ndef half(x): return 2 * x\n```"
    row = mbxp("python", "#<INSERT>\nassert twice(2) == 4")
    assert submit(service, "MBXPDataset", row, both)["accepted"] is False
    assert submit(service, "MBXPDataset", row, both, autoeval_extract_code_mode="all")["accepted"] is True
    assert "first or all" in refusal(service, "MBXPDataset", row, both, autoeval_extract_code_mode="last")


def test_humanevalds_puts_the_methods_of_a_java_class_into_its_own(service) -> None:
    test = "class Main {\n\n#<INSERT>\n\n    public static void main(String[] args) { assert(twice(2) == 4); }\n}"
    code = "import java.util.*;\npublic class Problem {\n    static int two() { return 2; }\n" \
        "    public static int twice(int x) { return two() * x; }\n" \
        "    public static void main(String[] args) { System.exit(0); }\n}"  # fmt: skip
    told = submit(service, "MBXPDataset", mbxp("java", test), fenced(code, "java"), "humanevalds_v2_en")
    if told["tests"][0]["exec_info"]["status"] == "SandboxError":
        pytest.skip(told["tests"][0]["exec_info"]["message"])
    assert told["accepted"] is True, told["tests"][0]["exec_info"]
    assert "System.exit" not in told["full_code"]
