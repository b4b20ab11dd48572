"""Preset rewards: what they give, worked by hand; and how a model would cheat each, which does not pay."""

import json
import time

import pytest

from strop.functions import presets
from strop.functions.preset_catalogue import all_presets, preset_problems
from strop.functions.preset_reward import PresetReward
from strop.functions.presets import Answer, CannotScore, RowLacks
from strop.functions.presets.normalisation import normalised
from strop.functions.presets.numbers import numbers_in
from strop.schema.function import RewardInput, TaskStatus

COMPARING = {
    "exact_match": {},
    "contains": {},
    "regex_match": {"pattern": r"(.*)"},
    "numeric_close": {},
    "text_similarity": {},
}


@pytest.mark.parametrize(("name", "params"), list(COMPARING.items()))
def test_no_reference_is_no_score_and_an_empty_answer_is_0(name, params):
    score = getattr(presets, name)
    for nothing in (None, "", "  ", [], {"a": 1}, [""]):
        with pytest.raises(RowLacks):
            score("4", nothing, **params)
    for empty in ("", " \n", "\u200b\ufeff"):
        assert score(empty, "4", **params) == 0.0


def test_normalisation_takes_away_what_does_not_count_and_no_more():
    assert normalised("Ｆｕｌｌ　Ｗｉｄｔｈ", ("width",)) == "Full Width"
    assert normalised("STRASSE ẞ", ("case",)) == "strasse ss"
    assert normalised("3.5, -5; a-b (c)!", ("punctuation", "space")) == "3.5 -5 ab c"
    assert normalised("“你好，世界。”", ("punctuation",)) == "你好世界"
    assert normalised("三百二十一 and 两千零五 or 十", ("numerals",)) == "321 and 2005 or 10"
    assert normalised("零点五", ("numerals",)) == "0.5"
    assert normalised("twenty-one apples, 1,234,567 pears", ("numerals",)) == "21 apples, 1234567 pears"
    assert normalised("zero\u200bwidth", ()) == "zerowidth"
    assert normalised("一" * 100_000, ("numerals",)) == "一" * 100_000


def test_exact_match_compares_whole_texts():
    assert presets.exact_match("Ｐaris ", "paris") == 1.0
    assert presets.exact_match("Paris, France", "Paris") == 0.0
    assert presets.exact_match("true", True) == 1.0
    assert presets.exact_match("4", 4) == 1.0
    assert presets.exact_match("Yes", "yes", normalise=[]) == 0.0
    assert presets.exact_match("二十一", "21", normalise=["numerals"]) == 1.0


def test_contains_finds_whole_words_and_numbers_only():
    for text in ("14", "4.5", "0.4", "-4", "x4", "4th", "3,4", "1,400"):
        assert presets.contains(text, "4") == (1.0 if text == "3,4" else 0.0), text
    for text in ("4", "is 4.", "(4)", "答案是4。", "4, then 5"):
        assert presets.contains(text, "4") == 1.0, text
    assert presets.contains("category", "cat", whole_words=False) == 1.0
    assert presets.contains("我住在北京市", "北京") == 1.0


def test_contains_counts_several_and_refuses_an_answer_that_names_everything():
    assert presets.contains("red and blue", ["red", "green", "blue"], need="share") == pytest.approx(2 / 3)
    assert presets.contains("red", ["red", "green"], need="any") == 1.0
    assert presets.contains("red", ["red", "green"]) == 0.0
    everything = "positive negative neutral"
    assert presets.contains(everything, "positive", forbidden=["negative", "neutral"]) == 0.0
    assert presets.contains("positive" + " filler" * 100, "positive", max_characters=50) == 0.0


def test_regex_match_extracts_and_compares():
    pattern = r"ANSWER:\s*(\S+)"
    assert presets.regex_match("ANSWER: 3\nANSWER: 4", "4", pattern=pattern) == 1.0
    assert presets.regex_match("ANSWER: 3\nANSWER: 4", "3", pattern=pattern) == 0.0
    assert presets.regex_match("ANSWER: 3\nANSWER: 4", "4", pattern=pattern, which="only") == 0.0
    assert presets.regex_match("ANSWER: $1,000.00", "1000", pattern=pattern, compare="number") == 1.0
    assert presets.regex_match("no answer", "4", pattern=pattern) == 0.0
    assert presets.regex_match("4", "4", pattern=r"\d+") == 1.0


def test_a_catastrophic_pattern_is_given_up_in_time():
    began = time.monotonic()
    found = presets.regex_match("a" * 60 + "!", "a", pattern="((?:a|aa)+[^a!])", limit_s=0.05)
    matched = presets.format_match("a" * 60 + "!", pattern="(?:a|aa)+[^a!]", limit_s=0.05)
    assert time.monotonic() - began < 20
    for score in (found, matched):
        assert (score, score.metrics) == (0.0, {"timed_out": 1.0})  # pyright: ignore[reportAttributeAccessIssue]


def test_numbers_are_read_whole_or_not_at_all():
    assert numbers_in("x² costs −3.5 or 1e3; v1.2.3, 12th, 3km, 1,23 and ５") == [
        -3.5,
        1000.0,
        1.0,
        23.0,
        5.0,
    ]
    assert numbers_in("1,000,000.5") == [1_000_000.5]
    assert numbers_in("1e999 nan inf") == []
    assert numbers_in("9" * 100_000) == []


def test_numeric_closeness_has_a_tolerance_and_a_slope():
    assert presets.numeric_close("about 3.14", "3.14159", absolute=0.01) == 1.0
    assert presets.numeric_close("3.2", "3.14159", absolute=0.01) == 0.0
    assert presets.numeric_close("101", 100, relative=0.01) == 1.0
    assert presets.numeric_close("first 7, then 4", 4) == 1.0
    assert presets.numeric_close("3 or 4", 4, which="only") == 0.0
    assert presets.numeric_close("3", 4, zero_at=2.0) == 0.5
    assert presets.numeric_close("9", 4, zero_at=2.0) == 0.0
    assert presets.numeric_close("二十一", "21", numerals=True) == 1.0
    assert presets.numeric_close("nan", 4) == 0.0
    for no_number in ("four", "nan", "4 or 5"):
        with pytest.raises(RowLacks, match="is no number"):
            presets.numeric_close("4", no_number)


def test_math_is_compared_by_value_and_never_hangs():
    equal = [
        (r"so $\frac{1}{2}$", "0.5"),
        (r"\boxed{45585}", "45585"),
        (r"$x=3$", "3"),
        (r"$\{1,2\}$", r"$\{2,1\}$"),
        (r"$2\sqrt{2}$", r"$\sqrt{8}$"),
        (r"$(x+1)^2$", r"$x^2+2x+1$"),
    ]
    for answer, reference in equal:
        assert presets.math_equal(answer, reference, limit_s=60) == 1.0, answer
    for answer, reference in [("5", "4"), ("", "4"), ("I do not know", "4"), (r"$\frac{1}{3}$", "0.33")]:
        assert presets.math_equal(answer, reference, limit_s=60) == 0.0, answer
    assert presets.math_equal("it is 4", "4", boxed=True, limit_s=60) == 0.0
    assert presets.math_equal(r"\boxed{3} no, \boxed{4}", "4", boxed=True, limit_s=60) == 1.0
    endless = presets.math_equal("$9^{9^{9^{9}}}$", "4", limit_s=0.5)
    assert (endless, endless.metrics) == (0.0, {"timed_out": 1.0})  # pyright: ignore[reportAttributeAccessIssue]
    assert presets.math_equal("4", "4", limit_s=60) == 1.0  # another process took its place


@pytest.mark.parametrize(
    ("answer", "reference"),
    [
        (r"\boxed{１２}", "12"),
        (r"\boxed{（1,2）}", "(1,2)"),
        (r"\boxed{１／２}", "1/2"),
        (r"\boxed{½}", "1/2"),
        (r"\boxed{3½}", "7/2"),
        (r"\boxed{8\,000}", "8000"),
        (r"\boxed{8 000}", "8000"),
        (r"\boxed {7}", "7"),
        ("12", r"\boxed{１２}"),
        (r"\boxed{6.62e-34}", r"6.62 \times 10^{-34}"),
        ("about 6.62e-34", "6.62e-34"),
        (r"\boxed{0.33333333}", "1/3"),
        (r"\boxed{50\%}", "50"),
        ("It is 7!", "7"),
        ("7!", "5040"),
    ],
)
def test_one_answer_in_two_forms_is_one_answer(answer: str, reference: str) -> None:
    assert presets.math_equal(answer, reference, limit_s=60) == 1.0


@pytest.mark.parametrize(
    ("answer", "reference"),
    [
        ("$1/3^{71}$", "1/3^{70}"),
        ("0.0000002", "0.0000001"),
        ("6.62e-34", "1.05e-34"),
        (r"$\{1, 0.0000002\}$", r"\{1, 0.0000001\}"),
        ("$0.0000002x$", "0.0000001x"),
        ("7!", "7"),
        ("9^{9^{9^9}}", "9"),
    ],
)
def test_two_numbers_are_not_one_for_being_small_or_long(answer: str, reference: str) -> None:
    assert presets.math_equal(answer, reference, limit_s=5) == 0.0


@pytest.mark.parametrize("measure", ["ratio", "token_sort", "rouge1", "rouge2", "rougeL", "bleu", "chrf"])
def test_similarity_is_1_for_the_same_0_for_nothing_and_less_for_more(measure):
    cat = "the cat sat on the mat"
    same = presets.text_similarity(cat, cat, measure=measure)
    stuffed = presets.text_similarity(f"{cat} " + "and also all other things " * 20, cat, measure=measure)
    assert same == pytest.approx(1.0)
    assert 0.0 <= stuffed < 0.5
    assert presets.text_similarity("qqq zzz", cat, measure=measure) < 0.25
    assert presets.text_similarity("北京是中国的首都", "北京是中国的首都", measure=measure) == pytest.approx(
        1.0
    )


def test_similarity_by_hand():
    # ROUGE-1: 2 of 3 words found, 2 of 4 wanted: F = 2 * (2/3 * 2/4) / (2/3 + 2/4) = 4/7
    assert presets.text_similarity("the cat ran", "the cat sat down", measure="rouge1") == pytest.approx(
        4 / 7
    )
    # ratio: 2 * matching characters / all = 2 * 3 / 8
    assert presets.text_similarity("abcx", "abcy") == pytest.approx(0.75)
    assert presets.text_similarity("abcx", "abcy", at_least=0.8) == 0.0
    assert presets.text_similarity("abc", ["zzz", "abc"]) == 1.0
    began = time.monotonic()
    presets.text_similarity("a b " * 100_000, "b a " * 100_000, measure="rougeL", max_characters=2000)
    assert time.monotonic() - began < 20


def test_json_must_be_json_and_fit():
    schema = {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}}
    for text in ('{"a": 1}', ' {"a": 1}\n', '```json\n{"a": 1}\n```', 'Here:\n```\n{"a": 1}\n```\nDone.'):
        assert presets.json_schema(text, schema=schema) == 1.0, text
    for text in (
        '{"a": "1"}',
        "{'a': 1}",
        '{"a": NaN}',
        '{"a": 1, "a": 2}',
        "[" * 200_000,
        "",
        '{"a": 1} or 2',
    ):
        assert presets.json_schema(text, schema=schema) == 0.0, text[:20]
    assert presets.json_schema('```json\n{"a": 1}\n```', schema=schema, fenced=False) == 0.0
    two = '```json\n{"a": 1}\n```\n```json\n{"a": 2}\n```'
    assert presets.json_schema(two, schema=schema) == 0.0


def test_a_schema_fetches_nothing():
    from referencing.exceptions import Unresolvable

    with pytest.raises(Exception) as caught:  # noqa: PT011
        presets.json_schema("1", schema={"$ref": "http://127.0.0.1:9/schema.json"})
    assert isinstance(caught.value, Unresolvable) or isinstance(caught.value.__cause__, Unresolvable)


def test_a_format_is_exact():
    tags = ["think", "answer"]
    good = "<think>2+2\n</think>\n<answer>4</answer>"
    assert presets.format_match(good, tags=tags) == 1.0
    for bad in (
        "x" + good,
        good + "x",
        "<think></think><answer>4</answer>",
        "<answer>4</answer><think>2</think>",
        good.replace("4", "<answer>4"),
        good + "<answer>5</answer>",
        "<think>a</think><answer>4",
        "",
    ):
        assert presets.format_match(bad, tags=tags) == 0.0, bad
    assert presets.format_match("ANSWER: 4", pattern=r"ANSWER: \d+") == 1.0
    assert presets.format_match("well, ANSWER: 4", pattern=r"ANSWER: \d+") == 0.0


def test_only_what_answers_has_answered():
    for text in ("Paris", "42", "是", "I cannot-do attitude"[12:]):
        assert presets.answered(text) == 1.0, text
    for text in (
        "",
        "…",
        "\u200b",
        "🙂",
        "I’m sorry, but I can't.",
        "**Sorry, no**",
        "作为一个AI，我不能",
        "抱歉",
    ):
        assert presets.answered(text) == 0.0, text
    assert presets.answered("no", least=3) == 0.0


def test_penalties_fall_evenly_from_0_to_minus_1():
    def lengths(counts, **params):
        return [presets.length_penalty("x" * count, **params) for count in counts]

    assert lengths((0, 1, 10, 15, 20, 99), free=10, full=20) == [-1.0, 0.0, 0.0, -0.5, -1.0, -1.0]
    assert presets.length_penalty("一 二三 four", free=2, full=6, unit="words") == -0.5
    long = Answer(text="x", num_tokens=15)
    assert presets.overlong_penalty(long, limit=20, buffer=10) == -0.5
    assert (
        presets.overlong_penalty(Answer(text="x", num_tokens=3, truncated=True), limit=20, buffer=10) == -1.0
    )
    with pytest.raises(CannotScore, match="no token count"):
        presets.overlong_penalty("x", limit=20, buffer=10)


def test_repetition_costs_what_is_repeated():
    assert presets.repetition_penalty("all of these words are different ones here") == 0.0
    # "a b" x 4 has bigrams ab ba ab ba ab ba ab: 2 of 7 are new, so 5/7 are repeats
    penalty = presets.repetition_penalty("a b a b a b a b", n=2, allowed=0.0)
    assert penalty == pytest.approx(-5 / 7)
    assert penalty.metrics == {"repeated": pytest.approx(5 / 7)}  # pyright: ignore[reportAttributeAccessIssue]
    assert presets.repetition_penalty("好的" * 500) < -0.9
    assert presets.repetition_penalty("") == 0.0


def call(name="add", arguments='{"a": 1}'):
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


def used(*calls):
    return Answer(messages=[{"role": "assistant", "content": None, "tool_calls": list(calls)}])


def test_tools_are_used_as_wanted():
    assert presets.tool_use(used(call()), required=["add"]) == 1.0
    assert presets.tool_use(used(), required=["add"]) == 0.0
    assert presets.tool_use(used(call("rm")), allowed=["add"]) == 0.0
    assert presets.tool_use(used(call(), call(arguments='{"a":1}'))) == 0.0  # the same call twice
    assert presets.tool_use(used(call(), call(arguments='{"a":1}')), same=2) == 1.0
    assert presets.tool_use(used(call(arguments='{"a": 1,}'))) == 0.0
    assert presets.tool_use(used(call(arguments="[1]")), valid_arguments=False) == 1.0
    score = presets.tool_use(used(*(call(arguments=f'{{"a": {i}}}') for i in range(9))), most=8)
    assert (score, score.metrics) == (0.0, {"calls": 9.0})  # pyright: ignore[reportAttributeAccessIssue]
    by_user = Answer(messages=[{"role": "user", "tool_calls": [call()]}])
    assert presets.tool_use(by_user, required=["add"]) == 0.0


def scored(preset, params, text="4", role="assistant", **more):
    message = {"role": role, "content": text}
    values = {"agent_output": {"messages": [message], "rollout_extra": {"answer": "4"}}, **more}
    return PresetReward(preset, params).process(RewardInput.model_validate(values))


def test_as_a_reward_a_preset_reads_the_last_message_and_the_named_reference():
    assert scored("exact_match", {}, ground_truth="4").reward.reward_score == 1.0
    assert scored("exact_match", {"reference": "answer"}).reward.reward_score == 1.0
    thought = "<think>5</think> 4"
    assert scored("exact_match", {"after": "</think>"}, thought, ground_truth="4").reward.reward_score == 1.0
    assert scored("exact_match", {"after": "</think>"}, "4", ground_truth="4").reward.reward_score == 0.0
    assert scored("exact_match", {}, role="user", ground_truth="4").reward.reward_score == 0.0
    parts = [{"type": "text", "text": "4"}]
    assert scored("exact_match", {}, parts, ground_truth="4").reward.reward_score == 1.0


def test_as_a_reward_a_preset_fails_where_there_is_no_score():
    output = scored("exact_match", {})
    assert (output.status, output.error_code) == (TaskStatus.FAILED, "discard")
    assert "no ground_truth" in (output.error or "")
    tokens = {"limit": 20, "buffer": 10}
    counted = {"completion": {"finish_reason": "length", "usage": {"completion_tokens": 3}}}
    assert scored("overlong_penalty", tokens, **counted).reward.reward_score == -1.0
    assert scored("overlong_penalty", tokens).error_code == "cannot_score"


def test_every_preset_is_a_callable_of_its_name_with_described_parameters():
    assert len(all_presets()) == 15
    for name, preset in all_presets().items():
        assert getattr(presets, name) is preset.score
        assert preset.summary.endswith((".", ":"))
        assert all(field.description for field in preset.fields.values()), name
        json.dumps(preset.parameters.model_json_schema())


@pytest.mark.parametrize(
    ("name", "params", "key", "text", "fix"),
    [
        ("exact_mach", {}, ("preset",), "no preset 'exact_mach'", "did you mean 'exact_match'?"),
        ("exact_match", {"normalize": []}, ("params", "normalize"), "unknown", "'normalise'?"),
        ("exact_match", {"normalise": ["cases"]}, ("params", "normalise", 0), "found 'cases'", ""),
        ("regex_match", {}, ("params", "pattern"), "missing", "add pattern"),
        ("regex_match", {"pattern": "("}, ("params", "pattern"), "no regular expression", ""),
        ("regex_match", {"pattern": "(a)(b)"}, ("params", "pattern"), "more than one group", ""),
        ("length_penalty", {"free": 9, "full": 9}, ("params", "full"), "must be above free", ""),
        ("length_penalty", {"free": "9", "full": 10}, ("params", "free"), "found '9'", ""),
        ("overlong_penalty", {"limit": 9, "buffer": 10}, ("params", "buffer"), "more than limit", ""),
        ("json_schema", {"schema": {"type": "strin"}}, ("params", "schema"), "no JSON Schema", ""),
        ("format_match", {}, ("params", "tags"), "give tags or a pattern", ""),
        ("judge", {"model": "m", "criterion": "c", "worst": "w"}, ("params", "best"), "missing", "add best"),
        ("format_match", {"tags": ["<a>"]}, ("params", "tags"), "'<a>' is no name", ""),
        ("numeric_close", {"absolute": float("nan")}, ("params", "absolute"), "finite", ""),
        ("code_tests", {"url": "x", "language": "python"}, ("params", "url"), "pattern", ""),
        ("code_tests", {"url": "http://x/key/y", "language": "c"}, ("params", "url"), "api_key_env", ""),
        (
            "code_tests",
            {"url": "http://x", "language": "cpp", "tests": "code"},
            ("params", "tests"),
            "python only",
            "",
        ),
    ],
)
def test_parameters_that_cannot_be_meant_are_told(name, params, key, text, fix):
    ((found_key, found, found_fix),) = preset_problems(name, params)
    assert found_key == key
    assert text in found
    assert fix in (found_fix or "")
