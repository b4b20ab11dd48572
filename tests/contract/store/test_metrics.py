import math

from strop.schema.job import Job
from strop.store.jobs import create_job
from strop.store.metrics import (
    Curve,
    last_values,
    metric_names,
    recent_mean,
    record_metrics,
    step_metrics,
    thinned_curves,
)


def test_curves_come_back_by_name_in_order_of_steps(database, job):
    with database.write() as session:
        record_metrics(session, "job-1", 2, {"actor/loss": 0.25, "critic/rewards/mean": 0.5})
        record_metrics(session, "job-1", 1, {"actor/loss": 0.1})
    with database.read() as session:
        assert step_metrics(session, "job-1") == {
            "actor/loss": [(1, 0.1), (2, 0.25)],
            "critic/rewards/mean": [(2, 0.5)],
        }
        assert step_metrics(session, "job-1", ["critic/rewards/mean", "actor/lr"]) == {
            "critic/rewards/mean": [(2, 0.5)]
        }
        assert metric_names(session, "job-1") == ["actor/loss", "critic/rewards/mean"]


def test_values_that_are_not_finite_come_back_and_are_not_missing(database, job):
    with database.write() as session:
        record_metrics(session, "job-1", 1, {"a": math.nan, "b": math.inf, "c": -math.inf})
    with database.read() as session:
        found = step_metrics(session, "job-1")
    assert math.isnan(found["a"][0][1])
    assert found["b"] == [(1, math.inf)]
    assert found["c"] == [(1, -math.inf)]


def test_the_last_value_of_a_step_stands(database, job):
    with database.write() as session:
        record_metrics(session, "job-1", 1, {"a": 1.0, "b": 2.0})
        record_metrics(session, "job-1", 1, {"a": 3.0})
    with database.read() as session:
        assert step_metrics(session, "job-1") == {"a": [(1, 3.0)], "b": [(1, 2.0)]}


def test_jobs_do_not_see_each_others_curves(database, job):
    with database.write() as session:
        create_job(session, Job(**{**job.model_dump(), "job_id": "job-2"}))
        record_metrics(session, "job-1", 1, {"a": 1.0})
        record_metrics(session, "job-2", 1, {"a": 2.0})
    with database.read() as session:
        assert step_metrics(session, "job-2") == {"a": [(1, 2.0)]}


def test_a_thinned_point_is_the_mean_and_the_extremes_of_its_steps(database, job):
    with database.write() as session:
        for step in range(1, 8):
            record_metrics(session, "job-1", step, {"a": float(step * step), "b": -float(step)})
        record_metrics(session, "job-1", 8, {"b": math.nan, "c": 5.0})
    with database.read() as session:
        # From step 1 to 8 in at most three points: three steps a point.
        found = thinned_curves(session, "job-1", ["b", "a", "none", "a"], since_step=1, num_points=3)
        assert found == {
            "b": Curve(
                steps=[1, 4, 7], mean=[-2.0, -5.0, -7.0], low=[-3.0, -6.0, -7.0], high=[-1.0, -4.0, -7.0]
            ),
            "a": Curve(
                steps=[1, 4, 7],
                mean=[14 / 3, 77 / 3, 49.0],
                low=[1.0, 16.0, 49.0],
                high=[9.0, 36.0, 49.0],
            ),
        }
        assert thinned_curves(session, "job-1", ["a"], since_step=6)["a"].mean == [36.0, 49.0]
        assert last_values(session, "job-1", ["a", "c", "none"]) == {"a": (7, 49.0), "c": (8, 5.0)}
        assert recent_mean(session, "job-1", "a", num_steps=2) == 42.5
