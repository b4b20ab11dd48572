"""A probe for each key of a job beside its hyper-parameters: with two settings of it, something differs."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from fakes.bench import Bench, rows
from fakes.bench import job as small_job
from fakes.functions import last_digit
from fakes.job_files import GOOD, edited, lay_out, write
from strop.cli.checking import load_both
from strop.cli.session import new_job
from strop.cli.training_here import publish
from strop.config.job import JobConfig
from strop.config.loading import load_job
from strop.config.notes import notes
from strop.data.dataset import load_dataset
from strop.data.offline_rows import read_offline_row
from strop.errors import ConfigError
from strop.functions.metric_weights import shares
from strop.learners.local.checkpoint import write_checkpoint
from strop.schema.function import FunctionType
from strop.schema.job import JobStatus
from strop.store.database import open_database
from strop.store.jobs import create_job
from strop.workers.functions import worker_spec
from strop.workers.size import PoolSize
from strop.workers.spec import worker_environment

Probe = Callable[[Path], object]
PROBES: dict[str, Probe] = {}


def probe(*keys: str) -> Callable[[Probe], Probe]:
    def register(made: Probe) -> Probe:
        PROBES.update(dict.fromkeys(keys, made))
        return made

    return register


def loaded(folder: Path, **values: object) -> JobConfig:
    return load_job(write(folder, GOOD), {key.replace("__", "."): value for key, value in values.items()})


@probe("name")
def _(folder: Path) -> None:
    assert {new_job(loaded(folder, name=name), "ft-1").name for name in ("a", "b")} == {"a", "b"}


@probe("model", "model.name")
def _(folder: Path) -> None:
    asked: list[str] = []
    for name in ("one", "two"):
        config = load_job(write(folder, GOOD), {"model": name}, check_model=lambda name: asked.append(name))
        assert config.model.name == name
    assert asked == ["one", "two"]
    (folder / "weights").mkdir()
    assert loaded(folder, model={"name": "weights"}).model.name == str(folder / "weights")


@probe("mode", "training.type")
def _(folder: Path) -> None:
    text = GOOD[: GOOD.index("functions:")]
    row = b'{"text": "plain"}'
    for key in ("mode", "training.type"):
        good = {}
        for kind in ("sft", "cpt"):
            form = load_job(write(folder, text), {key: kind}).training_type
            good[kind] = read_offline_row(row, "x:1", row=1, file_stem="x", form=form)[0] is not None
        assert good == {"sft": False, "cpt": True}


@probe("workspace_dir")
def _(folder: Path) -> None:
    (folder / "other").mkdir()
    lay_out(folder / "other")
    for place in (folder, folder / "other"):
        config = loaded(folder, workspace_dir=str(place))
        assert config.datasets[0].file_name == str(place / "data/train.jsonl")


@probe("tuned_model_name")
def _(folder: Path) -> None:
    database = open_database(f"sqlite:///{folder}/strop.db")
    names = []
    for step, wanted in enumerate(("mine", None), start=1):
        config = loaded(folder, **({} if wanted is None else {"tuned_model_name": wanted}))
        with database.write() as session:
            create_job(session, new_job(config, f"ft-{step}"))

        def fill(part: Path, step: int = step) -> None:
            (part / "config.json").write_bytes(b"{}")
            (part / "model.safetensors").write_bytes(b"w%d" % step)

        place = folder / f"step-{step}"
        write_checkpoint(place, fill, step=step, policy_version=step, position={"job_id": f"ft-{step}"})
        said = SimpleNamespace(
            config=config,
            job_id=f"ft-{step}",
            store=SimpleNamespace(flush=lambda: None, database=database),
            backends=SimpleNamespace(recorder=SimpleNamespace(event=lambda *a, **b: None)),
        )
        ended = SimpleNamespace(
            status=JobStatus.SUCCEEDED,
            checkpoint=place,
            steps=step,
            validations=(),
            already_finished=False,
        )
        names.append(publish(said, ended))
    database.close()
    assert names == ["mine", "ft-2"]


def read(config: JobConfig):
    return load_both(
        config,
        lambda path: load_dataset(path, max_prompt_length=9, prompt_length=lambda *_: 1),
        id_of=lambda sample: sample.sample_id,
    )


@probe("datasets[].type", "datasets[].file_name")
def _(folder: Path) -> None:
    for name, count in (("train", 4), ("validation", 2), ("more", 3)):
        lines = [f'{{"messages": [{{"role": "user", "content": "{n}"}}]}}\n' for n in range(count)]
        (folder / f"data/{name}.jsonl").write_text("".join(lines))
    text = edited("batch_size: 8", "batch_size: 2")

    def counts(**values: object) -> tuple[int, int]:
        config = load_job(write(folder, text), {key.replace("__", "."): one for key, one in values.items()})
        training, validation = read(config)
        return len(training), len(validation or ())

    assert counts() == (4, 2)
    assert counts(datasets__1__file_name="data/more.jsonl") == (4, 3)
    assert counts(datasets__1__type="training") == (6, 0)


@probe("datasets[].data_source_type")
def _(folder: Path) -> None:
    assert loaded(folder, datasets__0__data_source_type="file_id")
    with pytest.raises(ConfigError, match="expected one of file_id"):
        loaded(folder, datasets__0__data_source_type="oss_mount")


@probe("functions[].type", "functions[].name")
def _(folder: Path) -> None:
    for kind in (FunctionType.REWARD, FunctionType.GROUP_REWARD):
        config = loaded(folder, functions__1__type=kind.value, functions__1__name="other")
        assert [one.label for one in config.functions_of(kind)] == ["other"]


@probe("functions[].timeout", "functions[].fcmodel.classpath", "functions[].fcmodel.zipdir")
def _(folder: Path) -> None:
    (folder / "functions/agent.py").write_text("class Agent: ...\nclass Other: ...\n")
    for timeout, zipdir, path in ((5, ".", "functions/reward.py:A"), (6, "functions", "reward.py:B")):
        config = loaded(
            folder,
            functions__1__timeout=timeout,
            functions__1__fcmodel__zipdir=zipdir,
            functions__1__fcmodel__classpath=path,
        )
        spec = worker_spec(config.functions[1], Path("/"))
        assert (spec.timeout_s, spec.root, spec.classpath) == (timeout, (folder / zipdir).resolve(), path)


@probe("functions[].weight")
async def _(folder: Path) -> None:
    code = {"classpath": "a.B"}
    for weight in (1.0, 0.25):
        functions = [
            {"type": "rollout", "name": "agent", "fcmodel": code},
            {"type": "reward", "name": "right", "weight": weight, "fcmodel": code},
        ]
        bench = Bench(folder / str(weight), right=last_digit)
        await bench.train(small_job(functions=functions, validation=False, max_steps=1), rows(8))
        rewards = {one.reward for group in bench.recorder.groups["train", 1] for one in group.trajectories}
        assert max(one for one in rewards if one is not None) == weight


@probe("functions[].reward_metric_weight")
def _(folder: Path) -> None:
    for weights in ({"a": 3.0, "b": 1.0}, {"a": 1.0, "b": 1.0}):
        config = loaded(folder, functions__1__reward_metric_weight=weights)
        found = worker_spec(config.functions[1], Path("/")).metric_weights
        assert shares(found)["a"] == weights["a"] / sum(weights.values())


@probe("functions[].preset", "functions[].params")
def _(folder: Path) -> None:
    code = "    fcmodel:\n      classpath: functions/reward.py:Right\n"
    for preset, params in (("exact_match", {"normalise": ["case"]}), ("contains", {})):
        said = f"    preset: {preset}\n    params: {json.dumps(params)}\n"
        config = load_job(write(folder, GOOD.replace(code, said)))
        assert worker_spec(config.functions[1], Path("/")).params == {"preset": preset, "params": params}


def runtime(folder: Path, **values: object):
    return loaded(
        folder, **{f"functions__1__runtime__{key}": value for key, value in values.items()}
    ).functions[1]


@probe("functions[].runtime.env")
def _(folder: Path) -> None:
    for value in ("one", 2):
        spec = worker_spec(runtime(folder, env={"KEY": value}), Path("/"))
        assert worker_environment(spec, "job")["KEY"] == str(value)


@probe("functions[].runtime.concurrency")
def _(folder: Path) -> None:
    for value in (1, 9):
        function = runtime(folder, concurrency=value)
        assert (
            worker_spec(function, Path("/")).concurrency == PoolSize.of(function.runtime).concurrency == value
        )


@probe(*(f"functions[].runtime.{name}" for name in ("cpu", "memory_size", "disk_size")))
def _(folder: Path) -> None:
    for cpu, memory, disk in ((1, 256, 10), (2.5, 512, 20)):
        limits = worker_spec(runtime(folder, cpu=cpu, memory_size=memory, disk_size=disk), Path("/")).limits
        assert (limits.cpu, limits.memory_size, limits.disk_size) == (cpu, memory, disk)


@probe(*(f"functions[].runtime.{name}" for name in ("capacity", "min_capacity", "max_capacity")))
def _(folder: Path) -> None:
    for first, least, most in ((2, 1, 3), (4, 0, 5)):
        function = runtime(folder, capacity=first, min_capacity=least, max_capacity=most)
        size = PoolSize.of(function.runtime, most=9)
        assert (size.initial, size.smallest, size.largest) == (first, least, most)


@probe(*(f"functions[].runtime.{name}_scale_threshold" for name in ("memory", "concurrency")))
def _(folder: Path) -> None:
    for memory, concurrency in ((0.5, 0.4), (0.9, 0.7)):
        function = runtime(
            folder,
            max_capacity=3,
            memory_size=512,
            memory_scale_threshold=memory,
            concurrency_scale_threshold=concurrency,
        )
        size = PoolSize.of(function.runtime, most=9)
        assert (size.memory_threshold, size.concurrency_threshold) == (memory, concurrency)


@probe("training.teacher_model")
def _(folder: Path) -> None:
    text = edited("training:\n", "training:\n  type: pg_opd\n  teacher_model: one\n")
    asked: list[str] = []
    for name in ("one", "two"):
        config = load_job(
            write(folder, text), {"teacher_model": name}, check_model=lambda name: asked.append(name)
        )
        assert config.training.teacher_model == name
    assert {"one", "two"} <= set(asked)


@probe(*(f"training.resources.{name}" for name in ("charge_type", "mtu_spec_code", "mtu_capacity")))
def _(folder: Path) -> None:
    """They choose nothing, and the run says so."""
    for name, value in (("charge_type", "post_paid"), ("mtu_spec_code", "x"), ("mtu_capacity", 24)):
        told = notes(loaded(folder, **{f"training__resources__{name}": value}), num_samples=20)
        assert "resources.* have no effect on a single machine" in told
    assert "resources.* have no effect on a single machine" not in notes(loaded(folder), num_samples=20)


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("STROP_HOME", str(tmp_path / "home"))
    return lay_out(tmp_path)


@pytest.mark.parametrize("key", sorted(PROBES))
async def test_a_key_of_a_job_does_what_it_says(key, folder):
    made = PROBES[key](folder)
    if made is not None:
        await made
