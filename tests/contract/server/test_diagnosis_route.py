from datetime import UTC, datetime

from strop.schema.finding import Evidence, Finding, Severity, Text
from strop.schema.responses import FindingInfo
from strop.store.findings import record_finding

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_findings_are_shown_with_the_words_of_their_rule(server):
    job_id = server.submit()
    finding = Finding(
        job_id=job_id,
        rule="P3",
        severity=Severity.ALARM,
        first_step=4,
        last_step=6,
        summary=Text(en="ppo_kl 0.4", zh="ppo_kl 为 0.4"),
        evidence=Evidence(numbers={"ppo_kl": 0.4}),
        created_at=NOON,
        updated_at=NOON,
    )
    with server.database.write() as session:
        record_finding(session, finding)
        record_finding(session, finding.model_copy(update={"rule": "P9", "ended_step": 7}))
    shown = server.get(f"/fine-tunes/{job_id}/diagnosis")["findings"]
    assert [one["rule"] for one in shown] == ["P3", "P9"]
    assert shown[0]["title"] == {"en": "KL explosion", "zh": "KL 爆炸"}
    assert shown[0]["summary"]["en"] == "ppo_kl 0.4"
    assert shown[0]["evidence"]["numbers"] == {"ppo_kl": 0.4}
    assert "kl_loss_coef" in shown[0]["advice"]["zh"]
    only = server.get(f"/fine-tunes/{job_id}/diagnosis", open_only=True)["findings"]
    assert [one["rule"] for one in only] == ["P3"]
    server.post(f"/fine-tunes/{job_id}/cancel")


def test_a_finding_of_a_rule_that_this_version_does_not_have_is_shown_without_words(server):
    job_id = server.submit()
    finding = Finding(
        job_id=job_id,
        rule="P99",
        severity=Severity.WARNING,
        first_step=1,
        last_step=2,
        summary=Text(en="seen", zh="见过"),
        evidence=Evidence(),
        created_at=NOON,
        updated_at=NOON,
    )
    with server.database.write() as session:
        record_finding(session, finding)
    (shown,) = server.get(f"/fine-tunes/{job_id}/diagnosis")["findings"]
    assert (shown["rule"], shown["summary"]["en"]) == ("P99", "seen")
    assert FindingInfo.model_validate(shown).title is None
    server.post(f"/fine-tunes/{job_id}/cancel")
