import json

import pytest

from fakes.model import save_tiny_model
from fakes.server import ROWS, json_lines
from strop.cli.checking import prompt_counter
from strop.schema.submission import Submission
from strop.store.jobs import get_job
from strop.store.submissions import get_submission
from strop.workers.size import most_workers

SECRET = "sk-a-secret-of-the-user"


def refused(server, body, status=400):
    reply = server.http.post("/fine-tunes", json=body)
    assert reply.status_code == status, reply.text
    assert "output" not in reply.json()
    return reply.json()["message"]


def test_a_job_is_told_with_every_field_that_clients_look_for(server):
    body = server.job_body(
        job_name="waits", hyper_parameters={"batch_size": "4", "n_rollouts": 2, "learning_rate": "2e-6"}
    )
    job = server.post("/fine-tunes", body)
    assert job["status"] == "PENDING"
    assert job["job_id"].startswith("ft-")
    assert (job["job_name"], job["model"], job["base_model"]) == ("waits", "smollm2-135m", "smollm2-135m")
    assert job["finetuned_output"] == f"smollm2-135m-{job['job_id']}"
    assert job["training_file_ids"] == [body["training_datasets"][0]["file_id"]]
    assert job["validation_file_ids"] == []
    assert {key: job["hyper_parameters"][key] for key in ("batch_size", "n_rollouts", "learning_rate")} == {
        "batch_size": 4, "n_rollouts": 2, "learning_rate": 2e-6,
    }  # fmt: skip
    assert (job["training_type"], job["creator"], job["group"]) == ("reinforcement", "first", "llm")
    assert not {"code", "message"} & set(job)
    assert None not in job.values()
    running = server.becomes(job["job_id"], "RUNNING")
    assert running["start_time"] >= running["create_time"]
    server.post(f"/fine-tunes/{job['job_id']}/cancel")


def test_names_that_a_client_left_out_are_not_told_as_its_own(server):
    agent = server.register("rollout", "Agent")
    left_out = server.submit(job_name="quick", rollout={"rollout_id": agent})
    said = server.submit(job_name="quick", model_name=f"of-{left_out}")
    with server.database.read() as session:
        origins = [get_job(session, job_id).config["origins"] for job_id in (left_out, said)]
    told = [(one["name"], one["tuned_model_name"], one["functions[0].name"]) for one in origins]
    assert told == [("request", "default", "default"), ("request", "request", "request")]
    assert origins[0]["model.name"] == origins[0]["functions[0].fcmodel.classpath"] == "request"


def test_jobs_are_listed_by_page_newest_first(own_server):
    ids = [own_server.submit(job_name="quick") for _ in range(3)]
    page = own_server.get("/fine-tunes", page_no=2, page_size=2)
    assert (page["page_no"], page["page_size"], page["total"]) == (2, 2, 3)
    assert [job["job_id"] for job in page["jobs"]] == [ids[0]]
    for job_id in ids:
        own_server.becomes(job_id, "SUCCEEDED")
    assert own_server.get("/fine-tunes", status="SUCCEEDED")["total"] == 3
    assert own_server.get("/fine-tunes", status="FAILED")["total"] == 0


def test_v2_clients_nulls_and_empty_lists_count_as_absent(server):
    body = server.job_body(
        job_name="quick", validation_datasets=None, teacher_model=None, validation_file_ids=[]
    )
    assert server.becomes(server.post("/fine-tunes", body)["job_id"], "SUCCEEDED")


def test_trackers_and_a_webhook_reach_the_trainer_and_its_address_nobody_else(server):
    diagnosis = {
        "stop_on": ["alarm"],
        "webhook": {"url": "https://hooks.example.com/T0/B1", "secret": SECRET},
    }
    body = server.job_body(job_name="waits", trackers=["prometheus"], diagnosis=diagnosis)
    job = server.post("/fine-tunes", body)
    server.post(f"/fine-tunes/{job['job_id']}/cancel")
    with server.database.read() as session:
        kept = get_submission(session, job["job_id"]).config
    assert kept["trackers"] == [{"type": "prometheus"}]
    assert kept["diagnosis"] == diagnosis
    page = server.http.get(f"/fine-tunes/{job['job_id']}").text
    assert SECRET not in page
    assert "B1" not in page
    message = refused(server, server.job_body(trackers=["prometeus"], diagnosis={"stop_on": ["P10"]}))
    assert "'P10' is neither a rule nor a severity" in message
    assert "did you mean 'prometheus'?" in message


def test_secrets_of_functions_reach_the_trainer_and_nobody_else(server):
    body = server.job_body(job_name="quick")
    body["rewards"][0]["env"] = {"JUDGE_KEY": SECRET, "ON": True}
    job = server.post("/fine-tunes", body)
    done = server.becomes(job["job_id"], "SUCCEEDED")
    with server.database.read() as session:
        kept: Submission = get_submission(session, job["job_id"])
    assert kept.config["functions"][1]["runtime"]["env"] == {"JUDGE_KEY": SECRET, "ON": "true"}
    shown = [done, server.get("/fine-tunes"), server.get(f"/fine-tunes/{job['job_id']}/events")]
    assert SECRET not in json.dumps(shown)
    broken = server.job_body()
    broken["rewards"][0] |= {"env": {"JUDGE_KEY": [SECRET]}, "colour": "red"}
    assert SECRET not in refused(server, broken)


def test_what_cannot_be_honoured_is_said_in_events(server):
    body = server.job_body(
        job_name="quick",
        resource_config={"charge_type": "mtu_postpaid", "mtu_spec_code": "MTU4", "mtu_count": 24},
    )
    body["hyper_parameters"] |= {"n_gpus_rollout": 8, "inference_tensor_parallel_size": "2"}
    body["rollout"] |= {"cpu": 2.0, "memory_size": 4096, "max_capacity": 100_000}
    job_id = server.post("/fine-tunes", body)["job_id"]
    notes = [
        one["message"] for one in server.get(f"/fine-tunes/{job_id}/events", kind="not_honoured")["events"]
    ]
    assert notes == [
        "resource_config.mtu_count, hyper_parameters.n_gpus_rollout, "
        "hyper_parameters.inference_tensor_parallel_size: accepted, but without effect on this machine",
        f"function 'agent': accepted, but not used as sent: max_capacity 100000: {most_workers()} workers is "
        "the most for one function on this machine",
    ]
    told = server.http.get(
        f"/fine-tunes/{job_id}/events", params={"kind": "not_honoured"}, headers={"accept-language": "zh-CN"}
    ).json()["output"]["events"]
    assert told[1]["message"].startswith("函数 'agent'：已接受，但不按所发使用：max_capacity 100000：本机")


def test_rows_too_long_by_the_models_own_tokenizer_are_told_before_the_job_is_made(own_server):
    save_tiny_model(own_server.home / "models" / "smollm2-135m")
    count = prompt_counter(own_server.home / "models" / "smollm2-135m")
    long = [{"role": "user", "content": "Having a calculator, having the answer: " * n} for n in (1, 9, 30)]
    lengths = [count([message], None) for message in long]
    assert lengths == sorted(set(lengths))
    rows = [*ROWS, *({"messages": [message]} for message in long)]
    hyper = {"batch_size": 4, "n_rollouts": 2, "max_length": 4 * lengths[0], "max_prompt_length": lengths[0]}
    body = own_server.job_body(hyper_parameters=hyper)
    body["training_datasets"][0]["file_id"] = own_server.upload_rows(rows, name="rows.jsonl")
    message = refused(own_server, body)
    assert "rows: 2 problems" in message
    for line, length in zip((18, 19), lengths[1:], strict=True):
        told = (
            f"rows.jsonl:{line}: messages: the prompt has {length} tokens, max_prompt_length is {lengths[0]}"
        )
        assert told in message
    body["hyper_parameters"] = {**hyper, "max_length": 4 * lengths[2], "max_prompt_length": lengths[2]}
    assert own_server.post("/fine-tunes", body)["status"] == "PENDING"

    answer = {"role": "assistant", "content": "42"}
    taught = [{"messages": [message, answer]} for message in long]
    sft = {"model": "smollm2-135m", "training_type": "sft"}
    sft["training_datasets"] = [{"file_id": own_server.upload_rows(taught, name="taught.jsonl")}]
    sft["hyper_parameters"] = {"batch_size": 1, "max_length": lengths[1]}
    message = refused(own_server, sft)
    assert "taught.jsonl:3: " in message
    assert "taught.jsonl:1: " not in message


def test_every_bad_row_is_told_at_once_by_line_and_the_job_is_not_made(own_server):
    rows = (
        json_lines(ROWS[:3])
        + b'{"messages": []}\n{broken\n'
        + json_lines([{"messages": [{"role": "usr", "content": "x"}]}])
    )
    body = own_server.job_body()
    body["training_datasets"][0]["file_id"] = own_server.upload_rows(rows, name="rows.jsonl")
    message = refused(own_server, body)
    assert "rows: 3 problems" in message
    assert "rows.jsonl:4: messages: empty" in message
    assert "rows.jsonl:5: not JSON" in message
    assert "rows.jsonl:6: messages[0].role: unknown role 'usr' (did you mean 'user'?)" in message
    assert str(own_server.home) not in message
    assert own_server.get("/fine-tunes")["total"] == 0
    assert not list((own_server.home / "jobs").glob("*"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": None}, ["model: missing"]),
        ({"model": 7}, ["model: expected text, found 7"]),
        ({"training_datasets": None}, ["training_datasets: missing"]),
        (
            {"training_datasets": [{"file_id": "file-unknown"}]},
            ["training_datasets[0].file_id: no file 'file-unknown'"],
        ),
        ({"training_datasets": [{"file_name": "a.jsonl"}]}, ["training_datasets[0].file_id: missing"]),
        (
            {"training_datasets": [{"file_ids": "x"}]},
            ["training_datasets[0].file_ids: unknown key (did you mean 'file_id'?)"],
        ),
        (
            {
                "training_datasets": [
                    {"data_source_type": "download_url", "download_url": "http://169.254.169.254/"}
                ]
            },
            ["this server fetches nothing"],
        ),
        (
            {"training_datasets": [{"data_source_type": "oss_mount", "mount_storage": {"bucket": "b"}}]},
            ["this server fetches nothing"],
        ),
        ({"training_datasets": "file-1"}, ["training_datasets: expected a list"]),
        (
            {"training_file_ids": ["file-a", "file-b"], "training_datasets": None},
            ["training_file_ids[0]: no file", "training_file_ids[1]: no file"],
        ),
        ({"rollout": {"name": "x"}}, ["rollout: no rollout_id or reward_id"]),
        ({"rollout": {"rollout_id": "ro-unknown"}}, ["rollout: no function 'ro-unknown'"]),
        (
            {"rollout": {"rollout_id": "ro-unknown", "cpu": -1, "weigth": 1}},
            [
                "rollout.cpu: must lie in [0.01, 1024], found -1",
                "rollout.weigth: unknown key (did you mean 'weight'?)",
            ],
        ),
        (
            {"rewards": [{"reward_id": "rw-unknown", "layer_code": "layer-unknown"}]},
            ["rewards[0]: no function 'rw-unknown'"],
        ),
        ({"hyper_parameters": {"learning_rat": 1e-6}}, ["learning_rat", "did you mean 'learning_rate'?"]),
        ({"hyper_parameters": {"learning_rate": "fast"}}, ["learning_rate", "expected a number"]),
        ({"hyper_parameters": {"n_rollouts": 1, "batch_size": 0}}, ["n_rollouts", "batch_size"]),
        ({"hyper_parameters": {"batch_size": 64}}, ["64 is more than the 16 rows"]),
        ({"hyper_parameters": {"algorithm": "gpso"}}, ["did you mean 'gspo'?"]),
        ({"hyper_parameters": [1]}, ["hyper_parameters: expected keys and values, found a list"]),
        ({"training_type": "magic"}, ["magic"]),
        ({"job_name": "x" * 257}, ["job_name: is too long: 257 characters"]),
        ({"model_name": "../x"}, ["model_name"]),
        ({"colour": "red"}, ["colour: unknown"]),
        ({"rewrads": []}, ["rewrads"]),
    ],
)
def test_a_bad_job_is_refused_with_every_reason(server, change, words):
    body = {key: value for key, value in (server.job_body() | change).items() if value is not None}
    if "rewrads" in change:
        body["rewrads"] = [{}]
    message = refused(server, body)
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'"x"', b"{", b"\xff\xfe", b"null", b'{"model": ' + b"[" * 5000]
)
def test_a_body_that_is_no_object_is_a_400_in_json(server, content):
    reply = server.http.post("/fine-tunes", content=content, headers={"content-type": "application/json"})
    assert (reply.status_code, reply.json()["code"]) == (400, "InvalidParameter")


def test_a_group_reward_comes_among_the_rewards_and_a_rollout_does_not(server):
    body = server.job_body(job_name="quick")
    body["rewards"].append({"reward_id": server.register("group-reward", "Rank"), "name": "rank"})
    job_id = server.post("/fine-tunes", body)["job_id"]
    with server.database.read() as session:
        kinds = [one["type"] for one in get_submission(session, job_id).config["functions"]]
    assert kinds == ["rollout", "reward", "group_reward"]
    body["rewards"][0]["reward_id"] = body["rollout"]["rollout_id"]
    assert "is a rollout function" in refused(server, body)


def test_what_a_job_said_and_made_is_told(server):
    job_id = server.submit(job_name="quick")
    server.becomes(job_id, "SUCCEEDED")
    (saved,) = server.get(f"/fine-tunes/{job_id}/checkpoints")["checkpoints"]
    assert (saved["step"], saved["validation"], saved["best"], saved["status"]) == (1, 0.1, True, "PENDING")
    curves = server.get(f"/fine-tunes/{job_id}/metrics")["metrics"]
    assert curves == {"critic/rewards/mean": [{"step": 1, "value": 0.5}], "actor/entropy": [{"step": 1}]}
    assert list(server.get(f"/fine-tunes/{job_id}/metrics", names="actor/entropy")["metrics"]) == [
        "actor/entropy"
    ]
    assert server.get(f"/fine-tunes/{job_id}/trajectories")["trajectories"] == []
    assert server.http.get(f"/fine-tunes/{job_id}/trajectories/a/b").status_code == 404
    assert server.get(f"/fine-tunes/{job_id}/logs", offset=1, line=10) == {"total": 0, "logs": []}


def test_logs_are_read_from_a_line_on(server):
    from datetime import UTC, datetime

    from strop.schema.job import LogLine
    from strop.store.logs import record_lines

    job_id = server.submit(job_name="quick")
    when = datetime(2026, 3, 1, 12, tzinfo=UTC)
    with server.database.write() as session:
        lines = [
            LogLine(job_id=job_id, component="trainer", stream="stderr", text=f"line {n}", created_at=when)
            for n in range(1, 6)
        ]
        record_lines(session, lines)
    page = server.get(f"/fine-tunes/{job_id}/logs", offset=3, line=2)
    assert page == {
        "total": 5,
        "logs": ["2026-03-01 12:00:00 [trainer] line 3", "2026-03-01 12:00:00 [trainer] line 4"],
    }
    assert server.get(f"/fine-tunes/{job_id}/logs", offset=0, line=1)["logs"] == [
        "2026-03-01 12:00:00 [trainer] line 1"
    ]


def test_the_stream_tells_news_and_ends_with_the_job(server):
    job_id = server.submit(job_name="waits")
    server.becomes(job_id, "RUNNING")
    told = []
    with server.http.stream("GET", f"/fine-tunes/{job_id}/stream") as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        for line in reply.iter_lines():
            if line.startswith("data:"):
                assert line[5] == "{"
                told.append(json.loads(line[5:]))
                if told[-1].get("status") == "RUNNING":
                    server.post(f"/fine-tunes/{job_id}/cancel")
    statuses = [one["status"] for one in told if one["type"] == "status"]
    assert statuses[0] == "RUNNING"
    assert statuses[-1] == "CANCELED"
    assert [one["metrics"] for one in told if one["type"] == "metrics"] == [{"critic/rewards/mean": 0.5}]
    assert "cancel_asked" in [one.get("kind") for one in told]


def test_a_job_is_deleted_with_its_folder_once_it_has_ended(server):
    job_id = server.submit(job_name="waits")
    server.becomes(job_id, "RUNNING")
    reply = server.http.delete(f"/fine-tunes/{job_id}")
    assert (reply.status_code, reply.json()["code"]) == (409, "Conflict")
    server.post(f"/fine-tunes/{job_id}/cancel")
    server.becomes(job_id, "CANCELED")
    assert (server.home / "jobs" / job_id).is_dir()
    assert server.http.delete(f"/fine-tunes/{job_id}").json()["output"]["status"] == "success"
    assert server.http.get(f"/fine-tunes/{job_id}").status_code == 404
    assert not (server.home / "jobs" / job_id).exists()


def test_a_failed_job_says_so_in_the_form_that_clients_take_for_an_error(server):
    job_id = server.submit(job_name="fails")
    job = server.becomes(job_id, "FAILED")
    assert (job["code"], job["message"]) == ("TrainingFailed", "the numbers went wrong")
    assert server.http.post(f"/fine-tunes/{job_id}/cancel").status_code == 409


def test_unguessable_ids(server):
    made = {server.submit(job_name="quick")[-16:] for _ in range(3)}
    assert len(made) == 3
    assert all(set(one) <= set("0123456789abcdef") for one in made)


def test_weights_of_parts_and_presets_are_the_jobs(server):
    body = server.job_body(job_name="quick")
    body["rewards"][0]["reward_metric_weight"] = {"digits": 2}
    same = {"preset": "exact_match", "params": {"reference": "answer"}, "weight": 0.5, "name": "same"}
    body["rewards"].append(same)
    job = server.post("/fine-tunes", body)
    with server.database.read() as session:
        kept = get_submission(session, job["job_id"])
    assert kept.config["functions"][1]["reward_metric_weight"] == {"digits": 2.0}
    preset = kept.config["functions"][2]
    assert {key: preset[key] for key in ("preset", "params", "weight", "name", "type")} == {
        **same,
        "type": "reward",
    }
    server.becomes(job["job_id"], "SUCCEEDED")
    body["rewards"][1]["preset"] = "exact_mach"
    assert "did you mean 'exact_match'?" in refused(server, body)
    body["rewards"][1] |= {"preset": "exact_match", "reward_id": "rw-1"}
    assert "rewards[1].preset: cannot be combined with an id" in refused(server, body)
