"""Orders on a socket -> files written, programs run and watched, everything cleared away: process 1 of a box.

It runs inside the box, on the standard library alone, and is the only thing there that is trusted: what a
program prints comes back through pipes, so that it can never be taken for an answer of ours. Descriptor 0 is
the socket. A frame is four bytes of length (big-endian) and a JSON object; binary text is base64.

Orders: `files` {files: {path: base64}}, `run` {argv, python, cwd, stdin, limits}, `fetch` {paths (null: all),
limit}. `limits`: cpu_s, wall_s, hard_wall_s, processes, file_bytes, output_bytes, memory_bytes, data_bytes
(0: no bound).
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import socket
import stat
import struct
import sys
import time
import types

TYPE_CHECKING = False
if TYPE_CHECKING:  # a box loads no more than it needs
    from collections.abc import Iterable, Iterator
    from typing import Any

TICK_S = 0.02
"""How often limits are looked at. The time that a program used is checked once more when it has ended."""

_PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 4, 36
_STACK_BYTES = 64 * 2**20
_MAPPED_BYTES = 64 * 2**20
"""What of a resident set may be files, as libraries, which are nobody's memory."""
_CHUNK = 1 << 16
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_libc = ctypes.CDLL(None, use_errno=True)
_channel: socket.socket


def main() -> None:
    """Carry out orders until the other side closes the channel; then all ends with us."""
    global _channel
    os.closerange(3, 4096)
    channel = _channel = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one signal from inside that would reach process 1
    _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # nobody in the box may look into this process
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    _send(channel, {"ready": True, "alone": os.getpid() == 1})
    while (order := _receive(channel)) is not None:
        try:
            answer = _ORDERS[order["op"]](order)
        except OSError as error:
            answer = {"error": f"{error.strerror}: {error.filename}" if error.filename else str(error)}
        except ValueError as error:  # as of a NUL in a name
            answer = {"error": str(error)}
        _send(channel, answer)


def _send(channel: socket.socket, answer: dict[str, Any]) -> None:
    data = json.dumps(answer).encode()
    channel.sendall(struct.pack(">I", len(data)) + data)


def _receive(channel: socket.socket) -> dict[str, Any] | None:
    head = _exactly(channel, 4)
    return json.loads(_exactly(channel, struct.unpack(">I", head)[0])) if head else None


def _exactly(channel: socket.socket, count: int) -> bytes:
    parts: list[bytes] = []
    while count:
        part = channel.recv(min(count, 1 << 20))
        if not part:
            return b""
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def write_files(order: dict[str, Any]) -> dict[str, Any]:
    """Write `files`; the names are checked outside."""
    files: dict[str, str] = order["files"]
    for name, content in files.items():
        path = os.path.join(str(order["cwd"]), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(base64.b64decode(content))
        os.chmod(path, 0o755)
    return {}


def fetch_files(order: dict[str, Any]) -> dict[str, Any]:
    """Read plain files, as many as fit into `limit` bytes; the rest is named in `left_out`."""
    files: dict[str, str] = {}
    left_out: list[str] = []
    room = order["limit"]
    kernels = os.stat("/proc").st_dev
    for name in order["paths"] if order["paths"] is not None else _tree(order["cwd"]):
        path = os.path.join(order["cwd"], name)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            continue
        with open(descriptor, "rb") as file:
            info = os.fstat(descriptor)
            within = not order["inside"] or os.path.realpath(path).startswith(order["inside"] + "/")
            if not stat.S_ISREG(info.st_mode) or not within or info.st_dev == kernels:
                continue  # a link may lead anywhere, also to what tells of this process
            content = file.read(room + 1)
        if len(content) > room:
            left_out.append(name)
            continue
        room -= len(content)
        files[name] = base64.b64encode(content).decode()
    return {"files": files, "left_out": left_out}


def _tree(root: str) -> list[str]:
    return [
        os.path.relpath(os.path.join(folder, name), root)
        for folder, _, names in os.walk(root)
        for name in names
    ]


def run(order: dict[str, Any]) -> dict[str, Any]:
    """Run one program to its end, or to its limits, and leave no process behind."""
    stdin = os.memfd_create("stdin")
    if order["stdin"]:
        with open(os.dup(stdin), "wb") as file:
            file.write(base64.b64decode(order["stdin"]))
        os.lseek(stdin, 0, os.SEEK_SET)
    out, out_end = os.pipe()
    err, err_end = os.pipe()
    before = _children_cpu_s()
    started = time.monotonic()
    pid = os.fork()
    if pid == 0:
        _become(order, stdin, out_end, err_end)  # returns only for a Python program, whose end is ours
    for end in (stdin, out_end, err_end):
        os.close(end)
    return _Watch(pid, out, err, order["limits"], started, before).result()


class _Watch:
    """One program under way: its output, what it uses, how it ends."""

    def __init__(
        self, pid: int, out: int, err: int, limits: dict[str, Any], started: float, before: float
    ) -> None:
        self.pid, self.limits, self.started, self.before = pid, limits, started, before
        self.pidfd = os.pidfd_open(pid)
        self.kept: dict[int, bytearray] = {out: bytearray(), err: bytearray()}
        self.out, self.err = out, err
        self.num_bytes = {out: 0, err: 0}
        self.reason = ""
        self.cpu_s = self.own_s = 0.0
        self.waits = _Waits(started)
        self.peak_bytes = 0

    def result(self) -> dict[str, Any]:
        poller = select.poll()
        for descriptor in (self.out, self.err, self.pidfd):
            poller.register(descriptor, select.POLLIN)
        poller.register(_channel, select.POLLRDHUP)
        tick_ms = min(TICK_S, max(0.002, self.limits["wall_s"] / 20)) * 1000
        due = time.monotonic()
        while True:
            events = dict(poller.poll(tick_ms))
            for pipe in (self.out, self.err):
                if pipe in events and not self._drain(pipe):
                    poller.unregister(pipe)
            if _channel.fileno() in events:  # nobody waits for the answer any more
                clear_all(self.pid)
                os._exit(0)
            if self.pidfd in events:
                break
            if time.monotonic() >= due:
                self._measure()
                if self.reason:
                    break
                due = time.monotonic() + tick_ms / 1000
        return self._end()

    def _drain(self, pipe: int) -> bool:
        """Take a chunk and keep what there is room for; False at the end."""
        data = os.read(pipe, _CHUNK)
        kept = self.kept[pipe]
        self.num_bytes[pipe] += len(data)
        kept += data[: max(0, self.limits["output_bytes"] - len(kept))]
        return bool(data)

    def _measure(self) -> None:
        live = _descendants()
        self.cpu_s = _children_cpu_s() - self.before + sum(cpu_s for cpu_s, _, _ in live.values())
        memory = sum(map(_anonymous_bytes, live))
        if memory > self.limits["memory_bytes"]:  # pages that forks share were counted several times
            memory = sum(map(_proportional_bytes, live))
        self.peak_bytes = max(self.peak_bytes, memory)
        self._own_time(live)
        if memory > self.limits["memory_bytes"]:
            self.reason = "memory_limit"
        elif len(live) > 4 * self.limits["processes"]:
            self.reason = "process_limit"
        else:
            self._judge_time()

    def _own_time(self, live: Iterable[int]) -> None:
        """Wall time less the time spent ready to run while others had the processors."""
        self.waits.look(live)
        self.own_s = time.monotonic() - self.started - self.waits.total_s

    def _judge_time(self) -> None:
        if self.cpu_s > self.limits["cpu_s"]:
            self.reason = "cpu_time_limit"
        elif self.own_s > self.limits["wall_s"] or (
            time.monotonic() - self.started > self.limits["hard_wall_s"]
        ):
            mostly_ran = self.cpu_s > 0.5 * self.own_s
            self.reason = "cpu_time_limit" if mostly_ran else "wall_time_limit"

    @property
    def _most_resident(self) -> float:
        return self.limits["memory_bytes"] + _MAPPED_BYTES

    def _end(self) -> dict[str, Any]:
        wall_s = time.monotonic() - self.started
        if not self.reason:
            self._own_time([self.pid])
        code, largest_bytes = clear_all(self.pid)
        for pipe in (self.out, self.err):
            while self._drain(pipe):
                pass
            os.close(pipe)
        os.close(self.pidfd)
        self.cpu_s = _children_cpu_s() - self.before
        if not self.reason and self.limits["data_bytes"] and largest_bytes > self._most_resident:
            self.reason = "memory_limit"  # between two looks, and no control group saw it
        if not self.reason:
            self._judge_time()
        return {
            "reason": self.reason,
            "return_code": None if self.reason else code,
            "wall_s": wall_s,
            "cpu_s": self.cpu_s,
            "peak_bytes": max(self.peak_bytes, largest_bytes),
            "stdout": base64.b64encode(self.kept[self.out]).decode(),
            "stderr": base64.b64encode(self.kept[self.err]).decode(),
            "stdout_bytes": self.num_bytes[self.out],
            "stderr_bytes": self.num_bytes[self.err],
        }


def clear_all(pid: int) -> tuple[int, int]:
    """Kill every process but this one and reap them all.

    Returns:
        The return code of `pid`, and the largest resident set, in bytes, that one of them ever had.
    """
    status = largest_kib = 0
    while True:
        if os.getpid() == 1:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
        else:
            for one in _descendants():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one, signal.SIGKILL)
        try:
            while True:
                ended, ended_status, used = os.wait4(-1, 0 if os.getpid() == 1 else os.WNOHANG)
                if ended == 0:
                    time.sleep(0.001)
                    break
                largest_kib = max(largest_kib, used.ru_maxrss)
                if ended == pid:
                    status = ended_status
        except ChildProcessError:
            return os.waitstatus_to_exitcode(status), largest_kib * 1024


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _descendants() -> dict[int, tuple[float, int, int]]:
    """Living processes below this one: CPU seconds with those of their reaped children, parent, state."""
    found: dict[int, tuple[float, int, int]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        ticks = sum(map(int, fields[11:15]))
        found[int(name)] = (ticks / _TICKS_PER_S, int(fields[1]), 0)
    me = os.getpid()
    if me == 1:
        found.pop(1, None)
        return found
    below: dict[int, tuple[float, int, int]] = {}
    for pid, facts in found.items():
        parent = facts[1]
        while parent not in (me, 0, 1) and parent in found:
            parent = found[parent][1]
        if parent == me:
            below[pid] = facts
    return below


def _anonymous_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            fields = file.read().split()
    except OSError:
        return 0
    return (int(fields[1]) - int(fields[2])) * _PAGE_BYTES


def _proportional_bytes(pid: int) -> int:
    """As `_anonymous_bytes`, a page that several processes share divided among them; much slower to learn."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            kib = [int(line.split()[1]) for line in file if line.startswith(b"Pss_Anon:")]
    except OSError:  # it made itself unreadable, and pays for that
        return _anonymous_bytes(pid)
    return sum(kib) * 1024


class _Waits:
    """How long a program stood still because others had the processors.

    Of each time between two looks: what the thread that waited longest waited. So the waits of programs that
    follow each other add up, as those of a compiler's parts do. A thread that is ready and has not slept
    since the last look waited whenever it did not run; of others the kernel counts the waits that are over.
    """

    def __init__(self, started: float) -> None:
        self.total_s = 0.0
        self._looked = started
        self._since_before_s = 0.0
        self._seen: dict[str, tuple[int, int, int, bool]] = {}
        self._own_ns = _waited_ns("self")

    def look(self, pids: Iterable[int]) -> None:
        now = time.monotonic()
        since_s = now - self._looked
        seen: dict[str, tuple[int, int, int, bool]] = {}
        longest_s = 0.0
        own_ns = _waited_ns("self")
        for folder in _threads(pids):
            try:
                ran, waited, num_sleeps, state = _counts(folder)
            except (OSError, IndexError, ValueError):  # it has just gone
                continue
            ran_before, waited_before, sleeps_before, told = self._seen.get(folder, (0, 0, 0, True))
            idle_s = since_s - (ran - ran_before) / 1e9
            wait_s = (waited - waited_before) / 1e9
            if state == "Z":  # its end counts as a sleep, and was noticed once this process had its turn
                num_sleeps -= 1
                wait_s += min(max(0.0, idle_s - wait_s), (own_ns - self._own_ns) / 1e9)
            awake = state in "RZ" and num_sleeps <= sleeps_before
            if awake:  # what it waited when last looked at has been told, or shows in the kernel's count
                wait_s = idle_s if told else max(wait_s, idle_s)
            seen[folder] = (ran, waited, num_sleeps, awake)
            longest_s = max(longest_s, wait_s)
        self.total_s += min(longest_s, since_s + self._since_before_s)
        self._looked, self._since_before_s, self._seen, self._own_ns = now, since_s, seen, own_ns


def _threads(pids: Iterable[int]) -> Iterator[str]:
    for pid in pids:
        with contextlib.suppress(OSError):
            yield from (f"/proc/{pid}/task/{task}" for task in os.listdir(f"/proc/{pid}/task"))


def _counts(folder: str) -> tuple[int, int, int, str]:
    """Of a thread: nanoseconds that it ran and that it waited, how often it slept, its state's letter."""
    with open(f"{folder}/schedstat", "rb") as file:
        ran, waited, _ = file.read().split()
    state, num_sleeps = "", 0
    with open(f"{folder}/status", "rb") as file:
        for line in file:
            if line.startswith(b"State:"):
                state = line.split()[1].decode()
            elif line.startswith(b"voluntary_ctxt_switches:"):
                num_sleeps = int(line.split()[1])
    return int(ran), int(waited), num_sleeps, state


def _waited_ns(pid: str) -> int:
    with contextlib.suppress(OSError, IndexError, ValueError), open(f"/proc/{pid}/schedstat", "rb") as file:
        return int(file.read().split()[1])
    return 0


def _become(order: dict[str, Any], stdin: int, out: int, err: int) -> None:
    """In the child: take the pipes, the limits and the program's place."""
    try:
        _channel.detach()  # its number is the program's to use
        os.setsid()
        for source, target in ((stdin, 0), (out, 1), (err, 2)):
            os.dup2(source, target)
        os.closerange(3, 4096)
        _libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)  # what it may do with itself, as with its oom_score_adj
        _limit(order["limits"])
        os.chdir(order["cwd"])
        if order.get("python"):
            signal.signal(signal.SIGINT, signal.default_int_handler)
            _run_python(order["python"], order["argv"])
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.execvpe(order["argv"][0], order["argv"], {**os.environ, **order.get("env", {})})
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        os.write(2, f"cannot start {order['argv'][0]}: {reason}\n".encode())
        os._exit(127)


def _limit(limits: dict[str, Any]) -> None:
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # when memory runs out the program is ended, not this process
    cpu_s = int(limits["cpu_s"]) + 2
    wanted = [
        (resource.RLIMIT_CPU, cpu_s, cpu_s + 1),
        (resource.RLIMIT_FSIZE, limits["file_bytes"], limits["file_bytes"]),
        (resource.RLIMIT_NPROC, limits["processes"], limits["processes"]),
        (resource.RLIMIT_NOFILE, 1024, 1024),
        (resource.RLIMIT_CORE, 1, 1),  # no file, as with 0; behind walls it is so already, and stays
        (resource.RLIMIT_MEMLOCK, 0, 0),
        (resource.RLIMIT_MSGQUEUE, 2**20, 2**20),
        (resource.RLIMIT_STACK, _STACK_BYTES, resource.RLIM_INFINITY),
    ]
    if limits["data_bytes"]:
        wanted.append((resource.RLIMIT_DATA, limits["data_bytes"], limits["data_bytes"]))
    for kind, soft, hard in wanted:
        most = resource.getrlimit(kind)[1]
        if most != resource.RLIM_INFINITY:
            hard = most if hard == resource.RLIM_INFINITY else min(hard, most)
            soft = min(soft, hard)
        if resource.getrlimit(kind) != (soft, hard):
            resource.setrlimit(kind, (soft, hard))


def _run_python(path: str, argv: list[str]) -> None:
    """Be `python path`: this process is a fork of a started interpreter, and ends as one would."""
    sys.argv = argv
    sys.path[0] = os.path.dirname(path)
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", closefd=False)  # type: ignore[misc]  # noqa: SIM115
    main_module = types.ModuleType("__main__")
    main_module.__dict__.update(__file__=path, __builtins__=__builtins__)
    sys.modules["__main__"] = main_module
    try:
        with open(path, "rb") as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
        exec(code, main_module.__dict__)
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001 - what an interpreter does with an uncaught one
        if isinstance(error, SyntaxError) and error.filename == path:
            error.__traceback__ = None
        else:
            error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
        sys.excepthook(type(error), error, error.__traceback__)
        if isinstance(error, KeyboardInterrupt):
            raise SystemExit(130) from None
        raise SystemExit(1) from None
    raise SystemExit(0)


_ORDERS = {"files": write_files, "run": run, "fetch": fetch_files}

if __name__ == "__main__":
    main()
