import hashlib

import pytest

from fakes.server import ROWS, json_lines


def test_a_file_is_stored_listed_told_and_deleted(own_server):
    content = json_lines(ROWS)
    file_id = own_server.upload_rows()
    told = own_server.http.get(f"/files/{file_id}").json()["data"]
    assert told["name"] == "train.jsonl"
    assert told["size"] == len(content)
    assert told["sha256"] == hashlib.sha256(content).hexdigest()
    assert told["md5"] == hashlib.md5(content).hexdigest()
    assert told["purpose"] == "fine-tune"
    second = own_server.upload_rows(b'{"a": 1}\n', name="other.jsonl")
    listed = own_server.http.get("/files", params={"page_no": 1, "page_size": 1}).json()["data"]
    assert (listed["total"], [one["file_id"] for one in listed["files"]]) == (2, [second])
    assert own_server.http.delete(f"/files/{file_id}").status_code == 200
    assert own_server.http.get(f"/files/{file_id}").status_code == 404
    assert own_server.http.delete(f"/files/{file_id}").status_code == 404


def test_the_purpose_defaults_and_descriptions_are_kept(server):
    reply = server.http.post(
        "/files", files=[("descriptions", (None, "my desc")), ("files", ("a.jsonl", b"{}\n"))]
    )
    (made,) = reply.json()["data"]["uploaded_files"]
    assert reply.json()["data"]["failed_uploads"] == []
    told = server.http.get(f"/files/{made['file_id']}").json()["data"]
    assert (told["purpose"], told["description"]) == ("fine-tune", "my desc")


def test_equal_contents_share_a_blob_until_the_last_file_has_gone(own_server):
    first, second = own_server.upload_rows(), own_server.upload_rows(name="again.jsonl")
    blobs = [path for path in (own_server.home / "blobs" / "files").rglob("*") if path.is_file()]
    assert len(blobs) == 1
    own_server.http.delete(f"/files/{first}")
    assert blobs[0].is_file()
    own_server.http.delete(f"/files/{second}")
    assert not blobs[0].exists()


def test_several_files_come_in_one_request(server):
    reply = server.http.post("/files", files=[("files", (f"{n}.jsonl", b"{}\n")) for n in range(3)])
    assert [one["name"] for one in reply.json()["data"]["uploaded_files"]] == [
        "0.jsonl",
        "1.jsonl",
        "2.jsonl",
    ]


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\data\\train.jsonl", "train.jsonl"),
        ("数据.jsonl", "数据.jsonl"),
    ],
)
def test_no_name_is_a_path(server, name, kept):
    file_id = server.upload_rows(b"{}\n", name=name)
    assert server.http.get(f"/files/{file_id}").json()["data"]["name"] == kept


def test_what_is_no_upload_is_refused_with_its_reason(server):
    cases = [
        (server.http.post("/files", json={}), "expected multipart/form-data"),
        (
            server.http.post("/files", data={"purpose": "fine-tune"}, files={"x": ("a", b"b")}),
            "no file in the request",
        ),
        (server.http.post("/files", files={"files": ("a.jsonl", b"")}), "empty: a.jsonl"),
        (server.http.post("/files", files={"files": ("..", b"x")}), "a file without a name"),
        (server.http.post("/files", files={"files": ("x" * 300, b"x")}), "a file name of 300 characters"),
        (
            server.http.post("/files", files={"files": ("a", b"x")}, data={"purpose": "evil"}),
            "purpose: found 'evil'",
        ),
        (server.http.get("/files", params={"page_no": 0}), "page_no"),
        (server.http.get("/files", params={"page_size": 101}), "page_size"),
        (server.http.get("/files", params={"page_no": "x"}), "page_no"),
    ]
    for reply, words in cases:
        assert (reply.status_code, reply.json()["code"]) == (400, "InvalidParameter"), words
        assert words in reply.json()["message"]


def test_a_broken_multipart_body_is_a_400(server):
    headers = {"content-type": "multipart/form-data; boundary=abc"}
    reply = server.http.post("/files", content=b"--abc\r\nbroken", headers=headers)
    assert (reply.status_code, reply.json()["code"]) == (400, "InvalidParameter")
    reply = server.http.post("/files", content=b"x", headers={"content-type": "multipart/form-data"})
    assert reply.status_code == 400
