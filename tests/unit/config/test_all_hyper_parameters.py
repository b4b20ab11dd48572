"""No silent setting: every hyper-parameter and every other key of a job has a probe."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from strop.config.file import KeyPath, dotted
from strop.config.job import HyperParameters
from strop.config.key_table import field_at, fields_at


def probes_of(name: str) -> set[str]:
    path = Path(__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"{name}_read_for_its_probes", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return set(module.PROBES)


@pytest.fixture(scope="module")
def probed() -> set[str]:
    return probes_of("test_flow_probes") | probes_of("test_learner_probes")


@pytest.mark.parametrize("name", sorted(HyperParameters.model_fields))
def test_a_hyper_parameter_has_a_probe(name, probed):
    assert name in probed, "add a probe that shows what it does"


def test_no_probe_is_of_a_hyper_parameter_that_is_gone(probed):
    assert probed <= set(HyperParameters.model_fields)


def keys_below(section: KeyPath) -> Iterator[str]:
    """Every key that is no section, dotted, `[]` behind a list: `functions[].weight`."""
    for name in fields_at(section):
        path = (*section, name)
        field = field_at(path)
        if field is not None and field.section is not None:
            yield from keys_below((*path, 0) if field.is_list else path)
        else:
            yield dotted(path).replace("[0]", "[]")


TESTS = Path(__file__).parents[2]
SHOWN_IN = {
    "trackers[].": "unit/trackers/test_sinks.py",
    "diagnosis.webhook.": "unit/diagnosis/test_webhook.py",
    "diagnosis.stop_on": "unit/cli/test_examiner.py",
}
"""Keys of whole parts that have tests of their own, by how they begin."""


def test_every_other_key_of_a_job_has_a_probe_too():
    keys = {key for key in keys_below(()) if not key.startswith("training.hyper_parameters.")}
    apart = {key for key in keys if key.startswith(tuple(SHOWN_IN))}
    assert keys - apart - {"job_name"} == probes_of("test_job_probes") - {"model"}
    for key in apart:
        (file,) = (file for start, file in SHOWN_IN.items() if key.startswith(start))
        assert key.rpartition(".")[2] in (TESTS / file).read_text(), f"{file} shows no effect of {key}"
