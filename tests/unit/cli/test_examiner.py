"""The diagnosis beside a run: findings go to the store, events tell where one begins and ends."""

from __future__ import annotations

import pytest

from strop.cli import job_record as module
from strop.cli.job_record import Examiner
from strop.diagnosis.record import REWARD
from strop.errors import StoppedByDiagnosis


class FakeStore:
    def __init__(self):
        self.findings, self.events = [], []

    def finding(self, finding):
        self.findings.append(finding)

    def event(self, kind, message, *, step=None, data=None):
        self.events.append((kind, step, message, data))


class FakeWebhook:
    def __init__(self):
        self.sent = []

    def send(self, message_id, body):
        self.sent.append((message_id, body))


def told(values, **settings):
    store = FakeStore()
    examiner = Examiner(store, "ft-1", "grpo", **settings)
    for step, value in enumerate(values, 1):
        examiner.metrics(step, {REWARD: 0.5 + 0.01 * step, "actor/ppo_kl": value})
    return store


def test_a_finding_is_written_every_step_and_told_when_it_begins_and_ends():
    store = told([0.5] * 5 + [0.0] * 8)
    assert [(one.first_step, one.last_step, one.ended_step) for one in store.findings][:3] == [
        (3, 3, None),
        (3, 4, None),
        (3, 5, None),
    ]
    assert store.findings[-1].ended_step == store.findings[-1].last_step + 1
    (began, ended) = store.events
    assert began[:2] == ("finding", 3)
    assert began[2].startswith("P3 KL explosion: ppo_kl is 0.5")
    assert began[2].render("zh").startswith("P3 KL 爆炸：ppo_kl 为 0.5")
    assert began[3] == {"rule": "P3", "severity": "alarm", "ended": False}
    assert ended[3]["ended"] is True


def test_metrics_of_validation_alone_are_kept_for_the_next_look():
    store = FakeStore()
    Examiner(store, "ft-1", "grpo").metrics(3, {"validation/data/reward/mean@1": 0.5})
    assert store.findings == []


def test_a_rule_that_fails_costs_a_diagnosis_and_not_the_run(monkeypatch, caplog):
    def broken(self, step):
        raise ZeroDivisionError("a rule")

    monkeypatch.setattr(module.Doctor, "look", broken)
    assert told([0.5, 0.5]).findings == []
    assert "the diagnosis of step 1 failed" in caplog.text


def test_rollouts_that_cannot_be_read_cost_a_diagnosis_and_not_the_run(monkeypatch, caplog):
    def broken(self, step, groups):
        raise OverflowError("a reward beyond a square")

    monkeypatch.setattr(module.Doctor, "trajectories", broken)
    Examiner(FakeStore(), "ft-1", "grpo").trajectories(4, ())
    assert "the diagnosis could not read the rollouts of step 4" in caplog.text


@pytest.mark.parametrize("stop_on", [["alarm"], ["warning"], ["P3"], ["hack_length", "P3"]])
def test_a_run_ends_with_the_first_finding_it_was_told_to_end_with(monkeypatch, stop_on):
    monkeypatch.setenv("STROP_LANG", "en")
    hook = FakeWebhook()
    with pytest.raises(StoppedByDiagnosis) as caught:
        told([0.5] * 5, stop_on=stop_on, webhook=hook)
    assert caught.value.message.startswith(
        "step 3: the diagnosis ended the run, as diagnosis.stop_on asks: P3"
    )
    assert "ppo_kl is 0.5" in caught.value.message
    assert caught.value.fix
    assert [message_id for message_id, _ in hook.sent] == ["ft-1.P3.3.began", "ft-1.P3.3.stopped"]


def test_a_finding_of_another_rule_ends_nothing():
    assert len(told([0.5] * 5, stop_on=["P4", "hack_length"]).findings) == 3


def test_a_webhook_hears_once_where_a_finding_begins_and_once_where_it_ends():
    hook = FakeWebhook()
    told([0.5] * 5 + [0.0] * 8, webhook=hook)
    [(began_id, began), (ended_id, ended)] = hook.sent
    assert (began_id, ended_id) == ("ft-1.P3.3.began", "ft-1.P3.3.ended")
    assert {key: began[key] for key in ("type", "job_id", "step", "rule", "severity", "first_step")} == {
        "type": "finding.began",
        "job_id": "ft-1",
        "step": 3,
        "rule": "P3",
        "severity": "alarm",
        "first_step": 3,
    }
    assert began["title"] == {"en": "KL explosion", "zh": "KL 爆炸"}
    assert set(began["advice"]) == {"en", "zh"}
    assert ended["type"] == "finding.ended"
