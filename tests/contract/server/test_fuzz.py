"""A few seconds of schemathesis with a fixed seed; `soak.fuzz` is the long run."""

from __future__ import annotations

import pytest

from fakes.replicas import Barracks
from fakes.server import serving
from soak.fuzz import furnish, fuzz
from strop.store.home import home


def test_schemathesis_finds_no_5xx_and_nothing_that_the_document_does_not_say(
    monkeypatch: pytest.MonkeyPatch, quiet_log: None
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")  # layers that it asks for are not looked for on the network
    with serving(home(), make_replica=Barracks().make) as server:
        found = fuzz(
            server.url, server.key, furnish(server.url, server.key),
            seed=1, phases="fuzzing", examples=4, limit_s=None,
        )  # fmt: skip
    assert found.clean, "\n".join(line[:300] for line in found.report.splitlines())
    assert found.calls >= 100
