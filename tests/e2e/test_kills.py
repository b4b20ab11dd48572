"""One of each is killed while a job trains and files come in; `soak.service` does it a hundred times."""

from __future__ import annotations

from soak.service import KINDS, kill_the_service


def test_a_server_a_trainer_a_worker_and_a_replica_are_killed_and_nothing_is_lost() -> None:
    survived = kill_the_service(len(KINDS), seed=1, pause_s=2.0, baseline=False)
    assert survived.kills == dict.fromkeys(KINDS, 1)
    assert survived.ends["FAILED"] == 0
    assert survived.ends["SUCCEEDED"] >= 1
    assert survived.files >= 1
