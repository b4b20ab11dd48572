"""`AgenticRL` on a real server: the source documents' way from a folder to a job."""

import inspect
import re
from pathlib import Path

import httpx
import pytest

from fakes.server import ROLLOUT_INPUT
from strop import (
    AgenticRL,
    AgenticRLFunctionComponent,
    AsyncAgenticRL,
    BlockingAgenticRL,
    Dataset,
    FunctionComponentModel,
    FunctionComponentRuntime,
    FunctionType,
    RewardFunctionComponent,
    RolloutFunctionComponent,
    StropError,
    TrainingDataset,
)
from strop.errors import AccessError, ConfigError, DataError, FunctionError, MissingError, RequestError
from strop.schema.job import JobStatus
from strop.schema.responses import EventInfo, JobInfo, StepMetrics


@pytest.fixture
def rl(server):
    return AgenticRL(server.key, base_url=server.url)


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


async def test_a_job_file_is_run_to_its_end_and_the_folder_is_left_as_it_was(server, rl, project):
    before = tree(project)
    job = await rl.init(project / "job.yaml").run()
    assert tree(project) == before
    assert (job.job_name, job.model, job.finetuned_output) == ("quick", "smollm2-135m", "tuned")
    assert (job.status_code, job.output.job_id) == (200, job.job_id)
    done = rl.wait(job.job_id, timeout_s=30)
    assert done.status is JobStatus.SUCCEEDED
    asked = server.job(job.job_id)
    assert asked["hyper_parameters"]["batch_size"] == 4
    curves = rl.metrics(job.job_id)
    assert [point.value for point in curves["critic/rewards/mean"]] == [0.5]
    assert [point.value for point in curves["actor/entropy"]] == [None]
    assert [one.validation for one in rl.checkpoints(job.job_id)] == [0.1]
    assert rl.trajectories(job.job_id) == []
    assert [one.job_id for one in rl.list()] == [job.job_id]
    rl.delete(job.job_id)
    with pytest.raises(MissingError, match=job.job_id):
        rl.get(job.job_id)


NAMED = {
    *("init", "run", "register_functions", "upload_datasets", "submit_job", "test_functions"),
    *("get", "list", "cancel", "delete", "logs", "wait", "stream", "metrics", "trajectories", "checkpoints"),
    *("publish", "deploy", "pause", "resume"),
    *("delete_function_instance", "query_all_function_instance_logs"),
}
AWAITED_THERE = {"run", "register_functions", "upload_datasets", "test_functions"}


def test_the_three_faces_have_every_name_and_differ_only_in_what_is_awaited():
    asked = {}
    for face in (AgenticRL, BlockingAgenticRL, AsyncAgenticRL):
        asked[face] = {name: inspect.iscoroutinefunction(getattr(face, name)) for name in NAMED}
        public = {name for name in dir(face) if not name.startswith("_")}
        assert public == NAMED | {"client", "async_client", "tuning", "workspace"}
    assert {name for name, awaited in asked[AgenticRL].items() if awaited} == AWAITED_THERE
    assert set(asked[BlockingAgenticRL].values()) == {False}
    assert {name for name, awaited in asked[AsyncAgenticRL].items() if not awaited} == {"init", "stream"}
    for name in NAMED - {"init", "stream"}:
        doc = inspect.getdoc(getattr(AgenticRL, name))
        signature = inspect.signature(getattr(AgenticRL(base_url="http://127.0.0.1:9", api_key="k"), name))
        for face in (BlockingAgenticRL, AsyncAgenticRL):
            other = getattr(face(base_url="http://127.0.0.1:9", api_key="k"), name)
            assert (inspect.getdoc(other), inspect.signature(other)) == (doc, signature)
        assert doc
        assert "self" not in signature.parameters
    for face in (AgenticRL, BlockingAgenticRL, AsyncAgenticRL):
        assert {getattr(face, name).__name__ for name in NAMED} == NAMED
        assert list(inspect.signature(face.stream).parameters) == ["job_id"]


def test_a_job_goes_its_whole_way_in_plain_calls(server, project):
    rl = BlockingAgenticRL(server.key, base_url=server.url).init(project / "job.yaml")
    ids = rl.register_functions()
    assert [len(one) for one in ids] == [1, 1, 1, 0, 0, 0]
    assert [len(one) for one in rl.upload_datasets()] == [1, 1]
    agent = {"messages": [{"role": "assistant", "content": "4"}]}
    scored = rl.test_functions(ids[1][0], "reward", {"agent_output": agent, "ground_truth": "4"})
    assert scored.reward.reward_score == 1.0
    made = rl.submit_job()
    assert isinstance(made, JobInfo)
    assert rl.wait(made.job_id, timeout_s=30).status is JobStatus.SUCCEEDED
    assert [one.job_id for one in rl.list()] == [made.job_id]
    assert [item.status for item in rl.stream(made.job_id) if isinstance(item, JobInfo)][-1].final
    again = rl.run(job_name="waits")
    server.becomes(again.job_id, "RUNNING")
    assert rl.cancel(again.job_id).status in (JobStatus.CANCELING, JobStatus.CANCELED)
    assert rl.wait(again.job_id, timeout_s=30).status is JobStatus.CANCELED


async def test_a_job_goes_its_whole_way_awaited(server, project):
    rl = AsyncAgenticRL(server.key, base_url=server.url).init(project / "job.yaml", job_name="waits")
    made = await rl.run()
    server.becomes(made.job_id, "RUNNING")
    assert (await rl.pause(made.job_id)).job_id == made.job_id
    server.becomes(made.job_id, "SUSPENDED")
    await rl.resume(made.job_id)
    server.becomes(made.job_id, "RUNNING")
    assert (await rl.cancel(made.job_id)).status in (JobStatus.CANCELING, JobStatus.CANCELED)
    told = [item async for item in rl.stream(made.job_id)]
    assert [item.status for item in told if isinstance(item, JobInfo)][-1] is JobStatus.CANCELED
    assert (await rl.get(made.job_id)).status is JobStatus.CANCELED
    curves = await rl.metrics(made.job_id)
    assert [point.value for point in curves["critic/rewards/mean"]] == [0.5, 0.5]
    assert [one.step for one in await rl.checkpoints(made.job_id)] == [1, 2]
    assert await rl.trajectories(made.job_id) == []
    assert await rl.logs(made.job_id) == []
    with pytest.raises(StropError, match="no model"):
        await rl.deploy("nowhere")
    with pytest.raises(StropError, match="no checkpoint"):
        await rl.publish(made.job_id, "mine", checkpoint=9)
    assert (await rl.list()).total == 1
    await rl.delete(made.job_id)
    with pytest.raises(MissingError):
        await rl.get(made.job_id)


async def test_a_second_run_sends_neither_code_nor_rows_again(server, rl, project):
    first = await rl.init(project / "job.yaml").run()
    second = await rl.init(project / "job.yaml", job_name="waits").run()
    assert second.job_name == "waits"
    assert (first.training_file_ids, first.validation_file_ids) == (
        second.training_file_ids,
        second.validation_file_ids,
    )
    assert server.get("/functions")["total"] == 3
    rl.cancel(second.job_id)


async def test_what_does_not_belong_in_a_bundle_is_not_sent(server, rl, project):
    await rl.init(project / "job.yaml").register_functions()
    (bundle,) = (server.home / "bundles").iterdir()
    names = sorted(path.name for path in bundle.rglob("*") if path.is_file())
    assert "functions.py" in names
    assert ".env.local" not in names


async def test_the_scripts_of_the_source_documents_run_with_our_names(server, project, monkeypatch):
    monkeypatch.setenv("STROP_URL", f"{server.url}/api/v1/")
    monkeypatch.setenv("STROP_API_KEY", server.key)
    monkeypatch.chdir(project)
    client = AgenticRL()
    ids = await client.register_functions(
        functions=[
            AgenticRLFunctionComponent(
                type=FunctionType.ROLLOUT, fcmodel=FunctionComponentModel(classpath="functions.Agent")
            ),
            AgenticRLFunctionComponent(
                type=FunctionType.REWARD, fcmodel=FunctionComponentModel(classpath="functions.py:Score")
            ),
        ],
        lazy_load=False,
    )
    assert [len(one) for one in ids] == [1, 1, 0, 1, 1, 0]
    said = await AgenticRL.test_functions(
        instance_id=ids[3][0], type=FunctionType.ROLLOUT, input_data=ROLLOUT_INPUT
    )
    assert said.agent_output.messages[-1]["content"] == "4"
    assert "rollout of hi" in AgenticRL.query_all_function_instance_logs(ids[3][0])
    agent = {"messages": said.agent_output.messages}
    scored = await AgenticRL.test_functions(
        ids[1][0], input_data={"agent_output": agent, "ground_truth": "4"}
    )
    assert scored.reward.reward_score == 1.0
    for instance in (ids[3][0], ids[4][0]):
        AgenticRL.delete_function_instance(instance)
    result = await client.run(
        model="smollm2-135m",
        training_datasets=TrainingDataset(file_name="./rows/train.jsonl"),
        functions=[
            RolloutFunctionComponent(
                name="rollout-1",
                timeout=600,
                fcmodel=FunctionComponentModel(classpath="functions.Agent"),
                runtime=FunctionComponentRuntime(cpu=2, memory_size=4096, concurrency=30),
            ),
            RewardFunctionComponent(
                name="reward-1", weight=1.0, fcmodel=FunctionComponentModel(classpath="functions.Score")
            ),
        ],
        resources={"charge_type": "mtu_postpaid", "mtu_spec_code": "MTU4", "mtu_capacity": 24},
        hyper_parameters={"batch_size": "4", "n_rollouts": 2},
        job_name="waits",
    )
    assert result.output.job_id == result.job_id
    AgenticRL.cancel(result.job_id)
    assert AgenticRL.wait(result.job_id, timeout_s=30).status is JobStatus.CANCELED
    server.print_lines(result.job_id, 2500)
    assert [line[-8:] for line in AgenticRL.logs(job_id=result.job_id, offset=2, lines=2)] == [
        "line 002",
        "line 003",
    ]
    assert len(AgenticRL.logs(result.job_id, lines=5000)) == 2500


async def test_a_function_s_own_id_starts_an_instance_for_one_call(server, rl, project):
    ids = await rl.init(project / "job.yaml").register_functions()
    agent = {"messages": [{"role": "assistant", "content": "5"}]}
    with pytest.raises(FunctionError, match="no score for this one"):
        await rl.test_functions(ids[1][0], input_data={"agent_output": agent, "ground_truth": "raise"})
    with pytest.raises(ConfigError, match="this is a reward function"):
        await rl.test_functions(ids[1][0], "rollout", ROLLOUT_INPUT)
    with pytest.raises(ConfigError, match="agent_output"):
        await rl.test_functions(ids[1][0], input_data={})
    assert [one["state"] for one in server.get("/functions")["instances"]] == []


async def test_a_job_waits_pauses_goes_on_and_is_told_as_it_happens(server, rl, project):
    job = await rl.init(project / "job.yaml", job_name="waits").run()
    server.becomes(job.job_id, "RUNNING")
    rl.pause(job.job_id)
    server.becomes(job.job_id, "SUSPENDED")
    rl.resume(job.job_id)
    server.becomes(job.job_id, "RUNNING")
    with pytest.raises(StropError, match="RUNNING after 0 s"):
        rl.wait(job.job_id, timeout_s=0)
    rl.cancel(job.job_id)
    told = list(rl.stream(job.job_id))
    statuses = [item.status for item in told if isinstance(item, JobInfo)]
    assert statuses[-1] is JobStatus.CANCELED
    kinds = [item.kind for item in told if isinstance(item, EventInfo)]
    assert "pause_asked" in kinds
    assert "cancel_asked" in kinds
    steps = {item.step: item.metrics for item in told if isinstance(item, StepMetrics)}
    assert steps[2]["critic/rewards/mean"] == 0.5


def test_without_a_server_or_a_key_nothing_is_sent(server, monkeypatch):
    for name in ("STROP_URL", "STROP_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(StropError, match="strop up"):
        AgenticRL()
    assert AgenticRL(base_url=server.url).list().total == 0  # the first key of this home
    with pytest.raises(AccessError, match=re.escape("no API key for http://elsewhere.example")):
        AgenticRL(base_url="http://elsewhere.example")
    with pytest.raises(AccessError, match="does not belong to this server"):
        AgenticRL("sk-wrong", base_url=server.url).list()


def test_the_key_stands_in_no_text(server, rl):
    assert server.key not in repr(rl)


BAD = {
    "model: smollm2-135m": ("modell: smollm2-135m", "modell: unknown"),
    "type: validation": ("type: validaton", "datasets[1].type"),
    "cpu: 2": ("cpus: 2", "did you mean 'cpu'"),
    "weight: 0.8": ("weight: -1", "functions[1].weight"),
    "name: score": ("name: agent", "the name 'agent' is used twice"),
    "type: reward, name: score, weight: 0.8": ("type: rollout, name: score", "at most one of type rollout"),
    "functions.Agent": ("nowhere.Agent", "no such file"),
    "batch_size: 4": ("batch_siz: 4", "did you mean 'batch_size'"),
    "n_rollouts: 2": ("n_rollouts: 0", "n_rollouts"),
    "rows/train.jsonl": ("rows/trian.jsonl", "no such file"),
}


async def test_what_is_wrong_is_told_before_anything_is_sent(server, rl, project):
    text = (project / "job.yaml").read_text()
    for right, (wrong, words) in BAD.items():
        assert right in text
        (project / "job.yaml").write_text(text.replace(right, wrong, 1))
        with pytest.raises(ConfigError, match=re.escape(words)):
            await rl.init(project / "job.yaml").run()
    assert server.get("/functions")["total"] == 0
    assert server.http.get("/files").json()["data"]["total"] == 0


async def test_bad_rows_are_told_all_at_once_before_anything_is_sent(server, rl, project):
    (project / "rows" / "train.jsonl").write_text('{"messages": []}\n{broken\n' * 4)
    with pytest.raises(DataError) as caught:
        await rl.init(project / "job.yaml").run()
    assert len(caught.value.problems) == 8
    assert server.http.get("/files").json()["data"]["total"] == 0


def test_the_server_s_refusal_comes_with_all_its_problems_and_its_request_id(server, rl):
    with pytest.raises(RequestError) as caught:
        rl.submit_job(
            model="smollm2-135m",
            datasets=Dataset(file_id="file-unknown"),
            functions=AgenticRLFunctionComponent(type=FunctionType.REWARD, entity_id="rw-unknown"),
            hyper_parameters={"batch_size": 4},
        )
    assert "file-unknown" in str(caught.value)
    assert "rw-unknown" in str(caught.value)
    assert re.fullmatch(r"[0-9a-f-]{36}", caught.value.request_id)
    assert caught.value.http_status == 400


def test_no_proxy_of_the_environment_stands_between_a_client_and_this_machine(server, rl, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    assert httpx.URL(server.url).host == "127.0.0.1"
    assert rl.list().total == 0
