"""A small crowd for two seconds; `soak.crowd` is the large one for two minutes."""

from __future__ import annotations

from soak.crowd import crowd


async def test_no_client_of_a_crowd_sees_a_5xx_or_loses_a_write() -> None:
    seen = await crowd(12, 2.0, seed=1)
    assert seen.wrong == []
    assert max(seen.statuses) < 500
    assert seen.writes >= 24
