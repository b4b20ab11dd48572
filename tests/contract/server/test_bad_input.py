"""What cannot be meant, a row each: its 4xx, its code, and a message that names the place and the fix."""

from __future__ import annotations

import gzip
import io
import json
import stat
import struct
import warnings
import zipfile
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from fakes.server import FUNCTIONS, Server, json_lines, zipped

Send = Callable[[Server], httpx.Response]
JSON = {"content-type": "application/json"}
_GOOD: dict[str, dict[str, Any]] = {}
USER = {"messages": [{"role": "user", "content": "hi"}]}


def raw(content: bytes, path: str = "/fine-tunes", **headers: str) -> Send:
    return lambda server: server.http.post(path, content=content, headers=headers or JSON)


def post(path: str, body: Any) -> Send:
    return lambda server: server.http.post(path, json=body)


def get(path: str, **params: Any) -> Send:
    return lambda server: server.http.get(path, params=params)


def good_job(server: Server) -> dict[str, Any]:
    if server.url not in _GOOD:
        _GOOD[server.url] = server.job_body()
    return _GOOD[server.url]


def job(**changes: Any) -> Send:
    """A good job with these fields changed."""
    return lambda server: server.http.post("/fine-tunes", json=good_job(server) | changes)


def hyper(**values: Any) -> Send:
    return job(hyper_parameters={"batch_size": 4, "n_rollouts": 2, **values})


def rollout(**values: Any) -> Send:
    def send(server: Server) -> httpx.Response:
        body = good_job(server)
        return server.http.post("/fine-tunes", json=body | {"rollout": body["rollout"] | values})

    return send


def rows(content: bytes, name: str = "train.jsonl") -> Send:
    """A job on these rows."""

    def send(server: Server) -> httpx.Response:
        file_id = server.upload_rows(content, name=name)
        return server.http.post(
            "/fine-tunes", json=good_job(server) | {"training_datasets": [{"file_id": file_id}]}
        )

    return send


def bundle(content: bytes) -> Send:
    def send(server: Server) -> httpx.Response:
        url = server.post("/fine-tunes/generate/faas/upload/url", {"unique_key": "reward-1"})["url"]
        return httpx.put(url, content=content)

    return send


def function(**changes: Any) -> Send:
    def send(server: Server) -> httpx.Response:
        files: dict[str, str | bytes] = {"functions.py": FUNCTIONS, "deep.py": "x = " + "(" * 3000}
        latin = "# \xe9\nclass Score: pass".encode("latin-1")
        key = server.upload_bundle(zipped({**files, "latin.py": latin}))
        body = {"name": "functions.py", "unique_key": key, "func": "Score"} | changes
        return server.http.post("/fine-tunes/create/reward", json=body)

    return send


def upload(*parts: Any, **data: Any) -> Send:
    return lambda server: server.http.post("/files", files=list(parts), data=data)


def at_upload(change: Callable[[str], str]) -> Send:
    """A zip to an upload URL that was changed."""

    def send(server: Server) -> httpx.Response:
        url = server.post("/fine-tunes/generate/faas/upload/url", {"unique_key": "reward-1"})["url"]
        return httpx.put(change(url), content=zipped({"a.py": ""}))

    return send


def packed(*members: tuple[str | zipfile.ZipInfo, bytes]) -> bytes:
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, content in members:
            archive.writestr(name, content)
    return memory.getvalue()


def special(name: str, mode: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return info


def lying_zip() -> bytes:
    """Its table says one byte, the member has a thousand."""
    content = packed(("a.py", b"#" * 1000))
    at = content.rindex(b"PK\x01\x02")
    return content[: at + 24] + struct.pack("<I", 1) + content[at + 28 :]


def crowded_table() -> bytes:
    """An end record that promises a table of 300 MB."""
    content = bytearray(packed(("a.py", b"")))
    at = content.rindex(b"PK\x05\x06")
    content[at + 12 : at + 16] = struct.pack("<I", 300_000_000)
    return bytes(content)


def zip64() -> bytes:
    content = packed(("a.py", b""))
    at = content.rindex(b"PK\x05\x06")
    return content[:at] + b"PK\x06\x07" + b"\0" * 16 + content[at:]


def encrypted() -> bytes:
    content = bytearray(packed(("a.py", b"x = 1")))
    content[6] |= 1
    content[content.rindex(b"PK\x01\x02") + 8] |= 1
    return bytes(content)


MEASURED = {"model": "a", "datasets": [{"file_id": "x"}], "rewards": [{"reward_id": "x"}]}
DEEP = json.dumps({"hyper_parameters": {"a": "DEEP"}})
BAD, LOST = (400, "InvalidParameter"), (404, "NotFound")
CONTENT = [("files", ("train.jsonl", b"{}\n"))]

ROWS: dict[str, tuple[Send, tuple[int, str], tuple[str, ...]]] = {
    # bodies
    "an empty body": (raw(b""), BAD, ("body", "required")),
    "a body that is no JSON": (raw(b'{"model": '), BAD, ("not JSON", "column", "send one JSON object")),
    "a list": (raw(b"[]"), BAD, ("body", "dictionary")),
    "a null": (raw(b"null"), BAD, ("body",)),
    "two values": (raw(b"{} {}"), BAD, ("not JSON", "Extra data")),
    "a name that stands twice": (
        raw(b'{"model": "a", "model": "b"}'), BAD, ("'model' is used twice", "write it once"),
    ),
    "a name that stands twice further in": (
        raw(b'{"model": "a", "rollout": {"env": {"A": "1", "A": "2"}}}'), BAD, ("'A' is used twice",),
    ),
    "NaN": (raw(b'{"hyper_parameters": {"learning_rate": NaN}}'), BAD, ("NaN is not a number in JSON",)),
    "infinity": (raw(b'{"weight": -Infinity}'), BAD, ("-Infinity is not a number in JSON",)),
    "lists in lists beyond any use": (
        raw(DEEP.replace('"DEEP"', "[" * 80 + "]" * 80).encode()),
        BAD, ("hyper_parameters.a[0]", "64 levels"),
    ),
    "lists in lists beyond the stack": (raw(b"[" * 200_000), BAD, ("nested deeper than 64", "flatten")),
    "objects in objects beyond any use": (
        raw(DEEP.replace('"DEEP"', '{"b":' * 100 + "1" + "}" * 100).encode()), BAD, ("64 levels",),
    ),
    "a million values": (
        raw(b'{"training_file_ids": [' + b"1," * 1_000_000 + b"1]}"), BAD, ("training_file_ids[", "100000"),
    ),
    "a number of five thousand digits": (raw(b'{"weight": ' + b"9" * 5000 + b"}"), BAD, ("not JSON",)),
    "NUL in a value": (raw(b'{"model": "a\\u0000b"}'), BAD, ("model: contains a NUL character",)),
    "NUL in a name": (raw(b'{"mo\\u0000del": 1}'), BAD, ("mo\\x00del: contains a NUL character",)),
    "half a character": (raw(b'{"job_name": "\\ud83d"}'), BAD, ("job_name: half a character",)),
    "Latin-1": (raw('{"job_name": "\xe9"}'.encode("latin-1")), BAD, ("not UTF-8", "send it as UTF-8")),
    "UTF-16 cut in half": (raw("{}".encode("utf-16")[:-1]), BAD, ("not UTF-8",)),
    "a zipped body": (
        raw(gzip.compress(b"{}"), **JSON, **{"content-encoding": "gzip"}), BAD, ("not UTF-8",),
    ),
    "JSON that calls itself text": (
        raw(b"{}", **{"content-type": "text/plain"}),
        BAD, ("content-type: found 'text/plain'", "application/json"),
    ),
    "JSON that calls itself a form": (
        raw(b"{}", **{"content-type": "application/x-www-form-urlencoded"}),
        BAD, ("expected application/json",),
    ),
    "more than nine megabytes": (
        raw(b'{"a": "' + b"x" * 9_000_000 + b'"}'), (413, "PayloadTooLarge"), ("8388608 bytes",),
    ),
    # jobs
    "an unknown key": (job(modle="x"), BAD, ("modle: unknown", "did you mean 'model'?")),
    "a hundred thousand unknown keys": (
        job(**{f"key{n}": 1 for n in range(40_000)}), BAD, ("key0: unknown", "and 39950 more mistakes"),
    ),
    "a model that is a path": (
        job(model="../../etc/passwd"), BAD, ("there is no model", "take one of these"),
    ),
    "a model that is a folder of the server": (job(model="/root"), BAD, ("there is no model '/root'",)),
    "a model with a look-alike letter": (job(model="smollm2-135\u043c"), BAD, ("there is no model",)),
    "a name that writes to terminals": (job(job_name="a\x1b[31mred"), BAD, ("job_name", "control")),
    "a name that turns the line around": (job(job_name="tiny\u202egpj"), BAD, ("job_name", "control")),
    "an output name that is a path": (job(model_name="a/../../b"), BAD, ("model_name", "cannot be a name")),
    "an output name that hides": (job(model_name=".hidden"), BAD, ("model_name", "cannot be a name")),
    "an output name with an end of line": (job(model_name="fine\n"), BAD, ("model_name", "cannot be a name")),
    "a file of another kind": (
        job(training_datasets=[{"data_source_type": "download_url", "download_url": "http://169.254.169.254/"}]),
        BAD, ("training_datasets[0]", "this server fetches nothing", "upload the file"),
    ),
    "a file id that is a path": (
        job(training_datasets=[{"file_id": "../../strop.db"}]),
        BAD, ("training_datasets[0].file_id: no file",),
    ),
    "a thousand files": (
        job(training_datasets=None, training_file_ids=[f"file-{n}" for n in range(1000)]),
        BAD, ("training_file_ids", "keep to 100"),
    ),
    "a thousand rewards": (job(rewards=[{"reward_id": "x"}] * 1000), BAD, ("rewards", "keep to 100")),
    "a setting that is misspelt": (
        hyper(learning_rat=1), BAD, ("learning_rat", "did you mean 'learning_rate'?"),
    ),
    "a setting out of range": (
        hyper(n_rollouts=-1), BAD, ("n_rollouts", "must lie in [1, 1024]", "found -1"),
    ),
    "a setting beyond every number": (hyper(batch_size=10**300), BAD, ("batch_size",)),
    "a setting that is a list": (hyper(learning_rate=[1]), BAD, ("learning_rate", "number")),
    "a setting that is true": (hyper(batch_size=True), BAD, ("batch_size",)),
    "a number with spaces and letters": (hyper(batch_size=" 4x"), BAD, ("batch_size",)),
    "a number in Arabic digits": (hyper(batch_size="٤x"), BAD, ("batch_size",)),
    "a weight below zero": (job(rewards=[{"reward_id": "x", "weight": -1}]), BAD, ("rewards[0].weight", "0")),
    "a timeout of zero": (rollout(timeout=0), BAD, ("rollout.timeout", "0.001", "found 0")),
    "a timeout of a year": (rollout(timeout=31_536_000), BAD, ("rollout.timeout", "86400")),
    "an environment that is a list": (rollout(env=["A=1"]), BAD, ("rollout.env", "keys and values")),
    "a variable of ours": (rollout(env={"STROP_HOME": "/"}), BAD, ("STROP_HOME", "Strop's own")),
    "a variable with a sign": (
        rollout(env={"A=B": "1"}), BAD, ("'A=B'", "is not a name for an environment variable"),
    ),
    "a tracker at a place of the server": (
        job(trackers=["tensorboard", {"type": "mlflow", "tracking_uri": "sqlite:////root/x.db"}]),
        BAD, ("trackers[1].tracking_uri: 'sqlite:////root/x.db'", "which takes http:// and https:// only"),
    ),
    "a tracker that opens a port of the server": (
        job(trackers=[{"type": "prometheus", "host": "0.0.0.0"}]),
        BAD, ("trackers[0].host: '0.0.0.0'", "for its owner to decide", "leave it out"),
    ),
    "a rollout that was never registered": (
        rollout(rollout_id="ro-x"), BAD, ("rollout: no function 'ro-x'",),
    ),
    # rows
    "rows that are no JSON": (rows(b"{\n"), BAD, ("train.jsonl:1", "not JSON")),
    "rows without messages": (rows(b'{"prompt": 1}\n'), BAD, ("train.jsonl:1", "messages")),
    "a row whose key stands twice": (
        rows(b'{"messages": [], "messages": [{"role": "user", "content": "x"}]}\n'),
        BAD, ("train.jsonl:1", "twice"),
    ),
    "rows in UTF-16": (rows("{}".encode("utf-16")), BAD, ("train.jsonl:1", "UTF-16", "save it as UTF-8")),
    "rows in Latin-1": (rows(b'{"messages": "\xe9"}\n'), BAD, ("train.jsonl:1", "not UTF-8 at byte 15")),
    "a picture": (rows(b"\x89PNG\r\n\x1a\n" + b"\0" * 50), BAD, ("train.jsonl",)),
    "rows zipped and cut off": (
        rows(gzip.compress(json_lines([USER] * 50))[:-20], "train.jsonl.gz"), BAD, ("train.jsonl.gz",),
    ),
    "Parquet that is none": (rows(b"PAR1 nothing", "train.parquet"), BAD, ("train.parquet",)),
    "rows with an unknown role": (
        rows(json_lines([{"messages": [{"role": "usr", "content": "x"}]}])), BAD, ("did you mean 'user'?",),
    ),
    "fewer rows than a batch": (rows(json_lines([USER])), BAD, ("batch_size", "1 row")),
    # files
    "a file as JSON": (post("/files", {"files": "x"}), BAD, ("multipart/form-data", "part `files`")),
    "a form without a file": (
        upload(("other", ("a", b"x"))), BAD, ("no file in the request", "part `files`"),
    ),
    "a form without its end": (
        raw(b'--b\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\n{}', "/files",
            **{"content-type": "multipart/form-data; boundary=b"}),
        BAD, ("ends before its last boundary", "send it again"),
    ),
    "a form without a boundary": (
        raw(b"x", "/files", **{"content-type": "multipart/form-data"}), BAD, ("boundary",),
    ),
    "a form of another shape": (
        raw(b"garbage", "/files", **{"content-type": "multipart/form-data; boundary=b"}), BAD, ("multipart",),
    ),
    "a part without a name": (
        raw(b"--b\r\nContent-Disposition: form-data\r\n\r\nx\r\n--b--\r\n", "/files",
            **{"content-type": "multipart/form-data; boundary=b"}),
        BAD, ("name",),
    ),
    "a hundred and one files": (upload(*[("files", (f"{n}", b"x")) for n in range(101)]), BAD, ("100",)),
    "an empty file": (upload(("files", ("a.jsonl", b""))), BAD, ("empty: a.jsonl", "at least one row")),
    "a file name of dots": (upload(("files", ("../..", b"x"))), BAD, ("without a name",)),
    "a file name of three hundred letters": (upload(("files", ("x" * 300, b"x"))), BAD, ("200 bytes",)),
    "a file for no purpose": (upload(*CONTENT, purpose="evil"), BAD, ("purpose: found 'evil'", "fine-tune")),
    # pages and ranges
    "page zero": (get("/files", page_no=0), BAD, ("page_no", "greater than or equal to 1")),
    "a page before the first": (get("/fine-tunes", page_no=-3), BAD, ("page_no", "1")),
    "a page of a million": (get("/fine-tunes", page_size=1_000_000), BAD, ("page_size", "100")),
    "a page that is a word": (get("/models", page_no="one"), BAD, ("page_no", "integer")),
    "a page beyond every number": (get("/deployments", page_no="9" * 40), BAD, ("page_no",)),
    "a head of two megabytes": (
        lambda server: server.http.get("/files", headers={"x-long": "a" * 2_000_000}),
        BAD, ("not an HTTP request", "64 KiB"),
    ),
    "an unknown status": (get("/fine-tunes", status="RUNING"), BAD, ("status", "'RUNNING'")),
    "a step beyond every number": (
        get("/fine-tunes/x/trajectories", step=10**20), BAD, ("step", "2147483647"),
    ),
    "a cursor that is none": (get("/fine-tunes/x/events", after="1 OR 1=1"), BAD, ("after", "pattern")),
    "fifteen thousand names": (get("/fine-tunes/x/metrics", names="a," * 15_000), BAD, ("names", "4096")),
    "NUL in a query": (get("/fine-tunes/x/events", kind="\0"), BAD, ("NUL", "leave %00 out")),
    "words without end": (
        post("/fine-tunes/query/faas/log/x", {"keywords": ["a"] * 5000}), BAD, ("keywords", "20"),
    ),
    # ids and paths
    "a job that is not there": (get("/fine-tunes/ft-nothing"), LOST, ("ft-nothing", "check the id")),
    "a job that is a path": (get("/fine-tunes/..%2f..%2fapi_key"), LOST, ("no",)),
    "an id with NUL": (get("/fine-tunes/%00"), BAD, ("NUL",)),
    "an id of three thousand letters": (get("/files/" + "a" * 3000), LOST, ("no file",)),
    "a model that is a path above": (get("/models/..%2f..%2fstrop.db"), LOST, ("no",)),
    "an export under a path": (get("/fine-tunes/x/export/last", model_name="../x"), LOST, ("no job 'x'",)),
    "a layer that was never made": (
        get("/fine-tunes/query/faas/layer/status", layer_code="../etc"),
        LOST, ("no layer '../etc'", "create it"),
    ),
    "an address that is none": (get("/fine-tunez"), LOST, ("no route GET /api/v1/fine-tunez",)),
    "a method that is none": (
        lambda server: server.http.patch("/files"), (405, "MethodNotAllowed"), ("PATCH is not allowed",),
    ),
    # zips
    "no zip": (bundle(b"x" * 100), BAD, ("not a readable zip", "PUT the bytes of a zip")),
    "a zip cut off": (bundle(zipped({"a.py": "x" * 500})[:-30]), BAD, ("not a readable zip",)),
    "a zip that leaves its folder": (bundle(packed(("../a.py", b""))), BAD, ("'../a.py' is not a path",)),
    "a zip with an absolute path": (bundle(packed(("/etc/cron.d/x", b""))), BAD, ("is not a path inside",)),
    "a zip with a drive": (bundle(packed(("C:/a.py", b""))), BAD, ("is not a path inside",)),
    "a zip with a link": (
        bundle(packed((special("a", stat.S_IFLNK | 0o777), b"/etc/passwd"))),
        BAD, ("'a' is a link", "its target"),
    ),
    "a zip with a device": (bundle(packed((special("a", stat.S_IFCHR), b""))), BAD, ("neither a file nor",)),
    "a zip with a name twice": (bundle(packed(("a.py", b"1"), ("a.py", b"2"))), BAD, ("holds 'a.py' twice",)),
    "a zip with an end of line in a name": (bundle(packed(("a\n.py", b""))), BAD, ("is not a path inside",)),
    "a zip nested sixty folders deep": (
        bundle(packed(("a/" * 60 + "b.py", b""))), BAD, ("is not a path inside",),
    ),
    "a zip that lies about a size": (bundle(lying_zip()), BAD, ("'a.py'",)),
    "a zip with a table that fills the memory": (
        bundle(crowded_table()), BAD, ("table of contents", "20000"),
    ),
    "a zip of the long form": (bundle(zip64()), BAD, ("ZIP64", "pack it without")),
    "a zip with a password": (bundle(encrypted()), BAD, ("'a.py' is encrypted",)),
    "a zip to another key": (
        at_upload(lambda url: url.replace("reward-1", "reward-2")),
        (401, "InvalidApiKey"), ("ask for a new one",),
    ),
    "a zip too late": (
        at_upload(lambda url: url.replace("expires=1", "expires=0")), (401, "InvalidApiKey"), ("expired",),
    ),
    "a key of an upload that is a path": (
        post("/fine-tunes/generate/faas/upload/url", {"unique_key": "../../x"}),
        BAD, ("unique_key", "1 to 200"),
    ),
    # functions, layers, instances
    "a class that is no name": (function(func="os.system('x')"), BAD, ("func", "not a class name")),
    "a class that is not there": (function(func="Scor"), BAD, ("'Scor'", "did you mean 'Score'?")),
    "code outside the bundle": (function(name="../../x.py"), BAD, ("not a Python file of the bundle",)),
    "code in Latin-1": (function(name="latin.py"), BAD, ("latin.py", "not Python")),
    "code nested beyond the parser": (function(name="deep.py"), BAD, ("deep.py", "not Python")),
    "requirements that read a file": (
        post("/fine-tunes/create/faas/layer", {"requirements_content": "-r /etc/passwd"}),
        (422, "InvalidParameter"), ("points at a file", "name packages"),
    ),
    "requirements that are a book": (
        post("/fine-tunes/create/faas/layer", {"requirements_content": "a\n" * 70_000}),
        (422, "InvalidParameter"), ("140000 characters", "64000"),
    ),
    "an instance of nothing": (
        post("/fine-tunes/online/faas/jobId-1/rw-nothing", {}),
        LOST, ("no function 'rw-nothing'", "register it"),
    ),
    "an instance with no processors": (
        post("/fine-tunes/online/faas/jobId-1/x", {"cpu": -1}), BAD, ("cpu", "greater than or equal to 0.01"),
    ),
    # evaluations
    "an evaluation of two things": (
        post("/evaluations", {**MEASURED, "deployed_model": "b"}),
        BAD, ("name one of model, checkpoint_id and deployed_model, not 2",),
    ),
    "an evaluation that writes to terminals": (
        post("/evaluations", {**MEASURED, "name": "a\x1b[31m"}),
        BAD, ("name", "control"),
    ),
    "an evaluation that is a path": (get("/evaluations/..%2f..%2fapi_key"), LOST, ("no",)),
    # deployments
    "a deployment of nothing": (post("/deployments", {"model_name": "x"}), BAD, ("no model 'x'", "take one")),
    "a deployment of no replicas": (
        post("/deployments", {"model_name": "smollm2-135m", "capacity": 0}), BAD, ("capacity", "1"),
    ),
    "a deployment of a million replicas": (
        post("/deployments", {"model_name": "smollm2-135m", "capacity": 10**6}), BAD, ("capacity", "64"),
    ),
    "a deployment whose suffix is a path": (
        post("/deployments", {"model_name": "smollm2-135m", "suffix": "../a"}), BAD, ("suffix", "pattern"),
    ),
    "a deployment on a plan of nobody": (
        post("/deployments", {"model_name": "smollm2-135m", "plan": "gold"}),
        BAD, ("plan", "mu, cu, lora, ptu"),
    ),
    "a deployment that is scaled and not there": (
        lambda server: server.http.put("/deployments/x/scale", json={"capacity": 2}),
        LOST, ("no deployment 'x'",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS)
def test_bad_input_is_refused_with_its_status_its_place_and_a_way_on(server: Server, row: str) -> None:
    send, (status, code), words = ROWS[row]
    reply = send(server)
    assert reply.headers["content-type"] == "application/json"
    told = reply.json()
    assert (reply.status_code, told["code"]) == (status, code), told
    assert told["request_id"] == reply.headers["x-request-id"]
    for word in words:
        assert word in told["message"], told["message"][:2000]
    assert len(told["message"]) < 20_000
    assert str(server.home) not in told["message"]


def test_there_are_more_than_sixty_kinds_and_nothing_came_of_them(own_server: Server) -> None:
    assert len(ROWS) >= 100
    for send in [
        ROWS[row][0] for row in ("a setting out of range", "an empty file", "no zip", "rows in UTF-16")
    ]:
        send(own_server)
    assert own_server.get("/fine-tunes")["total"] == 0
    assert list((own_server.home / "jobs").glob("*")) == []
    assert list((own_server.home / "arriving").glob("*")) == []
