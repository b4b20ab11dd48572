"""The unmodified `dashscope` packages against the server: what their users do, in their own environments."""

from __future__ import annotations

import json

import pytest

from fakes.dashscope_project import Project, environment
from fakes.replicas import Barracks
from fakes.server import eventually, serving
from strop.store.submissions import get_submission

pytestmark = pytest.mark.slow

VERSIONS = ("2.0.2", "1.25.23")

AGENT = {"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "it is 4"}]}
ROLLOUT_INPUT = {
    "messages": [{"role": "user", "content": "hi"}],
    "model_resource": {"model_name": "m", "base_url": "http://x", "api_key": "key-of-the-policy"},
    "request_metadata": {"job_id": "j", "sample_id": "s", "rollout_id": "r", "attempt_id": "a"},
}


@pytest.fixture(scope="module", params=VERSIONS)
def project(request, tmp_path_factory):
    home = tmp_path_factory.mktemp("server") / "home"
    with serving(home, max_running_jobs=4, make_replica=Barracks().make) as server:
        made = Project(tmp_path_factory.mktemp("project"), environment(request.param), server)
        made.server = server
        made.is_v2 = request.param.startswith("2.")
        with made.loaded():
            yield made


@pytest.fixture(scope="module")
def job(project):
    """Submitted as the documents do it."""
    told = project.json("rl", "run", "-c", "job.yaml", "-o", "json", "-v")
    assert told["status"] == "PENDING"
    return told["job_id"]


def test_run_registers_uploads_and_submits_all_that_the_file_says(project, job):
    with project.server.database.read() as session:
        kept = get_submission(session, job)
    rollout, reward = kept.config["functions"]
    assert (rollout["type"], rollout["name"], rollout["timeout"]) == ("rollout", "my-rollout", 60.0)
    assert rollout["fcmodel"]["classpath"] == "functions/rollout/rollout.py:RolloutProcessor"
    assert rollout["runtime"] == {
        "concurrency": 10, "cpu": 2.0, "memory_size": 4096,
        "env": {"ENABLE_TRAJECTORY": "true", "MY_SECRET": "value-to-hide"},
    }  # fmt: skip
    assert (reward["type"], reward["weight"]) == ("reward", 1.0)
    assert kept.config["training"]["hyper_parameters"] == {
        "algorithm": "gspo", "n_rollouts": 2, "learning_rate": 1e-6, "batch_size": 4,
    }  # fmt: skip
    assert [(kind, name) for kind, _, name in kept.files] == [
        ("training", "train.jsonl"), ("validation", "validation.jsonl"),
    ]  # fmt: skip
    assert list(kept.layers) == ["my-rollout", "my-reward"]


def test_a_job_is_got_listed_and_its_logs_read(project, job):
    project.server.becomes(job, "RUNNING")
    told = project.json("rl", "get", job, "-o", "json")
    assert (told["job_id"], told["created_at"]) == (job, "first")
    assert job in [
        one["job_id"] for one in project.json("rl", "list", "-p", "1", "-s", "5", "-o", "json")["jobs"]
    ]
    assert project.json("rl", "logs", job, "--offset", "1", "--lines", "7", "-o", "json") == {
        "job_id": job,
        "logs": [],
    }
    assert "RUNNING" in project.cli("ft", "get", job)
    if project.is_v2:  # of 1.25.23 it crashes on every reply
        assert job in project.cli("ft", "list")


def test_a_job_is_streamed_until_its_end(project):
    job_id = project.server.submit(job_name="quick")
    project.server.becomes(job_id, "SUCCEEDED")
    told = project.script(
        "import dashscope, json\n"
        f"events = [json.loads(one.output) if isinstance(one.output, str) else one.output for one in "
        f"dashscope.FineTunes.stream_events({job_id!r})]\n"
        "print(json.dumps(events))"
    )
    assert told[-1]["status"] == "SUCCEEDED"
    assert told[-1]["job_id"] == job_id
    if not project.is_v2:  # of 2.0.2 the command is broken
        assert "SUCCEEDED" in project.cli("ft", "stream", job_id)


def test_a_job_is_canceled_and_deleted(project):
    job_id = project.server.submit(job_name="waits")
    project.cli("rl", "cancel", job_id)
    project.server.becomes(job_id, "CANCELED")
    told = project.script(
        "import json\n"
        "from dashscope.finetune.agentic_rl import AgenticRL\n"
        f"print(json.dumps(AgenticRL.delete({job_id!r}).output.status))"
    )
    assert told == "success"
    assert project.server.http.get(f"/fine-tunes/{job_id}").status_code == 404


@pytest.mark.parametrize(
    ("option", "classpath", "kind", "sent", "expected"),
    [
        (
            "--rollout-classpaths", "functions/rollout/rollout.py:RolloutProcessor", "rollout",
            ROLLOUT_INPUT, "hello",
        ),
        (
            "--reward-classpaths", "functions/reward/reward.py:RewardProcessor", "reward",
            {"agent_output": AGENT, "ground_truth": "4"}, '"reward_score": 1.0',
        ),
        (
            "--group-reward-classpaths", "functions/reward/reward.py:GroupProcessor", "group_reward",
            {"agent_outputs": [AGENT]}, '"reward_score": 2.0',
        ),
    ],
)  # fmt: skip
def test_a_function_is_brought_online_tested_and_its_output_read(
    project, option, classpath, kind, sent, expected
):
    told = project.json("rl", "register_functions", option, classpath, "--no-lazy-load")
    (instance,) = told[f"{kind}_instance_ids"]
    assert expected in project.cli(
        "rl", "test_functions", instance, "-t", kind.upper(), "-i", json.dumps(sent)
    )
    if project.is_v2 and kind == "rollout":
        told = project.script(
            "import asyncio, json\n"
            "from dashscope.finetune.agentic_rl import AgenticRL\n"
            "async def work():\n"
            "    for _ in range(100):\n"
            f"        lines = await AgenticRL().query_all_function_instance_logs({instance!r})\n"
            "        if lines:\n"
            "            break\n"
            f"    gone = await AgenticRL().delete_function_instance({instance!r})\n"
            "    print(json.dumps([lines, gone['data']['status']]))\n"
            "asyncio.run(work())"
        )
        assert told == [["rollout of hi"], "deleted"]


def test_a_failing_function_is_told_with_its_own_words(project):
    project_file = project.folder / "functions" / "reward" / "broken.py"
    project_file.write_text(
        "from dashscope.finetune.reinforcement import AbstractRewardProcessor\n\n\n"
        "class Broken(AbstractRewardProcessor):\n"
        "    def process(self, input):\n"
        "        raise RuntimeError('the judge is asleep')\n"
    )
    told = project.json(
        "rl",
        "register_functions",
        "--reward-classpaths",
        "functions/reward/broken.py:Broken",
        "--no-lazy-load",
    )
    (instance,) = told["reward_instance_ids"]
    bad = project.run(
        "dashscope",
        "rl",
        "test_functions",
        instance,
        "-t",
        "REWARD",
        "-i",
        json.dumps({"agent_output": AGENT}),
    )
    assert bad.returncode == 1


def test_files_are_uploaded_listed_told_and_deleted(project):
    project.cli("files", "upload", "-f", "data/train.jsonl", "-d", "my desc")
    listed = project.cli("files", "list")
    file_id = json.loads(listed[listed.index("{") :])["files"][0]["file_id"] if "{" in listed else listed
    assert "train.jsonl" in project.cli("files", "get", file_id)
    project.cli("files", "delete", file_id)
    assert project.run("dashscope", "files", "get", file_id).returncode != 0


def test_wrong_and_empty_keys_are_told_as_such(project):
    script = (
        "import asyncio\n"
        "from dashscope.finetune.agentic_rl import AgenticRL\n"
        "client = AgenticRL(api_key='given-too-late').init('job.yaml')\n"
        "try:\n"
        "    asyncio.run(client.run())\n"
        "except Exception as error:\n"
        "    causes = []\n"
        "    while error and error not in causes:\n"  # root_cause may point back
        "        causes.append(error)\n"
        "        error = error.__cause__ or getattr(error, 'root_cause', None)\n"
        "    print(causes)\n"
    )
    for key in ("", "wrong"):
        done = project.run("python", "-W", "ignore", "-c", script, key=key)
        assert "InvalidApiKey" in done.stdout + done.stderr


def test_a_bad_job_is_told_with_code_and_message(project):
    told = project.script(
        "import asyncio, json\n"
        "from dashscope.finetune.agentic_rl import AgenticRL\n"
        "made = asyncio.run(AgenticRL().init('job.yaml').run(hyper_parameters={'learning_rat': 1}))\n"
        "print(json.dumps([made.status_code, made.code, made.message, made.output]))"
    )
    status, code, message, output = told
    assert (status, code, output) == (400, "InvalidParameter", None)
    assert "did you mean 'learning_rate'?" in message


def test_the_second_client_of_2x_reads_every_reply(project, job):
    if not project.is_v2:
        pytest.skip("1.x has one client only")
    told = project.script(
        "import dashscope, json\n"
        "client = dashscope.Client()\n"
        f"one = client.fine_tunes.get({job!r})\n"
        "listed = client.fine_tunes.list()\n"
        f"client.rl.jobs.cancel({job!r})\n"
        f"logs = client.rl.jobs.logs({job!r})\n"
        f"events = list(client.fine_tunes.stream_events({job!r}))\n"
        "data = client.rl.upload_data(training_files=['data/train.jsonl'])\n"
        "last = str(events[-1])[:2000]\n"
        "print(json.dumps([one.job_id, len(listed.jobs), logs.content, last, data.training_file_ids]))"
    )
    assert told[0] == job
    assert told[1] >= 1
    assert "CANCELED" in told[3]
    assert told[4][0].startswith("file-")


def test_a_deployment_is_made_told_listed_scaled_and_deleted_by_the_command(project):
    plan = ("--plan", "mu") if project.is_v2 else ()
    # Looks at it once at once, and then every half minute: the replica is there by then.
    name = "smollm2-135m-cli"
    told = project.cli("deployments", "create", "-m", "smollm2-135m", "-s", "cli", "-c", "1", *plan)
    assert f"{name} status: RUNNING" in told.replace("\n", " ")
    assert "capacity: 1" in project.cli("deployments", "get", name)
    assert "smollm2-135m" in project.cli("deployments", "scale", name, "-c", "2")
    eventually(lambda: project.server.get(f"/deployments/{name}")["ready_capacity"] == 2)
    listed = project.script(
        "import dashscope, json\n"
        "found = dashscope.Deployments.list(page_no=1, page_size=5).output\n"
        "print(json.dumps([found['total'], [one['deployed_model'] for one in found['deployments']]]))"
    )
    assert name in listed[1]
    project.cli("deployments", "delete", name)
    eventually(lambda: project.server.http.get(f"/deployments/{name}").status_code == 404)
    assert project.run("dashscope", "deployments", "get", name).returncode != 0


def test_a_deployment_of_a_model_that_is_not_there_is_told_with_what_is(project):
    told = project.script(
        "import dashscope, json\n"
        "made = dashscope.Deployments.call(model='qwen3-8b', capacity=1)\n"
        "print(json.dumps([made.status_code, made.code, made.message]))"
    )
    assert told[:2] == [400, "InvalidParameter"]
    assert "there are: smollm2-135m" in told[2]


def test_the_second_client_of_2x_deploys_follows_scales_and_deletes(project):
    if not project.is_v2:
        pytest.skip("1.x has one client only")
    told = project.script(
        "import dashscope, json\n"
        "client = dashscope.Client()\n"
        "made = client.deployments.create(model='smollm2-135m', capacity=1, suffix='v2', plan='mu')\n"
        "name = made.deployed_model\n"
        "events = list(client.deployments.stream_events(name))\n"
        "scaled = client.deployments.scale(name, capacity=2).capacity\n"
        "listed = [one.deployed_model for one in client.deployments.list().deployments]\n"
        "client.deployments.delete(name)\n"
        "print(json.dumps([name, str(events[-1]), scaled, listed]))"
    )
    assert told[0] == "smollm2-135m-v2"
    assert "RUNNING" in told[1]
    assert told[2] == 2
    assert told[0] in told[3]


def test_files_go_through_the_package_too(project):
    told = project.script(
        "import dashscope, json\n"
        "made = dashscope.Files.upload('data/train.jsonl', purpose='fine-tune')\n"
        "file_id = made.output['uploaded_files'][0]['file_id']\n"
        "one = dashscope.Files.get(file_id).output\n"
        "there = [one['file_id'] for one in dashscope.Files.list(page=1, page_size=50).output['files']]\n"
        "gone = dashscope.Files.delete(file_id)\n"
        "print(json.dumps([made.status_code, one['name'], file_id in there, gone.status_code, "
        "dashscope.Files.get(file_id).status_code]))"
    )
    assert told == [200, "train.jsonl", True, 200, 404]


def test_whoami_knows_a_good_key_from_a_bad_one(project):
    if not project.is_v2:
        pytest.skip("2.x has the command")
    assert project.run("dashscope", "auth", "whoami").returncode == 0
    assert project.run("dashscope", "auth", "whoami", key="wrong").returncode != 0
