import re
import stat
import uuid
import zipfile

import httpx
import pytest

from fakes.server import FUNCTIONS, eventually, zipped

ROLLOUT_INPUT = {
    "func_type": "rollout",
    "messages": [{"role": "user", "content": "hi"}],
    "model_resource": {"model_name": "m", "base_url": "http://x", "api_key": "very-secret-key"},
}


def online(server, entity_id, runtime=None):
    return server.post(f"/fine-tunes/online/faas/jobId-{uuid.uuid4()}/{entity_id}", runtime or {})


def call(instance, body):
    headers = {"authorization": f"Bearer {instance['trigger_token']}"}
    return httpx.post(f"{instance['trigger_url']}/api/v1", json=body, headers=headers, timeout=60)


def test_the_three_kinds_are_registered_with_ids_of_their_own(own_server):
    ids = [
        own_server.register(kind, func)
        for kind, func in (("rollout", "Agent"), ("reward", "Score"), ("group-reward", "Rank"))
    ]
    assert [re.match(r"(ro|rw|grw)-[0-9a-f]{24}$", one).group(1) for one in ids] == ["ro", "rw", "grw"]
    listed = own_server.get("/functions")
    assert {one["entity_id"]: one["type"] for one in listed["functions"]} == dict(
        zip(ids, ("rollout", "reward", "group_reward"), strict=True)
    )


def test_registering_twice_under_a_key_gives_the_same_function(server):
    key = server.upload_bundle(zipped({"functions.py": FUNCTIONS}))
    body = {"name": "functions.py", "unique_key": key, "func": "Score", "code_url": "x"}
    first, second = (server.post("/fine-tunes/create/reward", body)["reward_id"] for _ in range(2))
    assert first == second
    reply = server.http.post("/fine-tunes/create/reward", json=body | {"func": "Agent"})
    assert (reply.status_code, reply.json()["code"]) == (409, "Conflict")
    assert reply.headers["x-should-retry"] == "false"


def test_an_upload_url_holds_for_its_key_and_its_time_only(server):
    url = server.post("/fine-tunes/generate/faas/upload/url", {"unique_key": "reward-1"})["url"]
    bundle = zipped({"functions.py": FUNCTIONS})
    for wrong in (
        url.replace("reward-1", "reward-2"),
        re.sub("expires=[0-9]+", "expires=99999999999", url),
        re.sub("expires=[0-9]+", "expires=abc", url),
        re.sub("signature=.*", "signature=x", url),
        url.partition("?")[0],
    ):
        reply = httpx.put(wrong, content=bundle)
        assert (reply.status_code, reply.json()["code"]) == (401, "InvalidApiKey")
    assert httpx.put(url, content=bundle).status_code == 200


def test_an_upload_url_ends(monkeypatch):
    from fakes.server import serving
    from strop.service.settings import Limits
    from strop.store.home import home

    with serving(home(), limits=Limits(upload_url_s=-1)) as server:
        url = server.post("/fine-tunes/generate/faas/upload/url", {"unique_key": "reward-1"})["url"]
        assert httpx.put(url, content=zipped({"a.py": ""})).status_code == 401


def test_equal_bundles_are_kept_once(own_server):
    for _ in range(2):
        own_server.register("reward", "Score")
    assert len(list((own_server.home / "bundles").iterdir())) == 1
    assert len(list((own_server.home / "blobs" / "bundles").iterdir())) == 1


def member(name, *, mode=0o644, content=b"x = 1\n"):
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return info, content


def with_members(*members):
    import io
    import warnings

    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for info, content in members:
            archive.writestr(info, content)
    return memory.getvalue()


BAD_ZIPS = {
    "not a readable zip": b"this is no zip",
    "not a readable zip: ": b"",
    "the zip is empty": with_members(),
    "'../evil.py' is not a path": with_members(member("../evil.py")),
    "'/etc/evil.py' is not a path": with_members(member("/etc/evil.py")),
    "'a/../../evil.py' is not a path": with_members(member("a/../../evil.py")),
    "is not a path": with_members(member("a\\..\\evil.py")),
    "'C:/evil.py' is not a path": with_members(member("C:/evil.py")),
    "'link' is a link": with_members(member("link", mode=stat.S_IFLNK | 0o777, content=b"/etc/passwd")),
    "neither a file nor a folder": with_members(member("fifo", mode=stat.S_IFIFO | 0o644)),
    "holds 'a.py' twice": with_members(member("a.py"), member("a.py")),
    "holds 'a.py' twice ": with_members(member("a.py"), member("./a.py")),
    "both as a file and as a folder": with_members(member("a"), member("a/b.py")),
}


@pytest.mark.parametrize("words", BAD_ZIPS)
def test_a_bad_zip_is_refused_with_its_reason(server, words):
    url = server.post("/fine-tunes/generate/faas/upload/url", {"unique_key": "reward-1"})["url"]
    reply = httpx.put(url, content=BAD_ZIPS[words])
    assert (reply.status_code, reply.json()["code"]) == (400, "InvalidParameter")
    assert words.strip() in reply.json()["message"]
    assert not (server.home.parent / "evil.py").exists()


def test_a_zip_bomb_and_a_crowd_of_members_are_refused():
    from fakes.server import serving
    from strop.service.settings import Limits
    from strop.store.home import home

    with serving(
        home(), limits=Limits(unpacked_bytes=2**20, bundle_entries=10, bundle_bytes=2**16)
    ) as server:
        url = server.post("/fine-tunes/generate/faas/upload/url", {"unique_key": "reward-1"})["url"]
        bomb = httpx.put(url, content=zipped({"zeros": b"\0" * 2**22}))
        crowd = httpx.put(url, content=zipped({f"{n}.py": "" for n in range(20)}))
        import os

        large = httpx.put(url, content=os.urandom(2**17))
    assert (bomb.status_code, "unpacks to 4 MiB" in bomb.json()["message"]) == (400, True)
    assert (crowd.status_code, "has 20 members" in crowd.json()["message"]) == (400, True)
    assert (large.status_code, large.json()["code"]) == (413, "PayloadTooLarge")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"unique_key": "reward-unknown"}, "no code was uploaded"),
        ({"unique_key": "a/b"}, "unique_key"),
        ({"unique_key": ""}, "unique_key"),
        ({"name": "nowhere.py"}, "the bundle has no file 'nowhere.py' "),
        ({"name": "../functions.py"}, "is not a Python file of the bundle"),
        ({"name": "/etc/passwd"}, "is not a Python file of the bundle"),
        ({"name": "requirements.txt"}, "is not a Python file of the bundle"),
        ({"func": "Scor"}, "did you mean 'Score'?"),
        ({"func": "no name"}, "is not a class name"),
        ({"func": ""}, "func"),
        ({"name": 7}, "name"),
        ({"name": "broken.py"}, "broken.py, line 1: not Python"),
    ],
)
def test_a_bad_registration_is_refused_with_its_reason(server, change, words):
    files = {"functions.py": FUNCTIONS, "requirements.txt": "", "broken.py": "class Score(:\n"}
    key = server.upload_bundle(zipped(files))
    body = {"name": "functions.py", "unique_key": key, "func": "Score", "code_url": ""} | change
    reply = server.http.post("/fine-tunes/create/reward", json=body)
    assert (reply.status_code, reply.json()["code"]) == (400, "InvalidParameter")
    assert words.strip() in reply.json()["message"]


def test_an_instance_of_each_kind_answers_at_its_address(server):
    agent = {"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]}
    rollout = online(
        server,
        server.register("rollout", "Agent"),
        {"concurrency": 3, "cpu": 2, "enable_log": True, "env": {"A": "secret-value"}},
    )
    assert rollout["status"] == 2
    assert rollout["not_honoured"] == ["enable_log"]
    assert rollout["runtime"] == {"concurrency": 3, "cpu": 2.0, "env": {"A": "***"}}
    assert call(rollout, ROLLOUT_INPUT).json()["agent_output"]["messages"][-1] == {
        "role": "assistant",
        "content": "4",
    }
    reward = online(server, server.register("reward", "Score"))
    scored = call(reward, {"agent_output": agent, "ground_truth": "4"}).json()
    assert scored["reward"] == {"reward_score": 1.0, "reward_metrics": {"hit": 1.0}}
    group = online(server, server.register("group-reward", "Rank"))
    ranked = call(group, {"agent_outputs": [agent, agent]}).json()
    assert [one["reward_score"] for one in ranked["reward"]["rewards"]] == [0.0, 1.0]
    health = httpx.get(
        f"{group['trigger_url']}/health", headers={"authorization": f"Bearer {group['trigger_token']}"}
    )
    assert health.json() == {
        "status": "healthy", "func_type": "group_reward", "processor": "Rank", "parser": "GroupRewardInput",
    }  # fmt: skip


def test_an_instance_is_restarted_and_tells_its_load(server):
    agent = {"messages": [{"role": "assistant", "content": "4"}]}
    made = online(server, server.register("reward", "Score"), {"min_capacity": 0, "max_capacity": 2})
    where = f"/fine-tunes/query/faas/{made['instance_id']}"
    assert call(made, {"agent_output": agent, "ground_truth": "4"}).status_code == 200
    assert call(made, {"agent_output": {"messages": [7]}}).status_code == 422
    before = server.post(where)["load"]
    assert (before["workers"], before["calls"], before["starts"], before["errors"]) == (1, 1, 1, {})
    restarted = server.post(f"/fine-tunes/restart/faas/{made['instance_id']}")
    assert restarted["status"] == 2
    after = server.post(where)["load"]
    assert (after["workers"], after["starts"], after["losses"]) == (1, 2, 0)
    told = httpx.get(f"{server.url}/metrics").text
    assert f'strop_function_calls_total{{instance="{made["instance_id"]}"}} 1' in told
    assert f'strop_function_queue{{instance="{made["instance_id"]}"}} 0' in told


def test_sizes_that_contradict_each_other_are_refused(server):
    entity_id = server.register("reward", "Score")
    path = f"/fine-tunes/online/faas/jobId-{uuid.uuid4()}/{entity_id}"
    reply = server.http.post(path, json={"min_capacity": 3, "max_capacity": 2})
    assert reply.status_code == 400
    assert "min_capacity: 3 is above max_capacity 2" in reply.json()["message"]


def test_an_instance_is_guarded_by_its_own_token(server):
    reward = online(server, server.register("reward", "Score"))
    other = online(server, server.register("rollout", "Agent"))
    for token in (server.key, other["trigger_token"], "x"):
        reply = httpx.post(
            f"{reward['trigger_url']}/api/v1", json={}, headers={"authorization": f"Bearer {token}"}
        )
        assert (reply.status_code, reply.json()["code"]) == (401, "InvalidApiKey")


def test_what_goes_wrong_in_a_call_is_told_with_its_status(server):
    reward = online(server, server.register("reward", "Score"))
    agent = {"messages": [{"role": "assistant", "content": "4"}]}
    raised = call(reward, {"agent_output": agent, "ground_truth": "raise"})
    assert (raised.status_code, raised.json()["error_code"]) == (500, "exception")
    assert "no score for this one" in raised.json()["message"]
    wrong = call(reward, {"agent_output": 3})
    assert wrong.status_code == 422
    assert wrong.json()["Message"].startswith("ValidationError: Request parsing error: agent_output")
    kind = call(reward, ROLLOUT_INPUT)
    assert kind.status_code == 422
    assert "very-secret-key" not in kind.text
    broken = httpx.post(
        f"{reward['trigger_url']}/api/v1",
        content=b"{",
        headers={"authorization": f"Bearer {reward['trigger_token']}"},
    )
    assert (broken.status_code, broken.json()["detail"][:17]) == (400, "Invalid JSON body")


def test_what_an_instance_prints_is_found_by_page_time_and_word(server):
    rollout = online(server, server.register("rollout", "Agent"))
    for word in ("alpha", "beta", "gamma"):
        call(rollout, ROLLOUT_INPUT | {"messages": [{"role": "user", "content": word}]})

    def logs(**asked):
        return server.post(
            f"/fine-tunes/query/faas/log/{rollout['instanceId']}", {"pageNumber": 1, "pageSize": 100, **asked}
        )

    eventually(lambda: logs()["total_count"] == 3)
    page = logs(pageSize=2)
    assert [one["message"] for one in page["log_entries"]] == ["rollout of alpha", "rollout of beta"]
    assert [one["message"] for one in logs(pageNumber=2, pageSize=2)["log_entries"]] == ["rollout of gamma"]
    assert [one["message"] for one in logs(keywords=["bet"])["log_entries"]] == ["rollout of beta"]
    when = page["log_entries"][0]["timestamp"]
    assert logs(startTime=when, endTime=when + 3600)["total_count"] == 3
    assert logs(endTime=when - 10)["total_count"] == 0
    assert logs(keywords=["%"])["total_count"] == 0


def test_a_deleted_instance_answers_no_more(server):
    reward = online(server, server.register("reward", "Score"))
    done = server.http.post(f"/fine-tunes/delete/faas/{reward['instanceId']}", json={}).json()
    assert done["data"]["status"] == "deleted"
    assert "code" not in done
    assert server.http.post(f"/fine-tunes/query/faas/{reward['instanceId']}", json={}).status_code == 409
    assert call(reward, {}).status_code == 404


def test_a_function_that_cannot_start_says_why(server):
    source = FUNCTIONS + (
        "\n\nclass Broken(AbstractRewardProcessor):\n"
        "    def setup(self):\n        raise OSError('no such judge')\n\n"
        "    def process(self, input):\n        return None\n"
    )
    entity = server.register("reward", "Broken", source=source)
    reply = server.http.post(f"/fine-tunes/online/faas/jobId-1/{entity}", json={})
    assert reply.status_code == 422
    assert "no such judge" in reply.json()["message"]
    assert server.get(f"/functions/{entity}")["instances"][0]["state"] == "failed"


def test_an_instance_is_there_again_after_the_servers_restart():
    from fakes.server import serving
    from strop.store.home import home

    agent = {"messages": [{"role": "assistant", "content": "4"}]}
    with serving(home()) as server:
        reward = online(server, server.register("reward", "Score"))
        port = int(server.url.rpartition(":")[2])
    with serving(home(), port=port) as server:
        told = server.post(f"/fine-tunes/query/faas/{reward['instanceId']}", {})
        assert (told["status"], told["trigger_token"]) == (2, reward["trigger_token"])
        assert (
            call(told, {"agent_output": agent, "ground_truth": "4"}).json()["reward"]["reward_score"] == 1.0
        )


@pytest.mark.parametrize(
    ("runtime", "words"),
    [
        ({"cpu": -1}, "cpu"),
        ({"memory_size": 0}, "memory_size"),
        ({"concurrency": 0}, "concurrency"),
        ({"colour": "red"}, "colour"),
        ({"env": {"a b": "x"}}, "is not a name for an environment variable"),
        ({"env": {"STROP_HOME": "x"}}, "STROP_HOME"),
        ({"env": {"A": ["x"]}}, "env.A"),
    ],
)
def test_a_bad_runtime_is_refused_with_its_field(server, runtime, words):
    entity = server.register("reward", "Score")
    reply = server.http.post(f"/fine-tunes/online/faas/jobId-1/{entity}", json=runtime)
    assert (reply.status_code, reply.json()["code"]) == (400, "InvalidParameter")
    assert words in reply.json()["message"]


def test_a_function_with_instances_is_not_forgotten(server):
    entity = server.register("reward", "Score")
    instance = online(server, entity)
    assert server.http.delete(f"/functions/{entity}").status_code == 409
    server.http.post(f"/fine-tunes/delete/faas/{instance['instanceId']}", json={})
    assert server.http.delete(f"/functions/{entity}").status_code == 200
    assert server.http.get(f"/functions/{entity}").status_code == 404


def test_a_layer_that_fails_is_a_failure_everywhere(server, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    asked = {"layer_name": "fc_layer-1", "requirements_content": "no-such-package-anywhere==7\n"}
    code = server.post("/fine-tunes/create/faas/layer", asked)["layer_code"]

    def told():
        status = server.get("/fine-tunes/query/faas/layer/status", layer_code=code)
        return status if status["status"] != "BUILDING" else None

    ended = eventually(told)
    assert ended["status"] == "FAILED"
    assert "no-such-package-anywhere" in ended["log"]
    entity = server.register("reward", "Score")
    reply = server.http.post(f"/fine-tunes/online/faas/jobId-1/{entity}", json={"layer_code": code})
    assert reply.status_code == 422
    assert "could not be built" in reply.json()["message"]
    body = server.job_body()
    body["rewards"][0]["layer_code"] = code
    reply = server.http.post("/fine-tunes", json=body)
    assert reply.status_code == 400
    assert "rewards[0].layer_code: layer" in reply.json()["message"]


def test_an_empty_layer_is_ready_and_its_instance_runs_in_it(server):
    asked = {"layer_name": "fc_layer-1", "requirements_content": "# nothing\n"}
    code = server.post("/fine-tunes/create/faas/layer", asked)["layer_code"]
    source = FUNCTIONS + (
        "\n\nclass Where(AbstractRewardProcessor):\n"
        "    def process(self, input):\n"
        "        import sys\n"
        "        print(sys.prefix)\n"
        "        return RewardOutput(reward=Reward(reward_score=0.0))\n"
    )
    instance = online(server, server.register("reward", "Where", source=source), {"layer_code": code})
    assert call(instance, {"agent_output": {"messages": []}}).status_code == 200

    def printed():
        page = {"pageNumber": 1, "pageSize": 10}
        return server.post(f"/fine-tunes/query/faas/log/{instance['instanceId']}", page)["log_entries"]

    assert eventually(printed)[0]["message"] == str(server.home / "layers" / code)


@pytest.mark.parametrize(
    ("asked", "status", "words"),
    [
        ({"requirements_content": "-e ."}, 422, "points at a file"),
        ({"requirements_content": 7}, 400, "requirements_content"),
        ({}, 400, "requirements_content"),
        ({"requirements_content": "x" * 70_000}, 422, "characters"),
    ],
)
def test_a_bad_layer_is_refused_with_its_reason(server, asked, status, words):
    reply = server.http.post("/fine-tunes/create/faas/layer", json=asked)
    assert reply.status_code == status
    assert words in reply.json()["message"]


def test_an_unknown_layer_is_a_404(server):
    reply = server.http.get("/fine-tunes/query/faas/layer/status", params={"layer_code": "layer-x"})
    assert (reply.status_code, reply.json()["code"]) == (404, "NotFound")
