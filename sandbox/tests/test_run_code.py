"""`POST /run_code`: fields, states and files as SandboxFusion has them, and what it tells beyond."""

import base64
import json
import os
import time
from pathlib import Path

import pytest

from strop_sandbox.box import BoxError
from strop_sandbox.languages import LANGUAGES


def test_a_program_that_ends_well_is_a_success_with_its_output(service) -> None:
    reply = service.run("print(int(input()) + 1)", stdin="65535")
    assert reply["status"] == "Success"
    assert reply["message"] == ""
    assert reply["compile_result"] is None
    assert reply["files"] == {}
    ran = reply["run_result"]
    assert (ran["status"], ran["return_code"], ran["stdout"], ran["stderr"]) == ("Finished", 0, "65536\n", "")
    assert 0 <= ran["cpu_time"] < 5


def test_an_uncaught_exception_is_failed_with_its_traceback_as_an_interpreter_prints_it(service) -> None:
    ran = service.run("def f():\n    assert 1 == 2\nf()")["run_result"]
    assert ran["return_code"] == 1
    lines = ran["stderr"].splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1] == '  File "/tmp/box/main.py", line 3, in <module>'
    assert lines[-1] == "AssertionError"


def test_a_syntax_error_is_told_as_such(service) -> None:
    reply = service.run("int a = 1")
    assert reply["status"] == "Failed"
    assert reply["run_result"]["status"] == "Finished"
    assert "SyntaxError: invalid syntax" in reply["run_result"]["stderr"]
    assert "Traceback" not in reply["run_result"]["stderr"]


@pytest.mark.parametrize(
    ("code", "expected"), [("raise SystemExit(3)", 3), ("import os; os._exit(4)", 4), ("exit()", 0)]
)
def test_exit_codes_come_through(service, code: str, expected: int) -> None:
    assert service.run(code)["run_result"]["return_code"] == expected


def test_what_runs_at_exit_runs_and_threads_are_waited_for(service) -> None:
    code = (
        "import atexit, threading, time\n"
        "atexit.register(print, 'last')\n"
        "threading.Thread(target=lambda: (time.sleep(0.05), print('thread'))).start()\n"
        "print(__name__, end=' ')"
    )
    assert service.run(code)["run_result"]["stdout"] == "__main__ thread\nlast\n"


def test_sleep_past_the_limit_is_a_time_limit_and_keeps_what_was_printed(service) -> None:
    reply = service.run("print('so far', flush=True)\nimport time; time.sleep(30)", run_timeout=0.3)
    ran = reply["run_result"]
    assert reply["status"] == "Failed"
    assert (ran["status"], ran["return_code"], ran["stdout"]) == ("TimeLimitExceeded", None, "so far\n")
    assert ran["reason"] == "wall_time_limit"


def test_computing_past_the_limit_is_a_time_limit_too(service) -> None:
    ran = service.run("while True: pass", run_timeout=0.3)["run_result"]
    assert (ran["status"], ran["reason"]) == ("TimeLimitExceeded", "cpu_time_limit")
    assert ran["cpu_time"] > 0.15


def test_children_count_against_the_time_of_their_program(service) -> None:
    code = "import os\nfor _ in range(3):\n    os.fork()\nwhile True: pass"
    ran = service.run(code, run_timeout=0.5)["run_result"]
    assert ran["reason"] == "cpu_time_limit"
    assert ran["execution_time"] < 5


LOADED = "import os, time\nos.sched_setaffinity(0, {{min(os.sched_getaffinity(0))}})\nwhile time.process_time() < {}: pass\nprint(1)"
"""Computes for so many seconds on the one processor that all such programs share."""


def test_a_verdict_under_load_is_the_verdict_alone(service) -> None:
    """Six at a time on one processor: each takes more wall time than its limit, and none more of its own."""
    from concurrent.futures import ThreadPoolExecutor

    within = {"code": LOADED.format(0.15), "run_timeout": 0.5}
    beyond = {"code": LOADED.format(60), "run_timeout": 0.1}
    asked = [within, within, beyond, within, within, within] * 3
    alone = {one["code"]: service.run(**one) for one in (within, beyond)}
    assert [reply["status"] for reply in alone.values()] == ["Success", "Failed"]
    with ThreadPoolExecutor(len(asked)) as callers:
        replies = list(callers.map(lambda one: service.run(**one), asked))
    for one, reply in zip(asked, replies, strict=True):
        for part in ("status", "return_code", "stdout", "reason"):
            assert reply["run_result"][part] == alone[one["code"]]["run_result"][part], reply
    walls = [
        reply["run_result"]["execution_time"]
        for one, reply in zip(asked, replies, strict=True)
        if one is within
    ]
    assert max(walls) > within["run_timeout"]


def test_memory_beyond_the_limit_ends_the_program_and_is_told_apart(service) -> None:
    ran = service.run("x = bytearray(400 << 20); print(len(x))", memory_limit_MB=100)["run_result"]
    assert ran["reason"] == "memory_limit"
    assert (ran["status"], ran["return_code"], ran["stdout"]) == ("Finished", -9, "")
    assert service.run("x = bytearray(40 << 20); print(len(x))", memory_limit_MB=100)["status"] == "Success"


def test_more_memory_than_the_server_gives_is_refused_with_what_to_do(service) -> None:
    body = {"code": "1", "language": "python", "memory_limit_MB": 10**6}
    reply = service.client.post("/run_code", json=body)
    assert reply.status_code == 400
    assert "--memory-mb" in reply.json()["detail"]


def test_a_death_by_signal_is_a_negative_code_and_its_name(service) -> None:
    ran = service.run("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")["run_result"]
    assert (ran["return_code"], ran["signal"], ran["reason"]) == (-11, "SIGSEGV", "")


def test_output_without_end_is_drained_and_cut(service) -> None:
    ran = service.run("import sys\nfor _ in range(3000): sys.stdout.write('x' * 10000)")["run_result"]
    assert (ran["status"], ran["return_code"]) == ("Finished", 0)
    assert len(ran["stdout"]) == 1 << 20
    assert ran["stdout_bytes"] == 30_000_000


def test_a_program_that_reads_no_input_is_at_no_fault(service) -> None:
    assert service.run("print(1)", stdin="x" * 5_000_000)["status"] == "Success"


def test_output_that_is_no_text_comes_with_replacement_marks(service) -> None:
    ran = service.run(r"import sys; sys.stdout.buffer.write(b'a\xff\xfeb')")["run_result"]
    assert ran["stdout"] == "a\ufffd\ufffdb"


def test_files_go_in_and_come_out(service) -> None:
    reply = service.run(
        'print(open("dir1/dir2/secret").read())\n'
        'open("a.txt", "w").write("made"); open("/mnt/b", "w").write("there")',
        files={"dir1/dir2/secret": base64.b64encode(b"hello").decode(), "none": None},
        fetch_files=["a.txt", "/mnt/b", "missing"],
    )
    assert reply["run_result"]["stdout"] == "hello\n"
    files = {name: base64.b64decode(content) for name, content in reply["files"].items()}
    assert files == {"a.txt": b"made", "/mnt/b": b"there"}


@pytest.mark.parametrize("name", ["../x", "a/../../x", "", "..", "d/"])
def test_names_that_lead_out_of_the_working_directory_are_refused(service, name: str) -> None:
    body = {"code": "1", "language": "python", "files": {name: "eA=="}}
    reply = service.client.post("/run_code", json=body)
    assert reply.status_code == 400
    assert "files" in reply.json()["detail"]


def test_content_that_is_no_base64_is_refused(service) -> None:
    reply = service.client.post("/run_code", json={"code": "1", "language": "python", "files": {"a": "%%%"}})
    assert reply.status_code == 400
    assert "'a'" in reply.json()["detail"]


def test_a_body_that_is_no_request_is_422(service) -> None:
    for body in (
        {"code": "1"},
        {"code": "1", "language": "klingon"},
        {"code": "1", "language": "python", "run_timeout": 0},
    ):
        assert service.client.post("/run_code", json=body).status_code == 422


def test_a_language_of_the_reference_that_is_not_here_is_told_with_what_runs(service) -> None:
    reply = service.run("x", "verilog")
    assert reply["status"] == "SandboxError"
    assert "no 'verilog' programs" in reply["message"]
    assert "python" in reply["message"]


HELLO = {
    "python": "print(int(input()) * 2)",
    "c": '#include <stdio.h>\nint main() { int n; scanf("%d", &n); printf("%d\\n", n * 2); }',
    "cpp": "#include <iostream>\nint main() { int n; std::cin >> n; std::cout << n * 2 << std::endl; }",
    "java": (
        "import java.util.*;\npublic class Main { public static void main(String[] a) {"
        " System.out.println(new Scanner(System.in).nextInt() * 2); } }"
    ),
    "nodejs": "process.stdin.on('data', d => console.log(parseInt(d) * 2))",
    "typescript": "process.stdin.on('data', (d: Buffer) => { const n: number = +d; console.log(n * 2) })",
    "go": 'package main\nimport "fmt"\nfunc main() { var n int; fmt.Scan(&n); fmt.Println(n * 2) }',
    "rust": (
        "use std::io;\nfn main() { let mut s = String::new(); io::stdin().read_line(&mut s).unwrap();"
        ' let n: i32 = s.trim().parse().unwrap(); println!("{}", n * 2); }'
    ),
    "bash": "read n; echo $((n * 2))",
    "php": '<?php echo intval(fgets(STDIN)) * 2, "\\n";',
    "ruby": "puts gets.to_i * 2",
    "perl": 'my $n = <STDIN>; print $n * 2, "\\n";',
    "lua": "print(io.read('n') * 2)",
    "R": "n <- scan(file('stdin'), quiet = TRUE)\ncat(n * 2, '\\n')",
    "sql": "create table t(n); insert into t values (21); select n * 2 from t;",
    "pytest": "def test_it():\n    assert 21 * 2 == 42",
    "junit": (
        "import org.junit.jupiter.api.Test;\nimport static org.junit.jupiter.api.Assertions.*;\n"
        "public class Doubled { static int twice(int n) { return n * 2; } }\n"
        "class DoubledTest { @Test void doubles() { assertEquals(42, Doubled.twice(21)); } }"
    ),
    "jest": (
        "import { test, expect } from '@jest/globals';\n"
        "test('doubles', () => { const n: number = 21; expect(n * 2).toBe(42) })"
    ),
    "go_test": (
        'package main\nimport "testing"\nfunc TestDouble(t *testing.T) { if 21*2 != 42 { t.Fatal("no") } }'
    ),
}

BROKEN = {
    "c": "int main() { return x; }",
    "cpp": "int main() { object i = ?; }",
    "java": "public class Main { public static void main(String[] a) { System.uto.println(1); } }",
    "typescript": "const = 3",
    "go": "package main\nfunc main() { x }",
    "rust": 'fn main() { let x: u32 = "no"; }',
}

WRONG = {
    "pytest": "def test_it():\n    assert 21 * 2 == 43",
    "junit": HELLO["junit"].replace("n * 2", "n * 3"),
    "jest": HELLO["jest"].replace("toBe(42)", "toBe(43)"),
    "sql": "select * from nothing;",
    "bash": "if [",
    "lua": "error('no')",
    "R": "stopifnot(1 == 0)",
    "perl": "die 'no'",
    "ruby": "raise 'no'",
    "php": "<?php trigger_error('Custom', E_USER_ERROR);",
    "nodejs": "require('assert').strictEqual(1, 2)",
}


REQUIRED = os.environ.get("STROP_TEST_PROGRAMS") == "required"
"""Then all that `.ci/debian-packages` names is there."""

NOT_NAMED = ("jest", "rust")
"""Languages whose tools it does not name."""


def here(service, language: str) -> None:
    if language not in service.sandbox.toolchains.found and (language in NOT_NAMED or not REQUIRED):
        pytest.skip(service.sandbox.toolchains.missing[language])


@pytest.mark.parametrize("language", [one.name for one in LANGUAGES])
def test_every_language_of_the_table_reads_and_prints(service, language: str) -> None:
    here(service, language)
    reply = service.run(HELLO[language], language, stdin="21\n")
    assert reply["status"] == "Success", reply
    assert language in ("pytest", "junit", "jest", "go_test") or reply["run_result"]["stdout"].strip() == "42"


@pytest.mark.parametrize(
    "code",
    [
        "class A { public static void main(String[] a) { System.out.println(42); } }",
        "package x.y;\npublic class A { public static void main(String[] a) { System.out.println(new B().n); } }\n"
        "class B { int n = 42; }",
        "public class Tool { static int n = 42; }\nclass Run { public static void main(String[] a) { System.out.println(Tool.n); } }",
    ],
    ids=["no public class", "a package", "another class is public"],
)
def test_a_java_program_is_found_whatever_its_class_is_called(service, code: str) -> None:
    if "java" not in service.sandbox.toolchains.found and not REQUIRED:
        pytest.skip(service.sandbox.toolchains.missing["java"])
    told = service.run(code, "java", compile_timeout=60)
    assert (told["status"], told["run_result"]["stdout"]) == ("Success", "42\n"), told


def test_a_number_of_any_length_is_printed_also_by_another_interpreter(service) -> None:
    code = "import subprocess, sys\nprint(len(str(10 ** 5000)), flush=True)\n"
    code += "subprocess.run([sys.executable, '-c', 'print(int(\"9\" * 5000) % 10)'])"
    assert service.run(code)["run_result"]["stdout"] == "5001\n9\n"


@pytest.mark.parametrize("language", sorted(BROKEN))
def test_what_does_not_compile_is_not_run(service, language: str) -> None:
    here(service, language)
    reply = service.run(BROKEN[language], language)
    assert reply["status"] == "Failed"
    assert reply["compile_result"]["status"] == "Finished"
    assert reply["compile_result"]["return_code"] != 0
    assert reply["run_result"] is None


@pytest.mark.parametrize("language", sorted(WRONG))
def test_a_program_that_fails_is_failed_and_finished(service, language: str) -> None:
    here(service, language)
    reply = service.run(WRONG[language], language)
    assert reply["status"] == "Failed", reply
    assert reply["run_result"]["status"] == "Finished"
    assert reply["run_result"]["return_code"] not in (0, None)


def test_a_language_that_lacks_its_tools_says_which(service, monkeypatch: pytest.MonkeyPatch) -> None:
    from strop_sandbox.toolchains import Toolchains

    monkeypatch.setenv("PATH", "/nowhere")
    missing = Toolchains("/usr/bin/python3").missing
    assert "rustc is not installed (Debian: rustc)" in missing["rust"]
    assert "python" not in missing


@pytest.mark.parametrize("link", ["symbolic", "hard"])
def test_rustup_without_a_toolchain_is_no_rust_and_hides_none(
    link: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from strop_sandbox.toolchains import Toolchains

    switch, real = tmp_path / "cargo" / "rustup", tmp_path / "usr" / "rustc"
    for program in (switch, real):
        program.parent.mkdir()
        program.write_text("#!/bin/sh\necho 'error: no default toolchain is configured' >&2\nexit 1\n")
        program.chmod(0o755)
    if link == "symbolic":
        (switch.parent / "rustc").symlink_to(switch)
    else:
        (switch.parent / "rustc").hardlink_to(switch)
    monkeypatch.setenv("PATH", str(switch.parent))
    assert "rustc is not installed (Debian: rustc)" in Toolchains("/usr/bin/python3").missing["rust"]
    monkeypatch.setenv("PATH", f"{switch.parent}{os.pathsep}{real.parent}")
    assert Toolchains("/usr/bin/python3").of("rust").places["rustc"] == str(real)


def test_libraries_of_science_are_there(service) -> None:
    code = (
        "import numpy, pandas, sympy, scipy.special\n"
        "print(numpy.arange(4).sum(), sympy.factorint(12), scipy.special.comb(5, 2))"
    )
    assert service.run(code, run_timeout=30)["run_result"]["stdout"] == "6 {2: 2, 3: 1} 10.0\n"


def test_two_runs_at_once_bind_the_same_port_and_each_reaches_its_own(service) -> None:
    code = (
        "import socket, threading\n"
        "server = socket.create_server(('127.0.0.1', 8765))\n"
        "client = socket.create_connection(('localhost', 8765))\n"
        "peer, _ = server.accept()\n"
        "import time; time.sleep(0.5)\n"
        "peer.sendall(b'mine'); print(client.recv(9).decode())"
    )
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2) as both:
        replies = list(both.map(service.run, [code, code]))
    assert [one["run_result"]["stdout"] for one in replies] == ["mine\n", "mine\n"]


def test_health_and_metrics_tell_what_holds_and_what_was_done(service) -> None:
    service.run("print(1)")
    assert service.client.get("/healthz").json()["facts"]["seccomp"]["holds"] is True
    assert service.client.get("/v1/ping").json() == "pong"
    text = service.client.get("/metrics").text
    assert 'strop_sandbox_runs_total{language="python",verdict="success"}' in text
    assert "strop_sandbox_boxes_ready" in text


def test_a_client_that_leaves_ends_its_program(service) -> None:
    import httpx

    before = service.sandbox.slots.num_running
    with pytest.raises(httpx.ReadTimeout):
        service.client.post(
            "/run_code",
            json={"code": "import time; time.sleep(60)", "language": "python", "run_timeout": 60},
            timeout=1,
        )
    until = time.monotonic() + 20
    while service.sandbox.slots.num_running > before and time.monotonic() < until:
        time.sleep(0.01)
    assert service.sandbox.slots.num_running == before


def test_a_name_to_fetch_that_no_file_can_have_is_a_400(service) -> None:
    body = {"code": "print(1)", "language": "python", "fetch_files": ["a\0b"]}
    reply = service.client.post("/run_code", json=body)
    assert reply.status_code == 400
    assert "NUL" in reply.json()["detail"]


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            RuntimeError("the secret of /root"),
            "the sandbox failed on this request; its log has the reason under",
        ),
        (BoxError("a box was not made"), "a box was not made"),
    ],
)
def test_a_failure_of_ours_is_a_500_with_a_reason_and_an_empty_traceback(
    service,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    told: str,
    alone: bool,
) -> None:
    """Alone, or as the group that programs side by side raise."""

    async def fails(request: object) -> None:
        raise error if alone else ExceptionGroup("side by side", [ExceptionGroup("again", [error])])

    monkeypatch.setattr(service.sandbox, "run_code", fails)
    reply = service.client.post("/run_code", json={"code": "print(1)", "language": "python"})
    body = reply.json()
    assert (reply.status_code, sorted(body), body["traceback"]) == (500, ["detail", "traceback"], [])
    assert body["detail"].startswith(told)
    assert "secret" not in reply.text
    assert body["detail"].rpartition(" ")[2] in caplog.text
    assert str(error) in caplog.text


def test_the_api_describes_itself(service) -> None:
    paths = json.loads(service.client.get("/openapi.json").text)["paths"]
    assert {"/run_code", "/submit", "/run_jupyter", "/get_prompts"} <= set(paths)
