"""What a command line may set in a job, and what it gets told when it may not."""

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from fakes.job_files import GOOD, lay_out, write
from strop.cli.run import overrides
from strop.client.tuning import read_tuning
from strop.config.loading import load_job
from strop.errors import ConfigError, DataError

H = "training.hyper_parameters"
FEW = settings(
    max_examples=150,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = lay_out(tmp_path_factory.mktemp("job"))
    write(made, GOOD)
    return made


def loaded(folder: Path, *texts: str):
    values, given_by = overrides(list(texts), {})
    return load_job(folder / "job.yaml", values, given_by=given_by)


def told(folder: Path, *texts: str) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(folder, *texts)
    assert all(one.place == "--set" for one in caught.value.problems), caught.value
    return str(caught.value)


REFUSED = [
    ("functions.timeout=5", "there is no functions.timeout to change", "say which one: functions[0].timeout"),
    ("functions.7=5", "there is no functions[7] to change", "name one that the file has"),
    ("functions.7.timeout=5", "there is no functions[7] to change", "name one"),
    ("functions.0=5", "functions[0]: expected keys and values, found 5", ""),
    ("functions.0.name.x=5", "functions[0].name: expected text, found a section", ""),
    ("²=5", "²: unknown key", ""),
    ("functions.².timeout=5", "there is no functions.² to change", "say which one"),
    ("7=5", "'7' names no key", "e.g. learning_rate=1e-5"),
    ("[=5", "'[' names no key", "e.g."),
    ("...=5", "'...' names no key", "e.g."),
    ("training.7=5", "training.7: unknown key", ""),
    ("datasets=5", "datasets: a whole section cannot be overridden", "datasets.0.file_name"),
    ("max_steps=!!int abc", f"{H}.max_steps: expected a whole number, found the text '!!int abc'", ""),
    ("learning_rate=!!float x", f"{H}.learning_rate: expected a number, found the text", ""),
    ("reference_kl=!!bool x", f"{H}.reference_kl: expected true or false, found '!!bool x'", ""),
    ("seed=" + "9" * 5000, f"{H}.seed: expected a whole number, found the text '999", ""),
    ("seed=" + "9" * 200, f"{H}.seed: must lie in [0, 9223372036854775808), found 999", ""),
    ("learning_rate=1e-400", f"{H}.learning_rate: expected a number, found the text '1e-400'", "e.g. 1e-06"),
    ("learning_rate=1e-45", f"{H}.learning_rate: 1e-45 is too close to 0 to make a difference", "e.g. 1e-06"),
    ("learning_rate=1e400", f"{H}.learning_rate: must be a finite number in (0, 1], found inf", "e.g."),
    ("temperature=1e-45", f"{H}.temperature: must lie in [0.01, 10], found 1e-45", "e.g. 1.0"),
    ("batch_size=1e308", f"{H}.batch_size: expected a whole number in [1, 100000], found 1e+308", "e.g. 8"),
    ("model=a\ud800", "'a\\ud800' contains half a character", "write it in UTF-8"),
    ("\ud800=1", "'\\ud800' contains half a character", "UTF-8"),
    ("model=a\0", "'a\\x00' contains a NUL character", "remove it"),
    ("functions.1.reward_metric_weight.a=-1", "functions[1].reward_metric_weight.a: must be at least 0", ""),
    ("functions.1.reward_metric_weight.a=.inf", "must be a finite number, found inf", ""),
]


@pytest.mark.parametrize(("text", "message", "fix"), REFUSED, ids=[text[:40] for text, *_ in REFUSED])
def test_what_cannot_be_set_is_told_and_never_a_traceback(folder, text, message, fix):
    said = told(folder, text)
    assert message in said
    assert fix in said
    assert len(said) < 1000


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("max_steps=5", f"{H}.max_steps=6"),
        ("functions.0.timeout=5", "functions[0].timeout=6"),
        ("model=a", "model.name=b"),
        ("name=a", "job_name=b"),
        ("functions.1.runtime.env.A=1", "functions.1.runtime.env=2"),
    ],
)
def test_one_hyper_parameter_under_two_names_is_set_twice(folder, one, other):
    assert f"{one.partition('=')[0]!r} sets it, too (keep one of them)" in told(folder, one, other)
    with pytest.raises(ConfigError, match="is set twice, also by --set"):
        loaded(folder, one, one)


def test_an_option_and_a_long_name_are_one_hyper_parameter_too(folder):
    values, given_by = overrides([f"{H}.max_steps=6"], {"--steps": ("max_steps", 5)})
    with pytest.raises(ConfigError, match="'max_steps' sets it, too"):
        load_job(folder / "job.yaml", values, given_by=given_by)


def test_an_override_replaces_the_other_name_of_a_key_and_all_that_stood_below_it(folder):
    assert loaded(folder, "name=other").name == "other"
    (folder / "named.yaml").write_text(GOOD.replace("model: smollm2-135m", "model: {name: smollm2-135m}"))
    config = load_job(folder / "named.yaml", {"model": "other"}, given_by={"model": "--set"})
    assert (config.model.name, config.origins["model.name"]) == ("other", "--set")


@pytest.mark.parametrize("text", ["functions.timeout=5", "functions.7=5", "²=5", "model=a\ud800", "7=5"])
def test_a_job_that_is_sent_to_a_server_is_read_as_carefully(folder, text):
    with pytest.raises(ConfigError):
        read_tuning(folder / "job.yaml", {}, settings=overrides([text], {})[0])


def ends_in_our_own_words(made) -> None:
    try:
        made()
    except (ConfigError, DataError) as error:
        assert str(error)  # noqa: PT017  what it says is another test's


KEYS = some.one_of(
    some.text(max_size=12),
    some.sampled_from(["functions", "datasets", "training", "model", "seed", "name", "functions.0", H]),
    some.lists(
        some.sampled_from(["functions", "0", "7", "timeout", "runtime", "env", "[", "]", ".", "²", "-1"])
    ).map(".".join),
)  # fmt: skip
VALUES = some.one_of(
    some.text(some.characters(exclude_categories=()), max_size=12),
    some.sampled_from(
        ["!!int x", "[[[[", "{a: 1}", "*a", "&a", "1e999", "-0", "~", "!!null x", "%", '"\\ud800"']
    ),
)


@settings(FEW, max_examples=60)
@given(pairs=some.lists(some.tuples(KEYS, VALUES), max_size=3))
def test_any_text_as_key_and_value_ends_in_our_own_words(folder, pairs):
    ends_in_our_own_words(lambda: loaded(folder, *(f"{key}={value}" for key, value in pairs)))
    ends_in_our_own_words(
        lambda: read_tuning(folder / "job.yaml", {}, settings={key: value for key, value in pairs if key})
    )


WORDS = [
    "model",
    "datasets",
    "functions",
    "training",
    "hyper_parameters",
    "type",
    "file_name",
    "name",
    "seed",
]
SCALARS = some.one_of(
    some.sampled_from([None, True, 1, -1, 10**40, 1e308, float("nan"), "", "x", "\ud800", "sft", "../.."]),
    some.sampled_from(WORDS),
)
DOCUMENTS = some.recursive(
    SCALARS,
    lambda inner: (
        some.lists(inner, max_size=3)
        | some.dictionaries(some.sampled_from(WORDS) | some.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)


@FEW
@given(document=DOCUMENTS, spoilt=some.integers(0, 2**32))
def test_any_small_document_as_a_job_ends_in_our_own_words(folder, document, spoilt):
    import yaml

    chance = random.Random(spoilt)
    text = yaml.safe_dump(document, allow_unicode=False)
    if spoilt % 2:  # not quite YAML any more
        at = chance.randrange(len(text) + 1)
        text = (
            text[:at]
            + chance.choice(["[", "{", "'", '"', ": ", "- ", "&a ", "*a ", "!!int ", "\t", "%", "\x85"])
            + text[at:]
        )
    path = folder / "any.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    ends_in_our_own_words(lambda: load_job(path))
    ends_in_our_own_words(lambda: read_tuning(path, {}))


@FEW
@given(line=some.sampled_from(GOOD.splitlines()), value=VALUES | SCALARS.map(str))
def test_a_good_file_with_any_value_in_one_line_ends_in_our_own_words(folder, line, value):
    key = line.partition(":")[0]
    text = GOOD.replace(f"{line}\n", f"{key}: {value}\n", 1)
    path = folder / "spoilt.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    ends_in_our_own_words(lambda: load_job(path))
