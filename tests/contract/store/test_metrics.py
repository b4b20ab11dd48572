import math

from strop.schema.job import Job
from strop.store.jobs import create_job
from strop.store.metrics import metric_names, record_metrics, step_metrics


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
