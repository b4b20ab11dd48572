"""What a replica's process is given, and what not."""

from __future__ import annotations

import pytest

from strop.service.replica import ReplicaSpec, environment_of


def test_a_replica_gets_its_limits_and_none_of_the_servers_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("STROP_SERVE_MAX_LENGTH", "8192")
    monkeypatch.setenv("STROP_HOME", "/strop")
    for secret in ("STROP_DATABASE_URL", "STROP_SERVE_API_KEY", "DASHSCOPE_API_KEY"):
        monkeypatch.setenv(secret, "secret")
    env = environment_of(ReplicaSpec(deployed_model="tiny-a", source="/models/tiny", num_threads=3))
    assert (env["STROP_SERVE_MAX_LENGTH"], env["STROP_HOME"], env["OMP_NUM_THREADS"]) == (
        "8192",
        "/strop",
        "3",
    )
    assert "secret" not in env.values()
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert (
        environment_of(ReplicaSpec(deployed_model="a", source="b", num_threads=3))["OMP_NUM_THREADS"] == "1"
    )
