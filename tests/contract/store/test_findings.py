from datetime import UTC, datetime

from strop.schema.finding import Curve, Evidence, Finding, Severity, Text, Witness
from strop.store.findings import list_findings, record_finding, replace_findings

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def finding(**changes):
    values = {
        "job_id": "job-1",
        "rule": "P4",
        "severity": Severity.ALARM,
        "first_step": 5,
        "last_step": 9,
        "summary": Text(en="entropy fell to 0.01", zh="熵降至 0.01"),
        "evidence": Evidence(
            curves=[Curve(name="actor/entropy", points=[(5, 0.5), (9, 0.01)], healthy=(0.01, None))],
            trajectories=[Witness(rollout_id="s9-0-r0", step=9, reward=1.0, note="the same text")],
            numbers={"share": 0.9},
        ),
        "created_at": NOON,
        "updated_at": NOON,
    }
    return Finding(**values | changes)


def found(database, **asked):
    with database.read() as session:
        return list_findings(session, "job-1", **asked)


def write(database, *findings):
    with database.write() as session:
        for one in findings:
            record_finding(session, one)


def test_a_finding_comes_back_as_it_was(database, job):
    write(database, finding())
    assert found(database) == [finding()]


def test_a_finding_that_goes_on_is_the_same_one_further_on(database, job):
    later = NOON.replace(hour=13)
    write(database, finding(), finding(last_step=12, ended_step=13, created_at=later, updated_at=later))
    assert found(database) == [finding(last_step=12, ended_step=13, updated_at=later)]


def test_findings_are_listed_by_their_first_step_and_the_open_ones_alone(database, job):
    write(database, finding(first_step=7), finding(rule="P9", first_step=3, ended_step=8))
    assert [one.rule for one in found(database)] == ["P9", "P4"]
    assert [one.rule for one in found(database, open_only=True)] == ["P4"]


def test_a_diagnosis_made_anew_replaces_the_one_before(database, job):
    write(database, finding())
    with database.write() as session:
        replace_findings(session, "job-1", [finding(rule="P2", first_step=1)])
    assert [one.rule for one in found(database)] == ["P2"]
