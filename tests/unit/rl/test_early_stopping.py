"""A run that ends once its validation is good enough: when, what it leaves, and the same when resumed."""

from dataclasses import replace

import pytest

from fakes.bench import Bench, job, rows, run_facts
from strop.config.job import HyperParameters
from strop.rl.train_state import TrainState
from strop.schema.job import TARGET_REACHED_EVENT, JobStatus


def right_after(bench: Bench, steps: int) -> None:
    """Greedy answers are right once the learner has made so many updates."""
    sampled = bench.capture.policy

    def policy(sampling, messages):
        if sampling.temperature == 0:
            return "1" if bench.learner.version >= steps else "0"
        return sampled(sampling, messages)

    bench.capture.policy = policy


async def test_a_run_ends_once_its_validation_has_reached_the_target(tmp_path):
    bench = Bench(tmp_path)
    right_after(bench, 3)
    result = await bench.train(job(max_steps=8, eval_steps=2, early_stopping_target=0.9))
    assert (result.status, result.steps, result.target_reached) == (JobStatus.SUCCEEDED, 4, True)
    assert result.validations == ((0, 0.0), (2, 0.0), (4, 1.0))
    assert [(one["step"], one["published"]) for one in bench.recorder.checkpoints] == [(4, True)]
    told = [one for one in bench.recorder.events if one[0] == TARGET_REACHED_EVENT]
    text = "stopped after step 4 of 8: validation reached its target (1, target 0.9)"
    assert told == [(TARGET_REACHED_EVENT, text, 4)]


async def test_several_validations_in_a_row_must_have_reached_it(tmp_path):
    bench = Bench(tmp_path)
    right_after(bench, 3)
    more = {"early_stopping_target": 0.9, "early_stopping_count": 3}
    result = await bench.train(job(max_steps=9, eval_steps=1, **more))
    assert (result.steps, [value for _, value in result.validations]) == (5, [0.0, 0.0, 0.0, 1.0, 1.0, 1.0])


async def test_a_target_that_is_not_reached_changes_nothing(tmp_path):
    plain, aimed = Bench(tmp_path / "plain"), Bench(tmp_path / "aimed")
    whole = await plain.train(job())
    result = await aimed.train(job(early_stopping_target=1.5))
    assert run_facts(aimed).weights == run_facts(plain).weights
    assert (result.steps, result.target_reached) == (whole.steps, False)
    assert TARGET_REACHED_EVENT not in aimed.recorder.kinds()


async def test_what_was_good_before_training_is_trained_until_the_next_validation(tmp_path):
    bench = Bench(tmp_path)
    result = await bench.train(job(max_steps=8, eval_steps=3, early_stopping_target=0.9))
    assert result.validations == ((0, 1.0), (3, 1.0))


async def test_reaching_it_at_the_last_step_is_no_early_end(tmp_path):
    bench = Bench(tmp_path)
    right_after(bench, 4)
    result = await bench.train(job(max_steps=4, eval_steps=2, early_stopping_target=0.9))
    assert (result.steps, result.target_reached) == (4, True)
    assert TARGET_REACHED_EVENT not in bench.recorder.kinds()


async def test_weights_that_have_not_moved_yet_do_not_end_the_run(tmp_path):
    """All rewards of the first two steps are equal: the validation after them is of the start weights."""
    bench = Bench(tmp_path)
    sampled = bench.capture.policy

    def policy(sampling, messages):
        if sampling.temperature == 0 or len(bench.recorder.checkpoints) < 2:
            return "1"
        return sampled(sampling, messages)

    bench.capture.policy = policy
    aimed = {"eval_steps": 2, "early_stopping_target": 0.9, "save_strategy": "steps", "save_steps": 1}
    result = await bench.train(job(max_steps=8, **aimed), rows(50))
    assert (result.status, result.steps, result.target_reached) == (JobStatus.SUCCEEDED, 4, True)
    assert result.validations == ((0, 1.0), (2, 1.0), (4, 1.0))


AIMED = {
    "max_steps": 9,
    "eval_steps": 2,
    "early_stopping_target": 0.9,
    "early_stopping_count": 2,
    "save_strategy": "steps",
    "save_steps": 3,
}


async def test_a_resumed_run_ends_where_the_uninterrupted_one_does(tmp_path):
    straight = Bench(tmp_path / "straight")
    right_after(straight, 2)
    whole = await straight.train(job(**AIMED), rows(50))
    first = Bench(tmp_path / "halves", stop_at=("checkpoint", 3))
    right_after(first, 2)
    half = await first.train(job(**AIMED), rows(50))
    second = Bench(tmp_path / "halves")
    right_after(second, 2)
    rest = await second.train(job(**AIMED), rows(50), resume_from=half.checkpoint)
    assert (half.steps, rest.steps, whole.steps) == (3, 4, 4)
    assert rest.validations == whole.validations == ((0, 0.0), (2, 1.0), (4, 1.0))
    assert run_facts(first, second).weights == run_facts(straight).weights


async def test_a_run_that_ended_early_is_through_unless_the_target_is_raised(tmp_path):
    bench = Bench(tmp_path)
    first = await bench.train(job(max_steps=6, eval_steps=2, early_stopping_target=0.9), rows(50))
    again = await Bench(tmp_path).train(
        job(max_steps=6, eval_steps=2, early_stopping_target=0.5), rows(50), resume_from=first.checkpoint
    )
    assert (first.steps, again.steps, again.already_finished) == (2, 2, True)
    more = await Bench(tmp_path).train(
        job(max_steps=6, eval_steps=2, early_stopping_target=1.5), rows(50), resume_from=first.checkpoint
    )
    assert (more.steps, more.already_finished, more.target_reached) == (6, False, False)


@pytest.mark.parametrize(
    ("validations", "step", "count", "lower", "reached"),
    [
        (((0, 0.95),), 0, 1, False, False),
        (((0, 0.1), (2, 0.9)), 2, 1, False, True),
        (((0, 0.1), (2, 0.9)), 3, 1, False, False),
        (((0, 0.1), (2, 0.95), (4, 0.89)), 4, 1, False, False),
        (((0, 0.95), (2, 0.95)), 2, 2, False, False),
        (((2, 0.95), (4, 0.8), (6, 0.95)), 6, 2, False, False),
        (((2, 0.8), (4, 0.95), (6, 0.95)), 6, 2, False, True),
        (((2, None), (4, 0.95)), 4, 2, False, False),
        (((2, None),), 2, 1, False, False),
        (((2, 0.95),), 2, 1, True, False),
        (((2, 0.85),), 2, 1, True, True),
    ],
)
def test_which_validations_have_reached_it(validations, step, count, lower, reached):
    hyper = HyperParameters(early_stopping_target=0.9, early_stopping_count=count)
    at = TrainState(fingerprint={}, step=step, validations=validations)
    assert at.has_reached(hyper, lower_is_better=lower) is reached
    unmoved = replace(at, idle=step - step // 2, skipped=step // 2)
    assert not unmoved.has_reached(hyper, lower_is_better=lower)
