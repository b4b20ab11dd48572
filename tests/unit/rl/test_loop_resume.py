"""The whole flow on fakes: stopping, and going on from a checkpoint."""

import asyncio
import gc
import json

import pytest

from fakes.bench import Bench, job, rows, run_facts
from fakes.functions import last_digit, one_call_agent
from strop.errors import CheckpointError
from strop.rl.stop import StopFlag, Stopped
from strop.schema.job import JobStatus

STOPS = [
    ("trajectories", 2, "validation"),
    ("metrics", 2),
    ("progress", 3, "rollout", 8, 8),
    ("trajectories", 3, "train"),
    ("progress", 3, "update", 0, 1),
    ("metrics", 3),
]


@pytest.mark.parametrize("stop_at", STOPS)
async def test_stopping_leaves_a_checkpoint_of_whole_steps(tmp_path, stop_at):
    bench = Bench(tmp_path, stop_at=stop_at)
    result = await bench.train(job(max_steps=6))
    done = 3 if stop_at in STOPS[3:] else 2
    assert (result.status, result.steps) == (JobStatus.CANCELED, done)
    assert [(one["step"], one["published"]) for one in bench.recorder.checkpoints] == [(done, False)]
    assert result.checkpoint == tmp_path / "checkpoints" / f"step-{done:06d}"
    assert bench.recorder.statuses == [JobStatus.PENDING, JobStatus.RUNNING, JobStatus.CANCELED]
    assert bench.capture.live == {}


async def test_stopping_before_the_first_step_is_through_saves_nothing(tmp_path):
    bench = Bench(tmp_path, stop_at=("progress", 1, "rollout", 0, 8))
    result = await bench.train()
    assert (result.status, result.steps, result.checkpoint) == (JobStatus.CANCELED, 0, None)
    assert bench.learner.batches == []


@pytest.mark.parametrize(
    ("prefix", "done"), [("v0", 0), ("v2", 2), ("s3", 2)], ids=["first validation", "validation", "sampling"]
)
async def test_what_would_not_count_is_cut_and_nothing_of_it_is_recorded(tmp_path, prefix, done):
    """The agents of that phase never answer: only cutting them ends the run."""
    bench = Bench(tmp_path)
    plain = one_call_agent(bench.capture)
    hanging = []

    async def agent(payload):
        if not payload.request_metadata.rollout_id.startswith(f"{prefix}-"):
            return await plain(payload)
        hanging.append(payload)
        bench.stop.set()
        return await asyncio.Event().wait()

    bench.functions.functions["agent"] = agent
    result = await bench.train(job(max_steps=6))
    assert (result.status, result.steps) == (JobStatus.CANCELED, done)
    assert [step for step, _ in result.validations] == (
        [] if prefix == "v0" else [0] if prefix == "v2" else [0, 2]
    )
    assert max([step for split, step in bench.recorder.groups if split == "train"], default=0) == done
    assert [one["step"] for one in bench.recorder.checkpoints] == [done] * bool(done)
    assert hanging
    assert bench.capture.live == {}


async def test_a_failure_of_what_can_be_cut_stays_that_failure(tmp_path):
    flag = StopFlag()

    async def fails():
        raise ValueError("of its own")

    with pytest.raises(ValueError, match="of its own"):
        await flag.cutting(fails())
    flag.set()
    with pytest.raises(Stopped):
        await flag.cutting(fails())


async def test_a_failure_just_as_the_run_is_to_end_is_not_told_as_one_that_nobody_saw():
    flag, unseen = StopFlag(), []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context["message"]))

    async def fails():
        flag.set()
        raise ValueError("of its own")

    with pytest.raises(Stopped):
        await flag.cutting(fails())
    gc.collect()
    assert unseen == []


SIX = {"max_steps": 6, "eval_steps": 2, "save_strategy": "steps", "save_steps": 3}


@pytest.mark.parametrize("num_rows", [6, 7, 8, 50])
async def test_three_steps_and_three_more_are_the_six_steps_straight(tmp_path, num_rows):
    straight = Bench(tmp_path / "straight")
    whole = await straight.train(job(**SIX), rows(num_rows))
    first = Bench(tmp_path / "halves", stop_at=("checkpoint", 3))
    half = await first.train(job(**SIX), rows(num_rows))
    assert half.steps == 3
    second = Bench(tmp_path / "halves")
    rest = await second.train(job(**SIX), rows(num_rows), resume_from=half.checkpoint)
    one, two = run_facts(straight), run_facts(first, second)
    assert two.opened == one.opened
    assert two.sampling == one.sampling
    assert two.batches == one.batches
    assert two.values == pytest.approx(one.values, nan_ok=True)
    assert two.weights == one.weights
    assert rest.validations == whole.validations
    assert (rest.sampled_tokens, rest.trained_tokens) == (whole.sampled_tokens, whole.trained_tokens)
    assert rest.status is JobStatus.SUCCEEDED


async def test_a_validation_that_stopping_cut_off_is_made_up_for(tmp_path):
    first = Bench(tmp_path, stop_at=("metrics", 2))
    half = await first.train(job())
    assert [step for step, _ in half.validations] == [0]
    rest = await Bench(tmp_path).train(job(), resume_from=half.checkpoint)
    assert [step for step, _ in rest.validations] == [0, 2, 4]


async def test_resuming_publishes_what_was_loaded_before_any_rollout(tmp_path):
    first = Bench(tmp_path, stop_at=("metrics", 2))
    half = await first.train(job())
    second = Bench(tmp_path)
    await second.train(job(), resume_from=half.checkpoint)
    assert second.weight_sync.pushed == [2, 3, 4]
    assert ("resumed", "goes on after step 2", 2) in second.recorder.events


async def test_retention_goes_on_across_a_resume(tmp_path):
    hyper = {"max_steps": 6, "save_strategy": "steps", "save_steps": 1, "eval_steps": 99, "validation": False}
    first = Bench(tmp_path, stop_at=("metrics", 3))
    half = await first.train(job(**hyper))
    second = Bench(tmp_path)
    await second.train(job(**hyper), resume_from=half.checkpoint)
    assert sorted(folder.name for folder in (tmp_path / "checkpoints").iterdir()) == [
        "step-000005",
        "step-000006",
    ]
    assert "checkpoint_not_removed" not in second.recorder.kinds()


async def test_resuming_a_finished_run_says_that_it_is_finished(tmp_path):
    done = await Bench(tmp_path).train()
    again = Bench(tmp_path)
    result = await again.train(resume_from=done.checkpoint)
    assert result.status is JobStatus.SUCCEEDED
    assert (result.steps, result.validations, result.checkpoint) == (4, done.validations, done.checkpoint)
    assert again.capture.opened == []
    assert again.checkpoints.written == []
    assert result.already_finished
    assert not done.already_finished
    assert [text for kind, text, _ in again.recorder.events if kind == "already_finished"] == [
        f"already finished: all 4 steps are in {done.checkpoint}"
    ]


async def test_a_run_stopped_after_its_last_step_is_finished_by_resuming(tmp_path):
    half = await Bench(tmp_path, stop_at=("metrics", 4)).train()
    assert (half.status, half.steps) == (JobStatus.CANCELED, 4)
    again = Bench(tmp_path)
    result = await again.train(resume_from=half.checkpoint)
    assert result.status is JobStatus.SUCCEEDED
    assert [step for step, _ in result.validations] == [0, 2, 4]
    assert again.recorder.checkpoints[-1]["published"] is True


def functions(weight: float = 1.0, *, preset: str | None = None, more: bool = False) -> list[dict]:
    right = {"name": "right", "weight": weight}
    right |= {"preset": preset} if preset else {"type": "reward", "fcmodel": {"classpath": "a.B"}}
    agent = {"type": "rollout", "name": "agent", "fcmodel": {"classpath": "a.B"}}
    style = {"type": "reward", "name": "style", "fcmodel": {"classpath": "a.B"}}
    return [agent, right, *([style] if more else [])]


CODE = {"agent": "11" * 32, "right": "22" * 32}


@pytest.mark.parametrize(
    ("config", "data", "told"),
    [
        (job(seed=7), rows(8), "training.hyper_parameters.seed was 42, is 7"),
        (job(batch_size=4), rows(8), "training.hyper_parameters.batch_size was 2, is 4"),
        (job(lora_rank=2), rows(8), "training.hyper_parameters.lora_rank was None, is 2"),
        (job(), rows(9), "training rows were 8 rows ("),
    ],
)
async def test_a_checkpoint_of_another_job_is_refused_with_what_was_and_what_is(tmp_path, config, data, told):
    half = await Bench(tmp_path, stop_at=("metrics", 2)).train()
    for accept in (False, True):
        second = Bench(tmp_path)
        with pytest.raises(CheckpointError, match="made by another job") as caught:
            await second.train(config, data, resume_from=half.checkpoint, accept_changes=accept)
        assert told in str(caught.value)
        assert "--accept-changes" not in str(caught.value)
        assert second.learner.weights == 0.0, "refused before anything was loaded"


JUDGED_OTHERWISE = [
    ({"config": job(functions=functions(2.0))}, "functions.right.weight was 1.0, is 2.0"),
    ({"code": {**CODE, "right": "33" * 32}}, "functions.right.code was 222222222222, is 333333333333"),
    ({"config": job(functions=functions(more=True))}, "functions.style is new"),
    ({"config": job(functions=functions(preset="math"))}, "functions.right.preset was None, is 'math'"),
    ({"validation": rows(4, "held")}, "validation rows were 3 rows ("),
    ({"config": job(validation=False)}, "are none"),
]


@pytest.mark.parametrize(("changed", "told"), JUDGED_OTHERWISE)
async def test_a_run_that_is_judged_otherwise_goes_on_only_where_that_is_accepted_and_says_so(
    tmp_path, changed, told
):
    half = await Bench(tmp_path, stop_at=("metrics", 2)).train(job(), code=CODE)
    options = {"config": job(), "code": CODE, "resume_from": half.checkpoint} | changed
    with pytest.raises(CheckpointError, match="made by another job") as caught:
        await Bench(tmp_path).train(**options)
    assert told in str(caught.value)
    assert "--accept-changes goes on as it is now" in str(caught.value)
    second = Bench(tmp_path, stop_at=("metrics", 3))
    second.functions.functions["style"] = last_digit
    rest = await second.train(**options, accept_changes=True)
    assert rest.steps == 3
    [text] = [text for kind, text, _ in second.recorder.events if kind == "changed"]
    assert text.startswith("goes on after changes that were accepted: ")
    assert told in text
    if "validation" in changed:  # what other rows said of a step is compared with nothing any more
        assert [step for step, _ in rest.validations] == [2]
    # From then on that is what the run is made from.
    third = Bench(tmp_path, stop_at=("metrics", 3))
    third.functions.functions["style"] = last_digit
    more = await third.train(**options | {"resume_from": rest.checkpoint})
    assert "changed" not in third.recorder.kinds()
    assert more.status in (JobStatus.SUCCEEDED, JobStatus.CANCELED)


@pytest.mark.parametrize(
    "change", [{"max_steps": 5}, {"eval_steps": 1}, {"save_total_limit": 9}, {"max_failure_rate": 0.25}]
)
async def test_what_computes_nothing_may_change(tmp_path, change):
    half = await Bench(tmp_path, stop_at=("metrics", 2)).train()
    second = Bench(tmp_path)
    await second.train(job(**change), resume_from=half.checkpoint)
    assert "changed" not in second.recorder.kinds()
    assert second.recorder.statuses[-1] is JobStatus.SUCCEEDED


async def test_a_position_that_lacks_something_is_refused_and_not_a_crash(tmp_path):
    half = await Bench(tmp_path, stop_at=("metrics", 2)).train()
    place = half.checkpoint / "position.json"
    saved = json.loads(place.read_text())
    for broken in ({"step": "two"}, {"validations": 3}, {"made_from": []}, {"lost": None}):
        place.write_text(json.dumps({**saved, **broken}))
        with pytest.raises(CheckpointError, match="position in the checkpoint cannot be read"):
            await Bench(tmp_path).train(resume_from=half.checkpoint)
