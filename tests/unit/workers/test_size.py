"""How many workers a load needs, worked by hand."""

import pytest

from strop.config.job import FunctionRuntime
from strop.schema.reply import FunctionReply
from strop.workers.gauges import Gauges
from strop.workers.size import Load, PoolSize, cut, limits_of


def load(workers: int = 1, busy: int = 0, waiting: int = 0, memory: float = 0.0) -> Load:
    return Load(num_workers=workers, num_busy=busy, num_waiting=waiting, memory_share=memory)


@pytest.mark.parametrize(
    ("found", "needed"),
    [
        (load(), 0),
        (load(busy=1), 1),
        (load(busy=6), 1),  # 6 of 10 places: at the threshold, not above it
        (load(busy=7), 2),
        (load(busy=10, waiting=9), 4),  # 19 / 6 = 3.2
        (load(busy=60), 5),  # the most
        (load(workers=2, busy=1, memory=0.51), 3),  # memory alone asks for one more
        (load(workers=2, busy=1, memory=0.5), 1),
        (load(workers=2, memory=0.9), 0),  # nobody is there who would need it
    ],
)
def test_either_threshold_asks_for_workers(found: Load, needed: int) -> None:
    size = PoolSize(concurrency=10, smallest=0, largest=5, concurrency_threshold=0.6, memory_threshold=0.5)
    assert size.needed(found) == needed


@pytest.mark.parametrize(
    ("asked", "bounds"),
    [
        ({}, (1, 1, 1)),
        ({"capacity": 3}, (3, 3, 3)),
        ({"max_capacity": 4}, (1, 1, 4)),
        ({"capacity": 2, "max_capacity": 4}, (1, 2, 4)),
        ({"min_capacity": 0}, (0, 1, 1)),
        ({"capacity": 0, "max_capacity": 4}, (0, 0, 4)),
        ({"capacity": 30, "min_capacity": 30, "max_capacity": 60}, (30, 30, 60)),
    ],
)
def test_capacities_that_are_left_out_follow_from_the_others(
    asked: dict[str, int], bounds: tuple[int, int, int]
) -> None:
    assert FunctionRuntime.model_validate(asked).capacities == bounds


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"min_capacity": 3, "max_capacity": 2}, "min_capacity: 3 is above max_capacity 2"),
        ({"capacity": 5, "max_capacity": 2}, "capacity: 5 is not within min_capacity 1 and max_capacity 2"),
        ({"concurrency_scale_threshold": 0.6}, "concurrency_scale_threshold: has no effect"),
        ({"memory_scale_threshold": 0.6, "max_capacity": 4}, "has no effect without memory_size"),
        ({"memory_size": 10}, "greater than or equal to 64"),
    ],
)
def test_sizes_that_contradict_each_other_are_refused(asked: dict[str, float], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        FunctionRuntime.model_validate(asked)


def test_what_a_machine_does_not_bear_is_cut_and_told() -> None:
    runtime = FunctionRuntime(
        cpu=2, memory_size=4096, disk_size=512, capacity=30, min_capacity=30, max_capacity=60
    )
    size = PoolSize.of(runtime, most=4)
    assert (size.smallest, size.initial, size.largest) == (4, 4, 4)
    assert cut(runtime, most=4) == [
        "capacity 30, min_capacity 30, max_capacity 60: "
        "4 workers is the most for one function on this machine"
    ]
    assert cut(runtime, most=64) == []
    limits = limits_of(runtime)
    assert (limits.cpu, limits.memory_size, limits.disk_size) == (2, 4096, 512)


def test_percentiles_are_by_nearest_rank() -> None:
    gauges = Gauges()
    assert gauges.percentile(0.5) is None
    for latency_s in (4.0, 1.0, 3.0, 2.0):
        gauges.count(FunctionReply(error="x", error_code="timeout", latency_s=latency_s))
    assert (gauges.percentile(0.5), gauges.percentile(0.95)) == (2.0, 4.0)
    assert gauges.errors == {"timeout": 4}
