"""Replicas that start, die and are given up, in place of processes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from fakes.replicas import Barracks
from fakes.sampler import until
from strop.schema.deployment import DeploymentStatus
from strop.service.fleet import Fleet, Patience
from strop.service.replica import ReplicaSpec

SPEC = ReplicaSpec(deployed_model="tiny-1", source="/nowhere")
QUICK = Patience(max_failures=3, first_wait_s=0.001, longest_wait_s=0.002)


@pytest.fixture
async def barracks() -> Barracks:
    return Barracks()


@pytest.fixture
async def fleet(barracks: Barracks) -> AsyncIterator[Fleet]:
    made = Fleet(SPEC, make=barracks.make, patience=QUICK, on_change=lambda: None)
    yield made
    await made.close(at_once=True)
    assert barracks.alive == []


async def test_it_is_deploying_until_a_replica_answers_and_then_runs(
    fleet: Fleet, barracks: Barracks
) -> None:
    barracks.may_start.clear()
    fleet.resize(2)
    assert fleet.status is DeploymentStatus.DEPLOYING
    assert fleet.least_busy() is None
    barracks.may_start.set()
    await until(lambda: fleet.num_ready == 2)
    assert fleet.status is DeploymentStatus.RUNNING


async def test_a_call_goes_to_the_replica_with_the_fewest(fleet: Fleet, barracks: Barracks) -> None:
    fleet.resize(2)
    await until(lambda: fleet.num_ready == 2)
    one, other = barracks.started
    one.num_in_flight = 1
    assert fleet.least_busy() is other
    other.num_in_flight = 2
    assert fleet.least_busy() is one
    assert fleet.least_busy(other_than=one) is other


async def test_a_replica_that_dies_is_replaced_while_the_other_goes_on(
    fleet: Fleet, barracks: Barracks
) -> None:
    fleet.resize(2)
    await until(lambda: fleet.num_ready == 2)
    first, second = barracks.started
    await first.die()
    assert first not in fleet.ready
    assert second in fleet.ready
    await until(lambda: fleet.num_ready == 2 and len(barracks.started) == 3)
    assert fleet.status is DeploymentStatus.RUNNING


async def test_one_that_cannot_start_is_given_up_with_its_last_words_and_scaling_tries_again(
    fleet: Fleet, barracks: Barracks
) -> None:
    barracks.refusals = ["no such folder"] * 3
    fleet.resize(1)
    await until(lambda: fleet.status is DeploymentStatus.FAILED)
    assert len(barracks.started) == 3
    assert fleet.error == "a replica could not start: no such folder"
    fleet.resize(1)
    await until(lambda: fleet.num_ready == 1)
    assert (fleet.status, fleet.error) == (DeploymentStatus.RUNNING, None)


async def test_scaling_down_ends_the_least_busy_in_order_and_up_again_starts_another(
    fleet: Fleet, barracks: Barracks
) -> None:
    fleet.resize(2)
    await until(lambda: fleet.num_ready == 2)
    busy, idle = barracks.started
    busy.num_in_flight = 1
    fleet.resize(1)
    assert fleet.ready == [busy]
    await until(lambda: idle.exited.is_set())
    assert idle.stopped
    fleet.resize(2)
    await until(lambda: fleet.num_ready == 2)
    assert len(barracks.started) == 3


async def test_a_fleet_that_closes_ends_replicas_that_are_still_starting(
    fleet: Fleet, barracks: Barracks
) -> None:
    barracks.may_start.clear()
    fleet.resize(1)
    await until(lambda: len(barracks.started) == 1)
    await fleet.close()
    assert fleet.ready == []


async def test_a_replica_starts_with_its_part_of_the_processor_as_the_fleet_is_by_then(
    fleet: Fleet, barracks: Barracks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 12)
    fleet.resize(1)
    await until(lambda: fleet.num_ready == 1)
    fleet.resize(3)
    await until(lambda: fleet.num_ready == 3)
    await barracks.started[0].die()
    await until(lambda: fleet.num_ready == 3 and len(barracks.started) == 4)
    assert [one.spec.num_threads for one in barracks.started] == [12, 4, 4, 4]


def test_the_wait_before_a_start_doubles_up_to_its_limit() -> None:
    patience = Patience(first_wait_s=0.5, longest_wait_s=3.0)
    assert [patience.wait_s(failures) for failures in (1, 2, 3, 4, 5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
