"""The offline flow on fakes: order, schedules, stopping, resuming, what is kept."""

import math
from pathlib import Path

import pytest

from fakes.learner import FakeCheckpoints
from fakes.offline import START_LOSS, FakeOfflineLearner, example
from fakes.recorder import FakeRecorder
from strop.config.job import JobConfig
from strop.data.dataset import Dataset
from strop.errors import CheckpointError, DataError, TrainingError
from strop.rl.failures import NothingLearned
from strop.rl.interfaces import OfflineBackends
from strop.rl.offline import offline_batch, train_offline
from strop.rl.stop import StopFlag
from strop.schema.job import JobStatus


def rows(count: int, name: str = "train", *, pairs: bool = False) -> Dataset:
    start = 20 if name == "train" else 200
    made = tuple(
        example(f"{name}{n}", [3], [start + n, 2], [start + n, 7, 2], pairs=((0, 1),) if pairs else ())
        for n in range(count)
    )
    return Dataset(path=Path(f"{name}.jsonl"), samples=made)


def job(kind: str = "sft", **hyper) -> JobConfig:
    values = {"batch_size": 2, "eval_steps": 2, "max_steps": 4, "save_strategy": "no", "n_epochs": 9}
    files = [{"file_name": "t"}, {"type": "validation", "file_name": "v"}]
    training = {"type": kind, "hyper_parameters": values | hyper}
    return JobConfig.model_validate({"model": "m", "datasets": files, "training": training})


class Bench:
    def __init__(self, folder: Path, *, stop_at=None) -> None:
        self.folder, self.stop, self.stop_at = folder, StopFlag(), stop_at
        self.learner = FakeOfflineLearner()
        self.checkpoints = FakeCheckpoints(self.learner)
        self.recorder = FakeRecorder(on=lambda entry: self.stop.set() if entry == self.stop_at else None)

    async def train(self, config=None, training=None, validation=None, **options):
        backends = OfflineBackends(learner=self.learner, checkpoints=self.checkpoints, recorder=self.recorder)
        return await train_offline(
            config or job(),
            backends,
            training or rows(8),
            validation or rows(3, "held"),
            job_id="job",
            folder=self.folder,
            stop=self.stop,
            **options,
        )

    @property
    def phases(self) -> list[str]:
        return [
            " ".join(str(word) for word in entry)
            for entry in self.recorder.log
            if entry[0] != "progress" and entry != ("event", "note")
        ]


@pytest.fixture
def bench(tmp_path) -> Bench:
    return Bench(tmp_path)


async def test_loss_on_held_out_rows_is_measured_before_the_first_step_when_due_and_at_the_end(bench) -> None:
    result = await bench.train(job(max_steps=3))
    assert bench.phases == [
        "status RUNNING",
        "metrics 0",
        "metrics 1",
        "metrics 2",
        "metrics 2",
        "metrics 3",
        "metrics 3",
        "checkpoint 3",
        "metrics 3",
        "status SUCCEEDED",
    ]
    assert result.validations == ((0, 8.0), (2, 2.0), (3, 1.0))
    assert bench.recorder.values[0]["validation/data/loss"] == START_LOSS
    assert bench.recorder.values[3]["validation/data/perplexity"] == 2.0
    assert bench.recorder.values[1]["actor/loss"] == START_LOSS
    assert bench.recorder.values[1]["perf/loss_tokens"] == 10  # two rows of 2 + 3 taught tokens
    assert bench.recorder.values[1]["perf/trained_tokens"] == 10  # 3, n, 2 and the branch 7, 2
    assert (result.status, result.steps, result.trained_tokens) == (JobStatus.SUCCEEDED, 3, 30)
    assert bench.recorder.checkpoints[-1]["validation"] == 1.0


async def test_every_row_of_an_epoch_is_drawn_once(bench) -> None:
    await bench.train(job(max_steps=4))
    drawn = [
        pack.sequences[0].rollout_id for one in bench.learner.batches for pack in one.mini_batches[0].packs
    ]
    assert sorted(drawn) == sorted(f"train{n}/0" for n in range(8))


async def test_the_reference_is_asked_once_for_each_row_to_come_before_anything_is_learned(bench) -> None:
    await bench.train(job("dpo", max_steps=6), rows(6, pairs=True), rows(2, "held", pairs=True))
    expected = [
        f"{name}{n}/{side}"
        for name, count in (("train", 6), ("held", 2))
        for n in range(count)
        for side in (0, 1)
    ]
    assert sorted(bench.learner.remembered) == sorted(expected)
    few = Bench(bench.folder)
    await few.train(job("dpo", max_steps=1), rows(6, pairs=True), rows(2, "held", pairs=True))
    assert len(few.learner.remembered) == 2 * (2 + 2)


async def test_a_resumed_run_learns_what_the_uninterrupted_one_does(tmp_path) -> None:
    config = job("dpo", max_steps=7, save_strategy="steps", save_steps=2, batch_size=3)
    data = {"training": rows(8, pairs=True), "validation": rows(2, "held", pairs=True)}
    straight = Bench(tmp_path / "a")
    expected = await straight.train(config, **data)
    stopped = Bench(tmp_path / "b", stop_at=("metrics", 3))
    first = await stopped.train(config, **data)
    assert (first.status, first.steps) == (JobStatus.CANCELED, 3)
    resumed = Bench(tmp_path / "b")
    result = await resumed.train(config, **data, resume_from=first.checkpoint)
    assert resumed.learner.weights == straight.learner.weights
    assert result.validations == expected.validations
    assert result.trained_tokens == expected.trained_tokens
    assert sorted(resumed.learner.remembered) == sorted(straight.learner.remembered)
    again = Bench(tmp_path / "b")
    finished = await again.train(config, **data, resume_from=result.checkpoint)
    assert finished.status is JobStatus.SUCCEEDED
    assert "already_finished" in again.recorder.kinds()
    assert finished.already_finished
    assert again.learner.batches == []


@pytest.mark.parametrize(
    ("stop_at", "steps", "validations"),
    [
        (("progress", 0, "reference", 0, 6), 0, 0),
        (("progress", 0, "validation", 0, 2), 0, 0),
        (("progress", 2, "validation", 0, 2), 2, 1),
    ],
)
async def test_measuring_ends_with_the_run_and_half_of_it_is_not_recorded(
    tmp_path, stop_at, steps, validations
) -> None:
    bench = Bench(tmp_path, stop_at=stop_at)
    result = await bench.train(
        job("dpo", max_steps=4, batch_size=2), rows(4, pairs=True), rows(2, "held", pairs=True)
    )
    assert (result.status, result.steps) == (JobStatus.CANCELED, steps)
    assert len(result.validations) == validations
    of_it = [done for step, phase, done, _ in bench.recorder.reports if (step, phase) == stop_at[1:3]]
    assert max(of_it) < stop_at[4]
    assert sum("validation/data/loss" in values for values in bench.recorder.values.values()) == validations


async def test_a_resumed_run_that_is_stopped_before_its_checkpoint_is_loaded_still_has_it(tmp_path) -> None:
    data = {"training": rows(4, pairs=True), "validation": rows(2, "held", pairs=True)}
    config = job("dpo", max_steps=4, batch_size=2)
    first = await Bench(tmp_path, stop_at=("metrics", 3)).train(config, **data)
    again = Bench(tmp_path, stop_at=("progress", 0, "reference", 0, 6))
    result = await again.train(config, **data, resume_from=first.checkpoint)
    assert (result.status, result.steps, result.checkpoint) == (JobStatus.CANCELED, 3, first.checkpoint)
    assert result.validations == first.validations == ((0, 8.0), (2, 2.0))
    assert again.learner.batches == []


async def test_measuring_tells_how_far_it_is(bench) -> None:
    await bench.train(job(max_steps=1))
    told = [one for one in bench.recorder.reports if one[:2] == (0, "validation")]
    assert told == [(0, "validation", done, 3) for done in (0, 1, 2, 3)]


async def test_a_run_is_not_resumed_with_other_rows_or_as_another_training(tmp_path) -> None:
    first = await Bench(tmp_path).train(job(max_steps=1))
    for config, data, told in (
        (job(max_steps=2), rows(9), "training rows were 8 rows ("),
        (job("cpt", max_steps=2), rows(8), "training.type was 'sft', is 'cpt'"),
    ):
        with pytest.raises(CheckpointError, match="made by another job") as caught:
            await Bench(tmp_path).train(config, data, resume_from=first.checkpoint)
        assert told in str(caught.value)


async def test_a_run_that_changed_no_weight_fails_and_keeps_its_checkpoint(bench) -> None:
    bench.learner.learned = lambda: False
    with pytest.raises(NothingLearned, match="2 had a gradient, or a rate, too small") as caught:
        await bench.train(job("dpo", max_steps=2), rows(8, pairs=True))
    assert "lower dpo_beta" in str(caught.value)
    assert bench.recorder.statuses[-1] is JobStatus.FAILED
    assert [one["published"] for one in bench.recorder.checkpoints] == [False]


async def test_the_checkpoint_of_the_lowest_loss_stays(tmp_path) -> None:
    bench = Bench(tmp_path)
    losses = iter([8.0, 5.0, 3.0, 4.0, 6.0])
    bench.learner.measure = lambda packs, report: {"actor/loss": next(losses)}
    config = job(max_steps=4, eval_steps=1, save_strategy="steps", save_steps=1, save_total_limit=2)
    await bench.train(config)
    assert sorted(one.name for one in (tmp_path / "checkpoints").iterdir()) == ["step-000002", "step-000004"]


EVERY_SECOND = {"save_strategy": "steps", "save_steps": 2, "eval_steps": 99}


async def test_a_skipped_update_is_told_and_the_run_goes_on(bench) -> None:
    bench.learner.bad = {2}
    result = await bench.train(job(max_steps=3))
    assert (result.status, result.steps, bench.learner.version) == (JobStatus.SUCCEEDED, 3, 2)
    told = ("update_skipped", "an update was skipped: its gradient is not finite", 2)
    assert bench.recorder.events.count(told) == 1
    assert [bench.recorder.values[step]["actor/skipped_updates"] for step in (1, 2, 3)] == [0, 1, 0]


async def test_three_steps_without_a_finite_gradient_go_back_to_the_checkpoint_past_their_rows(bench) -> None:
    bench.learner.bad = {4, 5, 6}
    straight = Bench(bench.folder / "straight")
    await straight.train(job(max_steps=8, **EVERY_SECOND), rows(16))
    result = await bench.train(job(max_steps=8, **EVERY_SECOND), rows(16))
    assert (result.status, result.steps) == (JobStatus.SUCCEEDED, 8)
    texts = [(text, step) for kind, text, step in bench.recorder.events if kind == "rolled_back"]
    assert texts == [
        (
            "step 6: no update of the last 3 steps had a finite gradient; back to the checkpoint of step 2 "
            "(return 1 of 3 at most), past the rows of these steps",
            2,
        )
    ]
    # Step 7 sets out with the two updates of step 2, and with the rows it has in a run without trouble.
    assert [(step, version) for step, version, _ in bench.learner.seen[-2:]] == [(7, 2), (8, 3)]
    assert [row for _, _, row in bench.learner.seen] == [row for _, _, row in straight.learner.seen]
    assert [one["step"] for one in bench.recorder.checkpoints] == [2, 6, 8]
    assert [one["policy_version"] for one in bench.recorder.checkpoints] == [2, 2, 4]


async def test_no_row_of_a_preference_run_is_without_its_reference_after_a_return(bench) -> None:
    bench.learner.bad = {3, 4, 5}
    await bench.train(job("dpo", max_steps=6, **EVERY_SECOND), rows(20, pairs=True), rows(2, "h", pairs=True))
    drawn = {row for _, _, row in bench.learner.seen}
    assert bench.learner.seen[-1][0] == 6
    assert drawn <= set(bench.learner.remembered)


async def test_the_run_gives_up_after_three_returns_and_names_the_fix(bench) -> None:
    bench.learner.bad = set(range(3, 99))
    with pytest.raises(TrainingError, match="no update of the last 3 steps") as caught:
        await bench.train(job(max_steps=40, n_epochs=40, **EVERY_SECOND))
    assert "lower learning_rate, or look for broken rows" in str(caught.value)
    assert bench.recorder.kinds().count("rolled_back") == 3
    assert bench.recorder.statuses[-1] is JobStatus.FAILED


async def test_without_a_checkpoint_there_is_nothing_to_go_back_to(bench) -> None:
    bench.learner.bad = {1, 2, 3}
    with pytest.raises(TrainingError, match="no update of the last 3 steps"):
        await bench.train()
    assert bench.recorder.kinds().count("update_skipped") == 3
    assert bench.recorder.statuses[-1] is JobStatus.FAILED


async def test_a_run_killed_after_a_return_takes_the_same_steps_when_it_is_resumed(tmp_path) -> None:
    config = job(max_steps=9, **EVERY_SECOND)
    straight = Bench(tmp_path / "a")
    straight.learner.bad = {3, 4, 5}
    await straight.train(config, rows(18))
    first = Bench(tmp_path / "b", stop_at=("metrics", 6))
    first.learner.bad = {3, 4, 5}
    half = await first.train(config, rows(18))
    second = Bench(tmp_path / "b")
    second.learner.bad = {3, 4, 5}
    await second.train(config, rows(18), resume_from=half.checkpoint)
    assert first.learner.seen + second.learner.seen == straight.learner.seen
    assert second.learner.weights == straight.learner.weights


async def test_a_loss_that_is_no_number_is_no_best(bench) -> None:
    bench.learner.measure = lambda packs, report: {"actor/loss": math.nan}
    result = await bench.train(job(max_steps=1))
    assert result.validations == ((0, None), (1, None))


async def test_fewer_rows_than_one_step_takes_are_refused(bench) -> None:
    with pytest.raises(DataError, match="one step takes batch_size = 9"):
        await bench.train(job(batch_size=9))


def test_a_step_is_one_update_with_its_denominators_over_all_rows() -> None:
    made = offline_batch(5, rows(3, pairs=True).samples)
    [mini] = made.mini_batches
    assert (made.step, mini.num_rollouts, mini.num_loss_tokens) == (5, 3, 15)
    assert [one.pairs for one in mini.packs] == [((0, 1),)] * 3


async def test_a_run_ends_once_its_held_out_loss_is_low_enough(tmp_path):
    bench = Bench(tmp_path)
    result = await bench.train(job(max_steps=8, eval_steps=1, early_stopping_target=START_LOSS / 4))
    assert (result.steps, result.target_reached) == (2, True)
    assert [value for _, value in result.validations] == [START_LOSS, START_LOSS / 2, START_LOSS / 4]
