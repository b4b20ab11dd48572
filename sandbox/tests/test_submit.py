"""`POST /submit` and the data-set paths: what is accepted, what is told, where cases come from."""

import functools
import gzip
import http.server
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from strop_sandbox.sources import Allowed
from strop_sandbox.test_files import TestFiles

DOUBLE = "Here:\n```python\nprint(int(input()) * 2)\n```\n"


def case(stdin: str, stdout: str) -> dict:
    return {"input": {"stdin": stdin}, "output": {"stdout": stdout}}


CASES = [case("1\n", "2\n"), case("21", "42")]


def test_a_right_program_is_accepted_case_by_case(service) -> None:
    reply = service.submit(DOUBLE, CASES).json()
    assert reply["accepted"] is True
    assert reply["id"] == 7
    assert reply["extracted_code"] == "print(int(input()) * 2)"
    assert reply["extracted_type"] == "fenced"
    assert [test["passed"] for test in reply["tests"]] == [True, True]
    assert reply["tests"][0]["test_info"] == case("1\n", "2\n")
    assert reply["tests"][1]["exec_info"]["run_result"]["stdout"] == "42\n"


@pytest.mark.parametrize("more", [{}, {"extra": {"run_all_cases": True}}])
def test_the_first_wrong_case_ends_it_unless_all_are_wanted(service, more: dict) -> None:
    cases = [case(str(n), "4" if n == 3 else str(2 * n)) for n in range(6)]
    reply = service.submit(DOUBLE, cases, **more).json()
    assert reply["accepted"] is False
    expected = [True, True, True, False] + ([True, True] if more else [])
    assert [test["passed"] for test in reply["tests"]] == expected


def test_a_program_is_compiled_once_for_all_its_cases(service) -> None:
    code = (
        "```cpp\n#include <iostream>\nint main() { int n; std::cin >> n; std::cout << __TIME__ << n; }\n```"
    )
    reply = service.submit(
        code, [case(str(n), "x") for n in range(12)], "cpp", extra={"run_all_cases": True}
    ).json()
    said = {test["exec_info"]["run_result"]["stdout"][:8] for test in reply["tests"]}
    compiled = {test["exec_info"]["compile_result"]["execution_time"] for test in reply["tests"]}
    assert len(reply["tests"]) == 12
    assert len(said) == len(compiled) == 1


def test_the_memory_told_is_each_case_s_own_and_not_the_compiler_s(service) -> None:
    code = (
        "```cpp\n#include <iostream>\n#include <vector>\nint main() { int n; std::cin >> n;"
        " std::vector<char> held(n << 20, 1); std::cout << n; }\n```"
    )
    wanted = [0, 60, 5, 30, 0, 60, 5]
    cases = [case(str(n), str(n)) for n in wanted]
    tests = service.submit(code, cases, "cpp", extra={"run_all_cases": True}).json()["tests"]
    assert [test["passed"] for test in tests] == [True] * 7, tests
    assert tests[0]["exec_info"]["compile_result"]["memory_MB"] > 50
    told = [test["exec_info"]["run_result"]["memory_MB"] for test in tests]
    assert all(n <= used < n + 20 for n, used in zip(wanted, told, strict=True)), told


def test_a_case_out_of_memory_costs_no_other_case_its_verdict(service) -> None:
    fill = (
        "```python\nn = int(input())\nif n == 1:\n    for name in 'ab':\n        with open(f'/tmp/{name}', 'wb') as f:\n"
        "            for _ in range(200): f.write(b'x' * (1 << 20))\n    x = bytearray(900 << 20)\nprint(n)\n```"
    )
    cases = [case(str(n), str(n)) for n in range(4)]
    reply = service.submit(fill, cases, extra={"run_all_cases": True}).json()
    assert [test["passed"] for test in reply["tests"]] == [True, False, True, True]
    assert reply["tests"][1]["exec_info"]["run_result"]["reason"] == "memory_limit"


def test_what_does_not_compile_is_one_failed_case(service) -> None:
    reply = service.submit("```cpp\nint main() { ? }\n```", CASES, "cpp").json()
    assert reply["accepted"] is False
    assert [test["passed"] for test in reply["tests"]] == [False]
    assert reply["tests"][0]["exec_info"]["run_result"] is None


@pytest.mark.parametrize("test", [json.dumps(CASES), [{"type": "StandardIO", "data": one} for one in CASES]])
def test_cases_may_be_json_in_a_string_or_wrapped(service, test) -> None:
    assert service.submit(DOUBLE, test).json()["accepted"] is True


@pytest.mark.parametrize(
    ("test", "word"),
    [([], "no case"), ("[]", "no case"), ("nonsense", "JSON"), ({"a": 1}, "list"),
     ([{"input": {"stdin": "1"}}], "case 0"),
     ([{"type": "Interactive", "data": {}}], "Interactive"), (None, "list")],
)  # fmt: skip
def test_tests_that_cannot_be_meant_are_refused_and_never_accepted(service, test, word: str) -> None:
    reply = service.submit(DOUBLE, test)
    assert reply.status_code == 400
    assert word in reply.json()["detail"]


def test_letters_of_either_case_agree_unless_strict(service) -> None:
    shout = "```python\nprint('YES')\n```"
    test = [case("", "yes")]
    assert service.submit(shout, test).json()["accepted"] is True
    assert service.submit(shout, test, extra={"strict": True}).json()["accepted"] is False


def test_a_tolerance_may_be_asked_for(service) -> None:
    third = "```python\nprint(0.33)\n```"
    test = [case("", "0.3333")]
    assert service.submit(third, test).json()["accepted"] is False
    assert service.submit(third, test, extra={"float_tolerance": 0.02}).json()["accepted"] is True


CHECKER = """\
import sys
given, said, _ = (open(name).read().split() for name in sys.argv[1:])
a, b = map(int, said)
sys.exit(0 if a + b == int(given[0]) and a != b else 1)
"""


def test_a_judge_decides_where_many_answers_are_right(service) -> None:
    extra = {"checker": {"language": "python", "code": CHECKER}}
    test = [case("10\n", "any")]
    assert (
        service.submit("```python\nprint(int(input()) - 1, 1)\n```", test, extra=extra).json()["accepted"]
        is True
    )
    assert service.submit("```python\nprint(5, 5)\n```", test, extra=extra).json()["accepted"] is False


def test_a_judge_is_compiled_once_for_all_cases(service, monkeypatch: pytest.MonkeyPatch) -> None:
    from strop_sandbox.programs import Program

    compiled = []
    prepare = Program.prepare

    async def counted(program, box):
        compiled.append(program)
        return await prepare(program, box)

    monkeypatch.setattr(Program, "prepare", counted)
    judge = (
        "#include <stdio.h>\nint main(int n, char **names) { int a, b;"
        ' fscanf(fopen(names[1], "r"), "%d", &a); fscanf(fopen(names[2], "r"), "%d", &b); return b != 2 * a; }'
    )
    extra = {"checker": {"language": "c", "code": judge}, "run_all_cases": True}
    reply = service.submit(DOUBLE, [case(str(n), "any") for n in range(5)], extra=extra).json()
    assert [test["passed"] for test in reply["tests"]] == [True] * 5
    assert len(compiled) == 2  # the program and its judge


def test_a_judge_that_fails_is_no_verdict(service) -> None:
    reply = service.submit(DOUBLE, CASES, extra={"checker": {"code": "1/0"}})
    # 1 is testlib's word for wrong, and Python's for an uncaught exception: a judge must not die of one.
    assert reply.json()["accepted"] is False
    reply = service.submit(DOUBLE, CASES, extra={"checker": {"code": "import sys; sys.exit(3)"}})
    assert reply.status_code == 400
    assert "checker" in reply.json()["detail"]


@pytest.mark.parametrize(
    "extra",
    [{"strict": "yes"}, {"float_tolerance": 2}, {"strict": True, "float_tolerance": 0.1}, {"checker": "code"},
     {"checker": {"code": "1"}, "strict": True}],
)  # fmt: skip
def test_options_that_cannot_be_meant_are_refused(service, extra: dict) -> None:
    assert service.submit(DOUBLE, CASES, extra=extra).status_code == 400


def test_a_caller_s_own_extraction_runs_in_a_box(service) -> None:
    logic = (
        "import os\n"
        "found = completion.split('CODE:')[1]\n"
        "submit_code_blocks([CodeBlock(priority=40, code=f'# {os.getcwd()}\\n' + found, language='python')])"
    )
    reply = service.submit("CODE:print(int(input()) * 2)", CASES, custom_extract_logic=logic).json()
    assert reply["accepted"] is True
    assert reply["extracted_code"].startswith("# /tmp/box")
    assert service.submit(DOUBLE, CASES, custom_extract_logic="1/0").status_code == 400


@pytest.mark.parametrize("rubbish", ["no json", "{}", "[[1, 2]]", '[["x", "a", "b"]]', "[1]"])
def test_rubbish_where_extraction_leaves_its_blocks_is_a_400(service, rubbish: str) -> None:
    logic = f"import os\nopen('blocks.json', 'w').write({rubbish!r})\nos._exit(0)"
    reply = service.submit(DOUBLE, CASES, custom_extract_logic=logic)
    assert reply.status_code == 400
    assert "not a list of code blocks" in reply.json()["detail"]


def test_a_file_of_cases_is_read_once_for_a_group(service) -> None:
    path = service.tests / "cases.json"
    path.write_text(json.dumps([{"type": "StandardIO", "data": case(str(n), str(2 * n))} for n in range(5)]))
    before = service.test_files.num_fetched
    test = {"location": "URL", "url": f"file://{path}"}
    with ThreadPoolExecutor(6) as group:
        replies = list(group.map(lambda _: service.submit(DOUBLE, test).json(), range(6)))
    assert [one["accepted"] for one in replies] == [True] * 6
    assert [len(one["tests"]) for one in replies] == [5] * 6
    assert service.test_files.num_fetched == before + 1


@pytest.mark.parametrize(
    ("url", "word"),
    [("file:///etc/passwd", "may not be read"), ("http://127.0.0.1:1/x", "not public"),
     ("http://localhost/x", "not public"), ("http://169.254.169.254/latest/meta-data", "not public"),
     ("http://[::1]/x", "not public"), ("ftp://x/y", "may not"),
     ("http://10.0.0.1/x", "not public"), ("http://2130706433/x", "not public")],
)  # fmt: skip
def test_urls_into_the_server_s_own_world_are_refused(service, url: str, word: str) -> None:
    reply = service.submit(DOUBLE, {"location": "URL", "url": url})
    assert reply.status_code == 400
    assert word in reply.json()["detail"]


def test_a_path_that_climbs_out_of_an_allowed_folder_is_refused(service) -> None:
    reply = service.submit(DOUBLE, {"location": "URL", "url": f"file://{service.tests}/../../etc/passwd"})
    assert reply.status_code == 400


class _Web:
    """A web server of one folder that counts, gives ETags and can redirect."""

    def __init__(self, folder) -> None:
        web = self
        self.asked: list[tuple[str, str | None]] = []

        class Handler(http.server.SimpleHTTPRequestHandler):
            def do_GET(self) -> None:
                web.asked.append((self.path, self.headers.get("If-None-Match")))
                if self.path.startswith("/to/"):
                    self.send_response(302)
                    self.send_header(
                        "Location", f"http://localhost:{self.server.server_port}/{self.path[4:]}"
                    )
                    self.end_headers()
                    return
                content = (folder / self.path.strip("/")).read_bytes()
                tag = f'"{hash(content)}"'
                self.send_response(304 if self.headers.get("If-None-Match") == tag else 200)
                self.send_header("ETag", tag)
                packed = self.path.rpartition(".")[2].split("-")
                if packed[0] == "gzip":
                    self.send_header("Content-Encoding", ", ".join(packed))
                self.end_headers()
                if self.headers.get("If-None-Match") != tag:
                    self.wfile.write(content)

            def log_message(self, *_: object) -> None: ...

        self.server = http.server.ThreadingHTTPServer(
            ("127.0.0.1", 0), functools.partial(Handler, directory=str(folder))
        )
        self.port = self.server.server_port

    def __enter__(self):
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


async def test_what_is_sent_packed_is_unpacked_by_the_piece_and_never_twice(tmp_path) -> None:
    from strop_sandbox.errors import RequestError, TooLargeError, UnavailableError

    content = json.dumps([*CASES, case("x" * 3_000_000, "")]).encode()
    bomb = gzip.compress(b" " * (64 << 20))
    (tmp_path / "cases.gzip").write_bytes(gzip.compress(content))
    (tmp_path / "bomb.gzip").write_bytes(bomb)
    (tmp_path / "bomb.gzip-gzip").write_bytes(gzip.compress(bomb))
    (tmp_path / "two.gzip").write_bytes(gzip.compress(content[:50]) + gzip.compress(content[50:]))
    (tmp_path / "more.gzip").write_bytes(gzip.compress(content) + b"more" * 1000)
    (tmp_path / "short.gzip").write_bytes(gzip.compress(content)[:-100])
    (tmp_path / "plain.gzip").write_bytes(content)
    with _Web(tmp_path) as web:
        files = TestFiles(Allowed(hosts=(f"127.0.0.1:{web.port}",), max_bytes=4_000_000))
        url = f"http://127.0.0.1:{web.port}"
        taken = await files.take(f"{url}/cases.gzip")
        assert [len(taken.cases), len(taken.cases[2].stdin)] == [3, 3_000_000]
        twice = await files.take(f"{url}/two.gzip")
        assert twice.sha256 == taken.sha256
        files.release(twice)
        for name, error, word in (
            ("bomb.gzip", TooLargeError, "max-test-mb"),
            ("bomb.gzip-gzip", RequestError, "compressed as 'gzip, gzip'"),
            ("short.gzip", UnavailableError, "cut short"),
            ("plain.gzip", RequestError, "not valid gzip"),
            ("more.gzip", RequestError, "not valid gzip"),
        ):
            with pytest.raises(error, match=word):
                await files.take(f"{url}/{name}")
        files.release(taken)
        files.close()


async def test_a_source_is_asked_again_by_etag_and_followed_only_to_allowed_hosts(tmp_path) -> None:
    from strop_sandbox.errors import RequestError, TooLargeError

    (tmp_path / "cases.json").write_text(json.dumps(CASES))
    with _Web(tmp_path) as web:
        files = TestFiles(Allowed(hosts=(f"127.0.0.1:{web.port}",), max_bytes=10_000), fresh_s=0.0)
        url = f"http://127.0.0.1:{web.port}/cases.json"
        taken = [await files.take(url)]
        first = taken[0].cases
        assert (len(first), first[1].stdin, first[1].stdout) == (2, "21", "42")
        taken.append(await files.take(url))
        assert taken[1].cases is first
        assert [etag is None for _, etag in web.asked] == [True, False]
        (tmp_path / "cases.json").write_text(json.dumps([*CASES, case("1", "2")]))
        taken.append(await files.take(url))
        assert len(taken[2].cases) == 3
        assert len(first) == 2
        assert first[0].stdin == "1\n"  # a file in use outlives its successor's coming
        with pytest.raises(RequestError, match="localhost"):
            await files.take(f"http://127.0.0.1:{web.port}/to/cases.json")
        (tmp_path / "large.json").write_text(json.dumps([case("x" * 20_000, "y")]))
        with pytest.raises(TooLargeError):
            await files.take(f"http://127.0.0.1:{web.port}/large.json")
        (tmp_path / "broken.json").write_text('[{"input": ')
        with pytest.raises(RequestError, match="JSON"):
            await files.take(f"http://127.0.0.1:{web.port}/broken.json")
        for entry in taken:
            files.release(entry)
        files.close()


def test_data_sets_of_the_folder_are_listed_and_asked(service) -> None:
    post = service.client.post
    assert service.client.get("/list_datasets").json() == ["sums"]
    assert post("/list_ids", json={"dataset": "sums", "config": {}}).json() == [1, 2]
    assert (
        post("/get_prompts", json={"dataset": "sums", "config": {}, "offset": 1, "limit": 1}).json()[0]["id"]
        == 2
    )
    prompt = post("/get_prompt_by_id", json={"dataset": "sums", "id": 1, "config": {}}).json()
    assert prompt == {"id": 1, "prompt": "Read two numbers, print their sum.", "labels": {"level": 1}}
    body = {
        "dataset": "sums",
        "id": 1,
        "config": {"language": "python"},
        "completion": "```\nprint(sum(map(int, input().split())))\n```",
    }
    assert post("/submit", json=body).json()["accepted"] is True


@pytest.mark.parametrize(
    ("path", "body", "word"),
    [("/submit", {"dataset": "x", "id": 1, "completion": "", "config": {}}, "no eval class found"),
     ("/submit", {"id": 1, "completion": "", "config": {"dataset_type": "Nothing"}}, "no eval class found"),
     ("/submit", {"dataset": "sums", "id": 9, "completion": "", "config": {}}, "no problem 9"),
     ("/submit", {"dataset": "sums", "id": 1, "completion": "", "config": {}}, "config.language"),
     ("/submit", {"id": 1, "completion": "", "config": {"provided_data": []}}, "list"),
     ("/get_prompts", {"dataset": "x", "config": {"provided_data": {}}}, "list")],
)  # fmt: skip
def test_what_there_is_not_is_a_400_with_its_reason(service, path: str, body: dict, word: str) -> None:
    reply = service.client.post(path, json=body)
    assert reply.status_code == 400
    assert word in reply.json()["detail"]


AUTO = {
    "id": 3,
    "content": "?",
    "labels": {"programming_language": "python"},
    "test": {"code": "#<INSERT>\nassert add(2, 3) == 5"},
}
ADD = "```python\ndef add(a, b):\n    return a + b\nif __name__ == '__main__':\n    print(add(1, 1))\n```"


def auto(service, completion: str, kind: str = "AutoEvalDataset", **extra) -> dict:
    config = {"dataset_type": kind, "provided_data": AUTO, "extra": extra}
    return service.client.post("/submit", json={"id": 3, "completion": completion, "config": config}).json()


def test_a_program_s_functions_are_put_into_the_test(service) -> None:
    reply = auto(service, ADD)
    assert reply["accepted"] is True
    assert "__main__" not in reply["full_code"]
    assert auto(service, ADD.replace("+", "-"))["accepted"] is False
    assert auto(service, ADD, "AutoEvalV5Dataset")["accepted"] is True


def test_leaving_before_the_test_passes_only_without_the_flag(service) -> None:
    leave = "```python\nimport sys\nsys.exit(0)\ndef add(a, b): ...\n```"
    assert auto(service, leave)["accepted"] is True
    assert auto(service, leave, append_flag=True)["accepted"] is False
    told = auto(service, ADD, append_flag=True)
    assert told["accepted"] is True
    assert told["full_code"].endswith("assert add(2, 3) == 5")
    show = "for name in glob.glob('*.py'): print(open(name).read())"
    read = f"```python\nimport glob, os\n{show}\nos.lseek(0, 0, 0); print(os.read(0, 99), flush=True)\nos._exit(0)\n```"
    assert auto(service, read, append_flag=True)["accepted"] is False


JEST_TEST = """
describe("sums", () => {
  test("small", () => { expect(add(2, 3)).toBe(5) });
  test("large", () => { expect(add(2, 300)).toBe(5) });
});
"""


def test_cases_of_jest_are_told_one_by_one(service) -> None:
    if "jest" not in service.sandbox.toolchains.found:
        pytest.skip(service.sandbox.toolchains.missing["jest"])
    labels = {"programming_language": "javascript", "execution_language": "jest"}
    problem = {"id": 1, "content": "?", "labels": labels, "test": {"code": JEST_TEST}}
    config = {"dataset_type": "AutoEvalDataset", "provided_data": problem}
    completion = "```javascript\nconst add = (a, b) => a + b;\n```"
    body = {"id": 1, "completion": completion, "config": config}
    told = service.client.post("/submit", json=body).json()
    cases = told["extra"]["jest_cases"]
    assert (told["accepted"], [case["passed"] for case in cases]) == (False, [True, False])
    assert [case["full_name"] for case in cases] == ["sums small", "sums large"]
    assert (cases[0]["suite"], cases[0]["test"], cases[0]["failure_messages"]) == ("sums", "small", [])
    assert "302" in cases[1]["failure_messages"][0]
