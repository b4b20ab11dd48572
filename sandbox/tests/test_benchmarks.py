"""`/submit` and the data-set paths for the rows of public benchmarks in Python, as they are published."""

import base64
import json
import pickle
import zlib
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmark_rows import DOUBLE, DOUBLE_STORED, asked, fenced, refusal, submit
from strop_sandbox.datasets import Datasets
from strop_sandbox.wire import GetPromptsRequest, TestConfig


@pytest.mark.parametrize("row", [DOUBLE, DOUBLE_STORED])
def test_humaneval_goes_on_from_the_prompt_and_stops_at_the_next_statement(service, row: dict) -> None:
    told = submit(service, "HumanEvalDataset", row, "    return x + x\n\nprint(double(1\n")
    assert told["accepted"] is True
    assert told["extracted_code"] == "    return x + x\n"
    assert told["full_code"].endswith("check(double)\n")
    assert submit(service, "HumanEvalDataset", row, "    return x * x\n")["accepted"] is False


def test_humaneval_takes_a_whole_answer_when_it_is_asked_for_one(service) -> None:
    answer = fenced("def double(x):\n    return x + x")
    told = submit(service, "HumanEvalDataset", DOUBLE, answer, is_freeform=True)
    assert (told["accepted"], told["extracted_type"]) == (True, "fenced")
    assert submit(service, "HumanEvalDataset", DOUBLE, answer)["accepted"] is False
    wrong = fenced("def double(x):\n    return 4")
    assert submit(service, "HumanEvalDataset", DOUBLE, wrong, is_freeform=True)["accepted"] is False


@pytest.mark.parametrize(
    "leave",
    ["import sys; sys.exit(0)", "import os; os._exit(0)", "raise SystemExit", "exit()",
     "print('ok', 'passed', 'True'); import os; os._exit(0)",
     "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"],
)  # fmt: skip
def test_an_answer_that_leaves_before_the_test_is_over_is_wrong(service, leave: str) -> None:
    told = submit(service, "HumanEvalDataset", DOUBLE, f"    {leave}\n")
    assert told["accepted"] is False
    (test,) = told["tests"]
    assert test["passed"] is False
    if test["exec_info"]["status"] == "Success":
        assert "no word that the tests are over" in test["exec_info"]["message"]


def test_half_a_surrogate_pair_is_told_as_a_question_mark(service) -> None:
    told = submit(service, "HumanEvalDataset", DOUBLE, "    return x + x  # \ud800\n")
    assert (told["accepted"], told["extracted_code"]) == (True, "    return x + x  # ?\n")


def test_the_weak_rule_may_be_asked_for(service) -> None:
    leave = "    raise SystemExit\n"
    assert submit(service, "HumanEvalDataset", DOUBLE, leave, append_flag=False)["accepted"] is True
    assert "append_flag" in refusal(service, "HumanEvalDataset", DOUBLE, leave, append_flag="no")


def test_what_humaneval_takes_for_granted_is_imported(service) -> None:
    row = {**DOUBLE, "test": "def check(f):\n    assert f(np.float64(2)) == 4\n    assert f(math.inf) > 1\n"}
    body = "    values: List[int] = [x, x]\n    return functools.reduce(lambda a, b: a + b, values)\n"
    assert submit(service, "HumanEvalDataset", row, body)["accepted"] is True


BIG = {
    "task_id": "BigCodeBench/9",
    "complete_prompt": 'def task_func(n):\n    """Squares."""\n',
    "instruct_prompt": "Write task_func(n) that gives the squares.",
    "entry_point": "task_func",
    "test": "import unittest\nclass TestCases(unittest.TestCase):\n    def test_a(self):\n"
    "        self.assertEqual(task_func(3), [0, 1, 4])\n    def test_b(self):\n"
    "        self.assertEqual(task_func(0), [])\n",
}


def test_bigcodebench_runs_its_unittest(service) -> None:
    kind = "BigCodeBenchDataset"
    assert submit(service, kind, BIG, "    return [i * i for i in range(n)]\n")["accepted"] is True
    assert submit(service, kind, BIG, "    return []\n")["accepted"] is False
    leave = fenced("import os\ndef task_func(n):\n    os._exit(0)")
    assert submit(service, kind, BIG, leave, is_freeform=True)["accepted"] is False
    assert asked(kind, BIG, extra={"is_freeform": True}) == BIG["instruct_prompt"]
    assert asked(kind, BIG) == BIG["complete_prompt"]
    stored = {"id": 1, "content": BIG["complete_prompt"], "test": BIG["test"], "labels": {}}
    right = "    return [i * i for i in range(n)]\n"
    assert submit(service, "HumanEvalDataset", stored, right, "bigcodebench")["accepted"] is True


def test_evoeval_counts_by_the_kind_of_its_problems(service) -> None:
    row = {**DOUBLE, "task_id": "EvoEval_tool_use_EvoEval/7"}
    repeated = "    return x + x\ndef double(x):\n    ret"
    assert submit(service, "EvoEvalDataset", row, repeated)["accepted"] is True
    body = {"dataset": "evoeval", "config": {}}
    source = service.client.post("/get_metrics_function", json=body).json()["function"]
    names = {"repeats": 2, "k_targets": [1, 2, 10]}
    exec(source, names)
    results = [
        SimpleNamespace(id=f"EvoEval_{kind}_EvoEval/{number}", accepted=accepted)
        for kind, number, accepted in [("tool_use", 1, True), ("tool_use", 1, False), ("tool_use", 2, False),
                                       ("tool_use", 2, False), ("subtle", 1, True), ("subtle", 1, True)]
    ]  # fmt: skip
    assert names["get_metrics"](results) == {
        "tool_use/Pass@k=1": 0.25, "tool_use/Pass@k=2": 0.5, "subtle/Pass@k=1": 1.0, "subtle/Pass@k=2": 1.0,
    }  # fmt: skip


SUM_UP = {
    "task_id": 601,
    "text": "Write a function to add up a list.",
    "test_setup_code": "OFFSET = 0",
    "test_list": ["assert add_up([1, 2]) == 3", "assert add_up([]) == OFFSET", "assert add_up([5]) == 5"],
}


def test_mbpp_shows_its_asserts_and_runs_them(service) -> None:
    assert asked("MBPPDataset", SUM_UP) == (
        "You are an expert Python programmer, and here is your task: Write a function to add up a list. "
        "Your code should pass these tests:\n\n" + "\n".join(SUM_UP["test_list"])
    )
    right = fenced("def add_up(a):\n    return sum(a)\nassert add_up([9]) == 0")
    assert submit(service, "MBPPDataset", SUM_UP, right)["accepted"] is True
    assert submit(service, "MBPPDataset", SUM_UP, "[BEGIN]\n" + right + "\n[DONE]\n")["accepted"] is True
    wrong = fenced("def add_up(a):\n    return 3")
    assert submit(service, "MBPPDataset", SUM_UP, wrong)["accepted"] is False
    assert submit(service, "MBPPDataset", SUM_UP, fenced("exit()"))["accepted"] is False


def test_mbpp_with_examples_keeps_its_last_assert_unseen(service) -> None:
    told = asked("MBPPDataset", SUM_UP, is_fewshot=True, extra={"fewshot": "An example.\n"})
    assert told.startswith("An example.\nYou are an expert")
    assert SUM_UP["test_list"][1] in told
    assert SUM_UP["test_list"][2] not in told
    row = {**SUM_UP, "test_list": ["assert False", "assert False", "assert add_up([5]) == 5"]}
    config = {"dataset_type": "MBPPDataset", "provided_data": row, "is_fewshot": True}
    body = {"id": 0, "completion": fenced("def add_up(a): return 5"), "config": config}
    assert service.client.post("/submit", json=body).json()["accepted"] is True


MHPP_ROW = {
    "id": 5,
    "content": 'Write it.\n\ndef last(text: str) -> str:\n    """The last sign."""\n',
    "labels": {"difficulty_type": "Shortcut"},
    "test": 'assert last("ab") == "b"\nassert last("c") == "c"',
}


def test_mhpp_shows_its_first_assert_and_takes_leaving_for_right_unless_told(service) -> None:
    assert asked("MHPPDataset", MHPP_ROW).endswith('The last sign.\n    e.g. assert last("ab") == "b" """')
    right = submit(service, "MHPPDataset", MHPP_ROW, "def last(text):\n    return text[-1]\n")
    assert right["accepted"] is True
    assert right["tests"][0]["test_info"] == {"difficulty_type": "Shortcut"}
    assert submit(service, "MHPPDataset", MHPP_ROW, "def last(text):\n    return 'b'")["accepted"] is False
    leave = "def last(text):\n    exit()\n"
    assert submit(service, "MHPPDataset", MHPP_ROW, leave)["accepted"] is True
    assert submit(service, "MHPPDataset", MHPP_ROW, leave, append_flag=True)["accepted"] is False


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_aider_s_unittest_has_the_last_word(service) -> None:
    row = {
        "id": 1, "content": "Write twice(x).", "labels": {"reference": "def twice(x):\n    pass\n"},
        "test": {"code": "#<INSERT>\n\nif __name__ == '__main__':\n    import unittest\n    unittest.main('twice_test')\n",
                 "asset": {"twice_test.py": b64("import unittest, __main__\nclass T(unittest.TestCase):\n"
                                                "    def test(self): self.assertEqual(__main__.twice(2), 4)\n")}},
    }  # fmt: skip
    kind = "AiderBenchmarkDataset"
    assert "Please generate the code in the following format:\n```python\ndef twice(x):\n    pass\n" in asked(
        kind, row
    )
    assert submit(service, kind, row, fenced("def twice(x):\n    return 2 * x"))["accepted"] is True
    assert submit(service, kind, row, fenced("def twice(x):\n    pass"))["accepted"] is False
    assert submit(service, kind, row, fenced("import os\nos._exit(0)"))["accepted"] is False


CRUX = {
    "id": "sample_7",
    "code": "def f(a, b=1):\n    return sorted(a)[:b]",
    "input": "[3, 1], 2",
    "output": "[1, 3]",
}


@pytest.mark.parametrize(
    ("mode", "completion", "accepted"),
    [("output", "[ANSWER]\nassert f([3, 1], 2) == [1, 3]\n[/ANSWER]\nassert f(9) == 9", True),
     ("output", "[1, 3]", True),
     ("output", "[3, 1]", False),
     ("output", "[ANSWER]f([3, 1], 2)[/ANSWER]", False),
     ("output", "[1, 3] or exit()", False),
     ("output", "[1, 3] # as sorted", True),
     ("output", "[9] #", False),
     ("output", "9, [1, 3]", False),
     ("output", "{[]: 1}", False),
     ("output", "assert f([3, 1], 2) == [1, 3] # done", True),
     ("input", "[ANSWER]\nassert f([1, 3], b=2) == [1, 3]\n[/ANSWER]", True),
     ("input", "f(list(range(1, 4, 2)), 2)", True),
     ("input", "f([x for x in (3, 1)], 2)", True),
     ("input", "f([1])", False),
     ("input", "f([1]) #", False),
     ("input", "True or f([1])", False),
     ("input", "f((f := lambda *a: [1, 3])())", False),
     ("input", "f(exec('import os; os._exit(0)'))", False),
     ("input", "f(().__class__)", False)],
)  # fmt: skip
def test_cruxeval_takes_a_value_and_nothing_that_is_right_by_itself(
    service, mode, completion, accepted
) -> None:
    assert submit(service, "CruxEvalDataset", CRUX, completion, mode=mode)["accepted"] is accepted


def test_cruxeval_s_value_may_have_the_sign_of_equality_in_it(service) -> None:
    row = {"id": "sample_1", "code": "def f(a):\n    return a + '=='", "input": "'a'", "output": "'a=='"}
    for answer, accepted in (("'a=='", True), ("assert f('a') == 'a='", False)):
        told = submit(service, "CruxEvalDataset", row, f"[ANSWER]{answer}[/ANSWER]", mode="output")
        assert told["accepted"] is accepted


def test_cruxeval_asks_each_row_in_both_ways() -> None:
    def prompts(**extra):
        told = TestConfig(
            dataset_type="CruxEvalDataset", provided_data=[CRUX, {**CRUX, "id": "sample_8"}], extra=extra
        )
        return Datasets().prompts(GetPromptsRequest(config=told))

    both = prompts()
    assert [(one.id, one.labels["mode"]) for one in both] == [
        ("sample_7", "input"), ("sample_8", "input"), ("sample_7", "output"), ("sample_8", "output"),
    ]  # fmt: skip
    assert "assert f(??) == [1, 3]\n[/PYTHON]\n\n" not in both[0].prompt
    assert both[0].prompt.endswith("assert f(??) == [1, 3]\n[/PYTHON]\n[ANSWER]\n")
    assert both[2].prompt.endswith("assert f([3, 1], 2) == ??\n[/PYTHON]\n[ANSWER]\n")
    assert prompts(mode="input", use_cot=True)[0].prompt.endswith("[/PYTHON]\n[THOUGHT]\n")
    assert prompts(mode="output", phind_output=True)[0].prompt.endswith("assert f([3, 1], 2) ==")
    assert "# done" in prompts(mode="output", phind_output=True)[0].prompt
    assert prompts(mode="input", coding_wrap_prompt=True)[0].prompt.endswith("\nResponse:\n")


CRUX_X = {
    "id": "bash_3", "code": "f() {\n    echo $(( 2 * $1 ))\n",
    "input": "}\n\ncandidate() {\n    f \"$@\"\n}\n\nset -e\nrun_test() {\n    [[ $(candidate ????) = \"4\" ]]\n}\n\nrun_test",
    "output": "}\n\ncandidate() {\n    f \"$@\"\n}\n\nset -e\nrun_test() {\n    [[ $(candidate \"2\") = ???? ]]\n}\n\nrun_test",
}  # fmt: skip


@pytest.mark.parametrize(
    ("mode", "completion", "accepted"),
    [("input", '[ANSWER]\n"2"\n[/ANSWER]\n[ANSWER]\n3', True), ("input", '$(candidate "2")', True),
     ("input", '"3"', False), ("output", '"4"', True), ("output", '"5"', False),
     ("output", '"" ]]; exit 0; [[ "" = ""', False), ("output", '"5" || "" = ""', False),
     ("output", '$(candidate 2)', False), ("output", '"$(f 2)"', False)],
)  # fmt: skip
def test_cruxeval_x_puts_the_answer_into_another_language(service, mode, completion, accepted) -> None:
    assert submit(service, "CruxEvalDataset", CRUX_X, completion, mode=mode)["accepted"] is accepted
    assert "```bash\n" in asked("CruxEvalDataset", CRUX_X, extra={"mode": mode})


def packed(value: object) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


STDIN_TASK = {
    "question_id": "abc1", "question_content": "Double each number.", "starter_code": "",
    "public_test_cases": json.dumps([{"input": "1\n", "output": "2\n", "testtype": "stdin"}]),
    "private_test_cases": packed(json.dumps([{"input": "21\n", "output": "42", "testtype": "stdin"},
                                             {"input": "0.5\n", "output": "1", "testtype": "stdin"}])),
    "metadata": "{}",
}  # fmt: skip
CALL_TASK = {
    "id": 10, "content": "### Question:\nCount.\n\n### Format: x\n", "labels": {},
    "test": packed({"input_output": json.dumps({"inputs": ["[1, 2]\n3", "[]\n1"], "outputs": ["[[1, 2], 3]", "[[], 1]"],
                                                "fn_name": "pair"})}),
}  # fmt: skip


def test_livecodebench_judges_by_standard_input_case_by_case(service) -> None:
    kind = "LiveCodeBenchDataset"
    right = fenced("if __name__ == '__main__':\n    print(2 * float(input()))\n    sys.exit(0)")
    told = submit(service, kind, STDIN_TASK, right)
    assert told["accepted"] is True
    assert [test["passed"] for test in told["tests"]] == [True, True, True]
    assert submit(service, kind, STDIN_TASK, right, strict=True)["accepted"] is False  # 2.0 is not 2
    wrong = submit(service, kind, STDIN_TASK, fenced("print(2)"))
    assert wrong["accepted"] is False
    summary = json.loads(wrong["tests"][0]["exec_info"]["run_result"]["stdout"])
    assert summary == {
        "error_code": -2, "error_message": "Wrong Answer", "inputs": "21\n", "expected": "42", "output": "2\n",
    }  # fmt: skip
    assert [test["passed"] for test in wrong["tests"][1:]] == [True, False]
    broken = submit(service, kind, STDIN_TASK, fenced("1 / 0"))
    assert json.loads(broken["tests"][0]["exec_info"]["run_result"]["stdout"])["error_code"] == -4
    assert "Double each number." in asked(kind, STDIN_TASK)


@pytest.mark.parametrize(
    ("code", "accepted"),
    [("class Solution:\n    def pair(self, a, b):\n        print('said')\n        return (a, b)", True),
     ("def pair(a, b):\n    return [a, b]", True),
     ("def pair(a, b):\n    return [b, a]", False),
     ("import os\ndef pair(a, b):\n    os._exit(0)", False),
     ("def pair(a, b):\n    print('[[1, 2], 3]')\n    exit()", False)],
)  # fmt: skip
def test_livecodebench_calls_a_function_that_never_sees_what_is_expected(service, code, accepted) -> None:
    told = submit(service, "LiveCodeBenchDataset", CALL_TASK, fenced(code))
    assert told["accepted"] is accepted
    assert "[[" not in told["full_code"].split("_given")[1]


def test_a_pickle_that_would_run_something_is_refused(service, tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "ran",))

    row = {**CALL_TASK, "test": packed({"input_output": Evil()})}
    assert "plain data" in refusal(service, "LiveCodeBenchDataset", row)
    assert not (tmp_path / "ran").exists()
    assert "packed form" in refusal(service, "LiveCodeBenchDataset", {**CALL_TASK, "test": "nonsense!"})
    empty = {**STDIN_TASK, "public_test_cases": "[]", "private_test_cases": "[]"}
    assert "no case" in refusal(service, "LiveCodeBenchDataset", empty)


def test_livecodebench_shows_two_examples() -> None:
    told = asked("LiveCodeBenchDataset", CALL_TASK, is_fewshot=True)
    assert told.endswith("### Question:\nCount.\n\n### Format: x\n")
    assert told.count("### Question:") == 3


@pytest.mark.parametrize(
    ("said", "wanted", "accepted"),
    [("'9'", "9", True), ("9.0001", "9", True), ("10", "9", False), ("0.5", "50", True), ("'1,200'", "1200", True),
     ("'(1, 2)'", "(1,2)", True), ("'\\\\frac{1}{2}'", "1/2", True), ("'x^2+2*x'", "x*(x+2)", True),
     ("'$12.00$'", "12", True), ("''", "9", False), ("None", "9", False),
     ("'__import__(\"sys\").exit(0)'", "9", False), ("'exit(0)'", "x", False), ("'9**9**9**9'", "x", False)],
)  # fmt: skip
def test_palmath_compares_what_the_solution_gives(service, said: str, wanted: str, accepted: bool) -> None:
    row = {
        "id": "m/1",
        "content": "How much?",
        "test": {"asset": {"answer.json": b64(json.dumps({"gt": wanted}))}},
    }
    answer = f"```python\ndef solution():\n    print('{wanted}')\n    return {said}\n```"
    assert submit(service, "PalMathDataset", row, answer)["accepted"] is accepted


def test_palmath_needs_a_solution_that_returns(service) -> None:
    row = {"id": "m/1", "question": "How much?", "answer": 9}
    assert submit(service, "PalMathDataset", row, fenced("print(9)"))["accepted"] is False
    assert submit(
        service, "PalMathDataset", row, "```python\nx = 4\n```\n" + fenced("def solution(): return 9")
    )["accepted"]
    leave = fenced("def solution():\n    print(9, flush=True)\n    exit()")
    assert submit(service, "PalMathDataset", row, leave)["accepted"] is False
    assert "no answer" in refusal(
        service, "PalMathDataset", {"id": 1, "content": "?", "test": {}}, fenced("def solution(): 1")
    )


def test_naturalcodebench_runs_pytest_on_a_python_answer(service) -> None:
    row = {"_id": 1, "prompt": "Write twice(x).",
           "testcases": "class TestTwice:\n    def test_it(self, tmp_path):\n        assert twice(2) == 4\n"}  # fmt: skip
    kind = "NaturalCodeBenchDataset"
    assert submit(service, kind, row, fenced("def twice(x):\n    return 2 * x"))["accepted"] is True
    assert submit(service, kind, row, "[Python]\ndef twice(x):\n    return x\n[/Python]")["accepted"] is False
    assert submit(service, kind, row, fenced("import os\nos._exit(0)"))["accepted"] is False


def test_naturalcodebench_runs_junit_on_a_java_answer(service) -> None:
    row = {"id": 1, "content": "?", "test": {"asset": None, "code": "class TwiceTest {\n    @Test\n    void two() {\n"
           "        assertEquals(List.of(4), Twice.twice(2));\n    }\n}\n"}}  # fmt: skip
    code = "import java.util.*;\n\ninterface Maker { int make(int x); }\n\npublic class Twice {\n" \
        "    public static List<Integer> twice(int x) { Maker m = y -> 2 * y; return List.of(m.make(x)); }\n}\n"  # fmt: skip
    row["test"]["code"] = "import java.util.List;\n" + row["test"]["code"]
    told = submit(service, "NaturalCodeBenchDataset", row, fenced(code, "java"), "ncb_java_en")
    if told["tests"][0]["exec_info"]["status"] == "SandboxError":
        pytest.skip(told["tests"][0]["exec_info"]["message"])
    assert told["accepted"] is True, told["tests"][0]["exec_info"]
    wrong = fenced(code.replace("2 * y", "y"), "java")
    assert submit(service, "NaturalCodeBenchDataset", row, wrong, "ncb_java_en")["accepted"] is False


def test_repobench_compares_the_first_line_that_is_no_comment(service) -> None:
    row = {"id": 2, "prompt": "# Path: a.py\nimport os\n", "next_line": "    value  = os.getcwd()"}
    right = '"""Some\nwords"""\n# more\n\n  value = os.getcwd()\nother'
    told = submit(service, "RepobenchCDataset", row, right, "repobench_c_python")
    assert (told["accepted"], told["extracted_code"]) == (True, "  value = os.getcwd()")
    assert submit(service, "RepobenchCDataset", row, "value = 1", "repobench_c_python")["accepted"] is False
    java = submit(
        service,
        "RepobenchCDataset",
        {**row, "next_line": "int a;"},
        "/* a\n b */ // c\nint a;",
        "repobench_c_java",
    )
    assert java["accepted"] is True
    assert "python or java" in refusal(service, "RepobenchCDataset", row)


def test_repobench_p_keeps_what_is_needed_when_room_is_short() -> None:
    context = [{"path": f"{name}.py", "snippet": f"def {name}():\n    return {name!r}"} for name in "abc"]
    row = {"id": 1, "context": json.dumps(context), "gold_snippet_index": 1, "code": "x = b()", "file_path": "main.py",
           "import_statement": "from b import b", "next_line": "print(x)"}  # fmt: skip
    whole = asked("RepobenchPDataset", row, "repobench_p_python")
    assert whole.endswith(
        "# Path: b.py\n# def b():\n#     return 'b'\n# Path: main.py\nfrom b import b\nx = b()"
    )
    assert whole.count("# Path: ") == 4
    short = asked("RepobenchPDataset", row, "repobench_p_python", extra={"max_prompt_length": 30})
    assert [line for line in short.splitlines() if "Path" in line] == ["# Path: b.py", "# Path: main.py"]
