"""The preset `code_tests` and Strop's own sandbox: the reward of programs that really run."""

from __future__ import annotations

import pytest

from strop.functions.preset_reward import PresetReward
from strop.functions.presets import code_tests
from strop.schema.function import RewardInput, TaskStatus

SUM = [
    {"input": {"stdin": "1 2\n"}, "output": {"stdout": "3\n"}},
    {"input": {"stdin": "20 22\n"}, "output": {"stdout": "42\n"}},
]
RIGHT = "```python\nprint(sum(map(int, input().split())))\n```"
LEARNT_BY_HEART = "```python\nprint(3)\n```"


def test_stdin_cases_give_all_or_nothing_or_a_share(sandbox):
    def score(text, **more):
        return code_tests(text, SUM, url=sandbox.url, language="python", **more)

    assert score(RIGHT) == 1.0
    assert score(LEARNT_BY_HEART) == 0.0
    assert score(LEARNT_BY_HEART, share=True) == 0.5
    assert score("I would rather not.") == 0.0
    assert score("```python\nwhile True: pass\n```", run_timeout=0.5) == 0.0


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return a + b", 1.0),
        ("return a - b", 0.0),
        ("raise SystemExit(0)", 0.0),
        ("import os; os._exit(0)", 0.0),
    ],
)
def test_test_code_counts_only_when_it_was_run_to_its_end(sandbox, body, expected):
    text = f"```python\ndef add(a, b):\n    {body}\n```"
    tests = "assert add(2, 3) == 5\nassert add(-1, 1) == 0"
    assert code_tests(text, tests, url=sandbox.url, language="python", tests="code") == expected


PRINTS_ALL_IT_CAN_READ = """
import glob, os, sys
for name in {*glob.glob("*.py"), sys.argv[0], __file__}:
    print(open(name).read())
os.lseek(0, 0, os.SEEK_SET)
print(sys.stdin.read(), os.read(0, 100), os.environ, open("/proc/self/cmdline").read(), flush=True)
os._exit(0)
"""


def test_an_answer_that_prints_what_it_can_read_has_run_no_test(sandbox):
    text = f"```python\n{PRINTS_ALL_IT_CAN_READ}```"
    assert code_tests(text, "assert 1", url=sandbox.url, language="python", tests="code") == 0.0


def test_test_code_runs_as_a_program_of_its_own_would(sandbox):
    text = "```python\nfrom __future__ import annotations\ndef f(x: Unknown): return 'é'\n```"
    tests = "import inspect\nassert __name__ == '__main__' and 'Unknown' in inspect.getsource(f)\nassert f(1) == 'é'"
    assert code_tests(text, tests, url=sandbox.url, language="python", tests="code") == 1.0


def test_as_a_reward_it_reads_the_rows_own_cases_and_fails_for_an_unknown_language(sandbox):
    def output(language):
        message = {"role": "assistant", "content": RIGHT}
        values = {"agent_output": {"messages": [message], "rollout_extra": {"cases": SUM}}}
        reward = PresetReward("code_tests", {"url": sandbox.url, "language": language, "reference": "cases"})
        return reward.process(RewardInput.model_validate(values))

    scored = output("python")
    assert (scored.reward.reward_score, scored.reward.reward_metrics) == (1.0, {"passed": 2.0, "cases": 2.0})
    assert output("no-such-language").status is TaskStatus.FAILED
