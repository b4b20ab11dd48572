"""A probe for each setting of the flow: with two settings of it, something observable differs as it should.

`test_all_hyper_parameters` makes sure that none is without a probe here or in `test_learner_probes`.
"""

import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fakes.bench import Bench, job, rows
from fakes.critic import FakeCritic
from fakes.functions import last_digit
from strop.config.job import HyperParameters
from strop.data.dataset import load_dataset
from strop.errors import DataError, TrainingError
from strop.rl.batch import pack
from strop.rl.filtering import NothingToTrain
from strop.rl.token_advantage import penalise, shape_advantages
from strop.schema.batch import Batch, MiniBatch, Score
from strop.schema.batch import Sequence as TokenSequence
from strop.schema.sampling import FinishReason

Probe = Callable[[Path], Awaitable[None]]
PROBES: dict[str, Probe] = {}


def probe(name: str) -> Callable[[Probe], Probe]:
    def register(made: Probe) -> Probe:
        PROBES[name] = made
        return made

    return register


async def ran(folder: Path, num_rows: int = 8, *, right=last_digit, **hyper) -> Bench:
    """A finished run of the whole flow on fakes."""
    bench = Bench(folder, right=right)
    await bench.train(job(**{"max_steps": 1, "validation": False} | hyper), rows(num_rows))
    return bench


def first_batch(bench: Bench) -> Batch:
    return bench.learner.batches[0]


def advantages(bench: Bench) -> list[float]:
    minis = first_batch(bench).mini_batches
    return [one.advantage for mini in minis for pack in mini.packs for one in pack.sequences]


def rewards(bench: Bench) -> list[float | None]:
    return [one.reward for group in bench.recorder.groups["train", 1] for one in group.trajectories]


@probe("algorithm")
async def _(folder: Path) -> None:
    scaled = await ran(folder / "a", algorithm="grpo")
    plain = await ran(folder / "b", algorithm="dr_grpo")
    mean = sum(rewards(plain)[:4]) / 4
    expected = sorted(value - mean for value in rewards(plain)[:4])
    assert sorted(advantages(plain)[:4]) == pytest.approx(expected)
    assert advantages(scaled) != advantages(plain)


@probe("batch_size")
async def _(folder: Path) -> None:
    for size in (2, 4):
        assert len((await ran(folder / str(size), batch_size=size)).recorder.groups["train", 1]) == size


@probe("n_rollouts")
async def _(folder: Path) -> None:
    for count in (3, 5):
        groups = (await ran(folder / str(count), n_rollouts=count)).recorder.groups["train", 1]
        assert {len(group.trajectories) for group in groups} == {count}


@probe("n_epochs")
async def _(folder: Path) -> None:
    for epochs in (1, 3):
        bench = await ran(folder / str(epochs), n_epochs=epochs, max_steps=None)
        assert len(bench.recorder.groups) == 4 * epochs


@probe("max_steps")
async def _(folder: Path) -> None:
    for steps in (1, 3):
        assert len((await ran(folder / str(steps), max_steps=steps)).recorder.groups) == steps


@probe("ppo_mini_batch_size")
async def _(folder: Path) -> None:
    for size, cuts in ((4, 1), (2, 2), (1, 4)):
        bench = await ran(folder / str(size), batch_size=4, ppo_mini_batch_size=size)
        assert len(first_batch(bench).mini_batches) == cuts


@probe("ppo_epochs")
async def _(folder: Path) -> None:
    for passes in (1, 3):
        assert len(first_batch(await ran(folder / str(passes), ppo_epochs=passes)).mini_batches) == passes


@probe("eval_steps")
async def _(folder: Path) -> None:
    for every, validated in ((1, [0, 1, 2]), (5, [0, 2])):
        bench = await ran(folder / str(every), max_steps=2, eval_steps=every, validation=True)
        assert [step for split, step in bench.recorder.groups if split == "validation"] == validated


@probe("early_stopping_target")
async def _(folder: Path) -> None:
    for target, validated in ((0.9, [0, 1]), (1.1, [0, 1, 2, 3])):
        bench = await ran(
            folder / str(target), max_steps=3, eval_steps=1, early_stopping_target=target, validation=True
        )
        assert [step for split, step in bench.recorder.groups if split == "validation"] == validated


@probe("early_stopping_count")
async def _(folder: Path) -> None:
    for count in (1, 2):
        more = {"early_stopping_target": 0.9, "early_stopping_count": count, "validation": True}
        bench = await ran(folder / str(count), max_steps=3, eval_steps=1, **more)
        assert [step for split, step in bench.recorder.groups if split == "train"] == list(
            range(1, count + 1)
        )


def saved(bench: Bench) -> list[int]:
    return [one["step"] for one in bench.recorder.checkpoints]


@probe("save_strategy")
async def _(folder: Path) -> None:
    for strategy, steps in (("no", [6]), ("epoch", [4, 6]), ("steps", [6])):
        assert saved(await ran(folder / strategy, max_steps=6, save_strategy=strategy)) == steps


@probe("save_steps")
async def _(folder: Path) -> None:
    for every, steps in ((1, [1, 2, 3]), (2, [2, 3])):
        bench = await ran(folder / str(every), max_steps=3, save_strategy="steps", save_steps=every)
        assert saved(bench) == steps


@probe("save_total_limit")
async def _(folder: Path) -> None:
    for limit, gone in ((1, 2), (2, 1), (3, 0)):
        hyper = {"max_steps": 3, "save_strategy": "steps", "save_steps": 1, "save_total_limit": limit}
        assert len((await ran(folder / str(limit), **hyper)).recorder.removed) == gone


@probe("seed")
async def _(folder: Path) -> None:
    one, two = await ran(folder / "1", seed=1), await ran(folder / "2", seed=2)
    again = await ran(folder / "3", seed=1)
    assert one.capture.sampling == again.capture.sampling
    seeds = [{params.seed for params in bench.capture.sampling.values()} for bench in (one, two)]
    assert not seeds[0] & seeds[1]
    drawn = [[group.sample.sample_id for group in bench.recorder.groups["train", 1]] for bench in (one, two)]
    assert drawn[0] != drawn[1]


@probe("temperature")
async def _(folder: Path) -> None:
    for value in (0.5, 1.0):
        bench = await ran(folder / str(value), temperature=value)
        assert {params.temperature for params in bench.capture.sampling.values()} == {value}


def asked_tokens(bench: Bench) -> set[int]:
    return {params.max_tokens for params in bench.capture.sampling.values()}


@probe("max_tokens")
async def _(folder: Path) -> None:
    for value, asked in ((7, 7), (None, 64 - 32)):
        assert asked_tokens(await ran(folder / str(value), max_tokens=value)) == {asked}


@probe("max_length")
async def _(folder: Path) -> None:
    for value in (50, 60):
        assert asked_tokens(await ran(folder / str(value), max_length=value)) == {value - 32}


@probe("max_prompt_length")
async def _(folder: Path) -> None:
    assert asked_tokens(await ran(folder, max_prompt_length=10)) == {64 - 10}
    path = folder / "rows.jsonl"
    path.write_text('{"messages": [{"role": "user", "content": "one two three"}]}\n')
    count = lambda messages, tools: len(messages[0]["content"].split())  # noqa: E731
    assert len(load_dataset(path, max_prompt_length=3, prompt_length=count)) == 1
    with pytest.raises(DataError, match="max_prompt_length is 2"):
        load_dataset(path, max_prompt_length=2, prompt_length=count)


def fails(payload):
    if payload.request_metadata.rollout_id.endswith(("-r0", "-r1")):
        raise ValueError("no")
    return last_digit(payload)


@probe("max_attempts")
async def _(folder: Path) -> None:
    for value in (1, 4):
        bench = await ran(folder / str(value), right=fails, max_attempts=value)
        asked = [one.request_metadata.rollout_id for one in bench.functions.inputs("right")]
        assert {asked.count(name) for name in asked if name.endswith("-r0")} == {value}


@probe("max_failure_rate")
async def _(folder: Path) -> None:
    assert (await ran(folder / "a", right=fails, max_failure_rate=0.5)).learner.batches
    with pytest.raises(TrainingError, match=r"max_failure_rate = 0\.4"):
        await ran(folder / "b", right=fails, max_failure_rate=0.4)


@probe("max_staleness")
async def _(folder: Path) -> None:
    async def order(bound: int) -> list[str]:
        """Of two steps; the first is learned no sooner than the second is sampled, where that is allowed."""
        bench, told, second = Bench(folder / str(bound)), list[str](), threading.Event()
        update, call = bench.learner.update, bench.functions.call

        def learned(batch: Batch):
            assert not bound or second.wait(20)
            told.append(f"learn {batch.step}")
            return update(batch)

        async def asked(name, payload):
            step = payload.request_metadata.rollout_id.partition("-")[0]
            told.append(f"sample {step}")
            if step == "s2":
                second.set()
            return await call(name, payload)

        bench.learner.update, bench.functions.call = learned, asked
        await bench.train(job(max_steps=2, validation=False, max_staleness=bound), rows(8))
        return list(dict.fromkeys(told))

    assert await order(0) == ["sample s1", "learn 1", "sample s2", "learn 2"]
    assert await order(1) == ["sample s1", "sample s2", "learn 1", "learn 2"]


def one_row_teaches(payload):
    if payload.request_metadata.sample_id != "train3":
        payload.agent_output.messages[-1]["content"] = "0"
    else:
        payload.agent_output.messages[-1]["content"] = str(int(payload.request_metadata.rollout_id[-1]) % 2)
    return last_digit(payload)


@probe("filter_groups")
async def _(folder: Path) -> None:
    plain = await ran(folder / "a", right=one_row_teaches, max_steps=4, n_epochs=1, filter_groups=False)
    assert len(plain.learner.batches) == 1
    assert len(first_batch(plain).mini_batches[0].packs) == 2
    filtered = await ran(folder / "b", right=one_row_teaches, max_steps=4, n_epochs=1, filter_groups=True)
    assert len(first_batch(filtered).mini_batches[0].packs) == 1


@probe("max_num_gen_batches")
async def _(folder: Path) -> None:
    def nothing(payload):
        payload.agent_output.messages[-1]["content"] = "0"
        return last_digit(payload)

    for rounds in (1, 3):
        with pytest.raises(NothingToTrain, match=f"{2 * rounds} of {2 * rounds} groups"):
            await ran(folder / str(rounds), right=nothing, filter_groups=True, max_num_gen_batches=rounds)


LONG = "1" * 20
"""The fakes' token ids are bytes: twenty of them, where 20 is all that is allowed."""


async def shaped(folder: Path, **hyper) -> Bench:
    """A run in which every second member of a group says something long."""
    bench = Bench(folder)
    said = bench.capture.policy
    bench.capture.policy = lambda sampling, messages: (
        LONG if (sampling.seed or 0) % 3 == 0 else said(sampling, messages)
    )
    bench.functions.functions["right"] = lambda payload: last_digit_of(payload)
    await bench.train(job(max_steps=1, validation=False, max_tokens=20, **hyper), rows(8))
    return bench


def last_digit_of(payload):
    payload.agent_output.messages[-1]["content"] = payload.agent_output.messages[-1]["content"][-1]
    return last_digit(payload)


@probe("overlong_buffer_len")
async def _(folder: Path) -> None:
    free = await shaped(folder / "a", overlong_buffer_len=0)
    taxed = await shaped(folder / "b", overlong_buffer_len=10)
    lost = [one - two for one, two in zip(rewards(free), rewards(taxed), strict=True)]
    assert sorted(set(lost)) == [0.0, 1.0]


@probe("overlong_penalty_factor")
async def _(folder: Path) -> None:
    for factor in (0.5, 3.0):
        bench = await shaped(folder / str(factor), overlong_buffer_len=10, overlong_penalty_factor=factor)
        found = {one.overlong_penalty for g in bench.recorder.groups["train", 1] for one in g.trajectories}
        assert found == {0.0, -factor}


@probe("truncation_policy")
async def _(folder: Path) -> None:
    trained: dict[str, tuple[int, float]] = {}
    for policy in ("keep", "penalise", "mask"):
        bench = Bench(folder / policy)
        close = bench.capture.close

        def cut(rollout_id: str, attempt_id: str, close=close):
            reason = FinishReason.LENGTH if rollout_id.endswith("-r0") else FinishReason.STOP
            return tuple(replace(turn, finish_reason=reason) for turn in close(rollout_id, attempt_id))

        bench.capture.close = cut
        await bench.train(job(max_steps=1, validation=False, truncation_policy=policy), rows(8))
        (mini,) = first_batch(bench).mini_batches
        trained[policy] = (mini.num_rollouts, min(rewards(bench)))
    assert trained == {"keep": (8, 0.0), "penalise": (8, -1.0), "mask": (6, 0.0)}


@probe("critic_warmup")
async def _(folder: Path) -> None:
    for warmup, updates in ((0, 2), (1, 1)):
        bench = Bench(folder / str(warmup))
        bench.critic = FakeCritic()
        hyper = {"algorithm": "ppo", "critic_warmup": warmup, "max_steps": 2}
        await bench.train(job(validation=False, **hyper), rows(8))
        assert (len(bench.learner.batches), len(bench.critic.batches)) == (updates, 2)


@probe("lam")
async def _(folder: Path) -> None:
    assert await _judged(folder / "a", lam=1.0) != await _judged(folder / "b", lam=0.5)


def three_tokens(**fields) -> Batch:
    sequence = TokenSequence(
        rollout_id="r",
        group_id="g",
        token_ids=(1, 2, 3, 4),
        loss_mask=(False, True, True, True),
        behaviour_logprobs=(0.0, -1.0, -1.0, -1.0),
        temperatures=(1.0,) * 4,
        reward=1.0,
        **fields,
    )
    return Batch(
        step=1, mini_batches=(MiniBatch(packs=(pack([sequence]),), num_rollouts=1, num_loss_tokens=3),)
    )


@probe("gamma")
async def _(folder: Path) -> None:
    assert await _judged(folder / "a", gamma=1.0) != await _judged(folder / "b", gamma=0.5)
    # And without a critic: a reward at the end of three tokens.
    hyper = HyperParameters.model_validate({"algorithm": "reinforce_pp", "gamma": 0.5})
    (made,) = shape_advantages(three_tokens(), hyper, None).mini_batches[0].packs[0].sequences
    assert made.returns == (0.25, 0.5, 1.0)


async def _judged(folder: Path, **hyper) -> list[tuple[float, ...]]:
    """PPO's advantages of answers of two tokens."""
    bench = Bench(folder)
    bench.critic = FakeCritic()
    bench.capture.policy = lambda sampling, messages: f"1{(sampling.seed or 0) % 2}"
    bench.functions.functions["right"] = last_digit_of
    await bench.train(job(max_steps=1, validation=False, algorithm="ppo", **hyper), rows(8))
    minis = first_batch(bench).mini_batches
    return [one.token_advantages for mini in minis for pack in mini.packs for one in pack.sequences]


def penalties(**changes) -> list[float]:
    score = Score(old_logprobs=(-1.0, -2.0, -3.0), reference_logprobs=(-1.5, -1.0, -3.0))
    (row,) = penalise(three_tokens(), [score], HyperParameters.model_validate(changes)).penalties
    return row


@probe("kl_reward_coef")
async def _(folder: Path) -> None:
    for coefficient in (0.1, 1.0):
        expected = [0.5 * coefficient, -coefficient, 0.0]
        assert penalties(kl_reward_coef=coefficient) == pytest.approx(expected)


@probe("kl_reward_type")
async def _(folder: Path) -> None:
    for kind, expected in (("k1", [0.5, -1.0, 0.0]), ("k2", [0.125, 0.5, 0.0]), ("abs", [0.5, 1.0, 0.0])):
        assert penalties(kl_reward_coef=1.0, kl_reward_type=kind) == pytest.approx(expected)


@pytest.mark.parametrize("name", sorted(PROBES))
async def test_a_hyper_parameter_of_the_flow_does_what_it_says(name, tmp_path):
    await PROBES[name](tmp_path)
