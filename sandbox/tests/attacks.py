"""What hostile programs try, and what must come of it: one row each. `test_attacks` runs them all.

A program prints ESCAPED when it got what it must not have. Every bomb is bounded by itself, too, so that a
broken wall costs a failed test and no machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import strop_sandbox

PRELUDE = """
import ctypes, errno, os, resource, signal, socket, subprocess, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
def refused(work, *arguments):
    try:
        work(*arguments)
    except (OSError, RuntimeError, ValueError, MemoryError, subprocess.SubprocessError) as error:
        print("refused", type(error).__name__)
    else:
        print("ESCAPED")
def call(number, *arguments):
    if libc.syscall(number, *arguments) == -1:
        print("refused", errno.errorcode[ctypes.get_errno()])
    else:
        print("ESCAPED")
def secret(path):
    refused(lambda: open(path, "rb").read(1) or (_ for _ in ()).throw(OSError(path)))
"""

REFUSED = "refused"
"""It ended by itself, was refused everything it asked for, and said so; or the request itself was refused."""
CONTAINED = "contained"
"""It ended by itself, and what it did stayed in its box."""
MEMORY, TIME, KILLED = "memory_limit", "time_limit", "killed"


@dataclass(frozen=True, kw_only=True)
class Attack:
    """`expect` is one of the words above, or several."""

    name: str
    code: str
    expect: tuple[str, ...]
    language: str = "python"
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def program(self) -> str:
        return PRELUDE + self.code if self.language == "python" else self.code


def _attack(name: str, code: str, *expect: str, language: str = "python", **more: Any) -> Attack:
    return Attack(name=name, code=code, expect=expect, language=language, more=more)


_OURS = str(Path(strop_sandbox.__file__).parents[1])
_SMALL = {"memory_limit_MB": 96}
_X = "eA=="

PROCESSES = (
    _attack("fork bomb", "n = 0\nfor _ in range(400):\n    try:\n        if os.fork() == 0: time.sleep(3); os._exit(0)\n        n += 1\n    except OSError:\n        break\nprint('ESCAPED' if n >= 300 else 'refused')", REFUSED),
    _attack("fork bomb in bash", "for i in $(seq 400); do sleep 3 & done 2>/dev/null; echo refused", REFUSED, "error", TIME, KILLED, language="bash", run_timeout=2),
    _attack("thread bomb", "n = 0\ntry:\n    for _ in range(400):\n        threading.Thread(target=time.sleep, args=(2,), daemon=True).start(); n += 1\nexcept RuntimeError:\n    pass\nprint('ESCAPED' if n >= 300 else 'refused', flush=True)\nos._exit(0)", REFUSED),
    _attack("daemon that outlives its program", "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        time.sleep(600)\n    os._exit(0)\nprint('contained')", CONTAINED),
    _attack("zombies left behind", "for _ in range(50):\n    if os.fork() == 0: os._exit(0)\nprint('contained')", CONTAINED),
    _attack("daemon that ignores all signals", "if os.fork() == 0:\n    for n in set(range(1, 64)) - {9, 19, 32, 33}:\n        signal.signal(n, signal.SIG_IGN)\n    time.sleep(600)\nprint('contained')", CONTAINED),
    _attack("children that reproduce while being killed", "def breed(depth):\n    for _ in range(40):\n        try:\n            if os.fork() == 0:\n                if depth: breed(depth - 1)\n                time.sleep(2); os._exit(0)\n        except OSError: return\nbreed(2)\nprint('contained')", CONTAINED, TIME, KILLED, run_timeout=3),
    _attack("daemon that holds the output open", "if os.fork() == 0:\n    time.sleep(600)\nprint('contained', flush=True)\nos._exit(0)", CONTAINED),
    _attack("kill process 1", "for n in (9, 15, 19, 2, 11):\n    try: os.kill(1, n)\n    except OSError: pass\ntime.sleep(0.1)\nprint('contained')", CONTAINED),
    _attack("kill everybody", "try: os.kill(-1, 15)\nexcept OSError: pass\nprint('contained')", CONTAINED, KILLED),
    _attack("signal storm", "pid = os.getpid()\nsignal.signal(signal.SIGUSR1, lambda *_: None)\nfor _ in range(20000): os.kill(pid, signal.SIGUSR1)\nprint('contained')", CONTAINED),
    _attack("stop itself", "os.kill(os.getpid(), signal.SIGSTOP)", TIME, run_timeout=0.5),
    _attack("stop its parent", "os.kill(os.getppid(), signal.SIGSTOP)\nprint('contained')", CONTAINED),
    _attack("sleep for ever", "time.sleep(600)", TIME, run_timeout=0.5),
    _attack("compute for ever", "while True: pass", TIME, run_timeout=0.5),
    _attack("compute for ever in many processes", "for _ in range(5): os.fork()\nwhile True: pass", TIME, run_timeout=0.5),
    _attack("compute for ever in many threads", "int main() { while (1); }", TIME, language="c", run_timeout=0.5),
    _attack("wait for input that never comes", "r, w = os.pipe()\nos.read(r, 1)", TIME, run_timeout=0.5),
    _attack("raise its own limits", "for kind in (resource.RLIMIT_NPROC, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE):\n    refused(resource.setrlimit, kind, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))", REFUSED),
    _attack("higher priority", "refused(os.nice, -10)\nrefused(os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(50))", REFUSED),
    _attack("limits and priority of process 1", "refused(resource.prlimit, 1, resource.RLIMIT_NOFILE, (0, 0))\nrefused(resource.prlimit, 1, resource.RLIMIT_CPU, (1, 1))\ncall(302, ctypes.c_long(0x100000001), resource.RLIMIT_NOFILE, (ctypes.c_ulong * 2)(0, 0), None)\nrefused(os.sched_setaffinity, 1, {0})\nrefused(os.sched_setscheduler, 1, os.SCHED_IDLE, os.sched_param(0))\nrefused(os.setpriority, os.PRIO_PROCESS, 1, 19)\nrefused(os.setpriority, os.PRIO_USER, 0, 19)", REFUSED),
)  # fmt: skip

MEMORY_AND_DISK = (
    _attack("allocate", "x = bytearray(400 << 20)\nprint('ESCAPED')", MEMORY, **_SMALL),
    _attack("allocate slowly", "x = []\nfor _ in range(300): x.append(bytearray(1 << 20)); time.sleep(0.001)\nprint('ESCAPED')", MEMORY, **_SMALL),
    _attack("allocate in many children", "kids = []\nfor _ in range(8):\n    if os.fork() == 0:\n        x = bytearray(40 << 20); time.sleep(2); os._exit(0)\ntime.sleep(1.5)\nprint('contained')", MEMORY, KILLED, CONTAINED, **_SMALL),
    _attack("fill /tmp", "with open('/tmp/fill', 'wb') as f:\n    for _ in range(700): f.write(b'x' * (1 << 20))\nprint('ESCAPED')", MEMORY, KILLED, REFUSED, "error", **_SMALL),
    _attack("fill /tmp by many files", "def fill():\n    for n in range(40):\n        with open(f'/tmp/{n}', 'wb') as f: f.write(b'x' * (20 << 20))\nrefused(fill)", REFUSED, MEMORY, run_timeout=20),
    _attack("fill /dev/shm", "def fill():\n    with open('/dev/shm/x', 'wb') as f:\n        for _ in range(100): f.write(b'x' * (1 << 20))\nrefused(fill)", REFUSED),
    _attack("fill /mnt", "def fill():\n    with open('/mnt/x', 'wb') as f:\n        for _ in range(100): f.write(b'x' * (1 << 20))\nrefused(fill)", REFUSED),
    _attack("one enormous file", "def grow():\n    with open('/tmp/x', 'wb') as f: f.truncate(1 << 40)\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nrefused(grow)", REFUSED),
    _attack("write to /", "refused(open, '/x', 'w')\nrefused(os.mkdir, '/y')", REFUSED),
    _attack("write to /dev", "refused(open, '/dev/x', 'w')", REFUSED),
    _attack("write to /usr", "refused(open, '/usr/bin/x', 'w')\nrefused(os.remove, '/usr/bin/env')", REFUSED),
    _attack("memory in files without a name", "fds = []\nfor _ in range(300):\n    fd = os.memfd_create('x'); os.write(fd, b'x' * (1 << 20)); fds.append(fd)\nprint('ESCAPED')", MEMORY, KILLED, **_SMALL),
    _attack("flood of descriptors", "n = 0\ntry:\n    while n < 5000: os.open('/dev/null', 0); n += 1\nexcept OSError:\n    print('refused')\nelse: print('ESCAPED')", REFUSED),
    _attack("flood of empty files", "for n in range(20000): open(f'/tmp/{n}', 'w').close()\nprint('contained')", CONTAINED, MEMORY),
    _attack("folders below folders", "os.chdir('/tmp')\nfor _ in range(2000):\n    os.mkdir('d'); os.chdir('d')\nprint('contained')", CONTAINED),
    _attack("lock memory", "print('refused' if libc.mlockall(3) else 'ESCAPED')", REFUSED),
    _attack("deep recursion in C", "int f(int n) { volatile char a[4096]; a[0] = n; return f(n + 1) + a[0]; }\nint main() { return f(0); }", KILLED, MEMORY, language="c"),
    _attack("huge output", "for _ in range(3000): sys.stdout.write('x' * 10000)\nprint('contained', file=sys.stderr)", CONTAINED),
    _attack("huge output without end", "while True: sys.stdout.write('x' * 65536)", TIME, run_timeout=0.5),
    _attack("huge output on both", "for _ in range(500):\n    sys.stdout.write('x' * 10000); sys.stderr.write('y' * 10000)\nprint('contained')", "success"),
    _attack("pipes filled and never read", "pipes = []\ntry:\n    for _ in range(400):\n        r, w = os.pipe(); os.set_blocking(w, False); pipes.append((r, w)); os.write(w, b'x' * 65536)\nexcept OSError: pass\nprint('contained')", CONTAINED),
)  # fmt: skip

LOOKING = (
    _attack("the server's environment", "for pid in filter(str.isdigit, os.listdir('/proc')):\n    try: data = open(f'/proc/{pid}/environ').read()\n    except OSError: continue\n    if 'STROP' in data or 'API_KEY' in data: print('ESCAPED')\nprint('contained')", CONTAINED),
    _attack("its own environment", "print('ESCAPED' if any('STROP' in k or 'KEY' in k for k in os.environ) else 'contained', len(os.environ))", CONTAINED),
    _attack("other processes of the machine", "print('ESCAPED' if sum(map(str.isdigit, os.listdir('/proc'))) > 3 else 'contained')", CONTAINED),
    _attack("/etc/shadow", "secret('/etc/shadow')", REFUSED),
    _attack("/etc/passwd names nobody", "print('ESCAPED' if len(open('/etc/passwd').readlines()) > 2 else 'contained')", CONTAINED),
    _attack("/root", "for name in ('/root/.bashrc', '/root/.ssh/id_rsa', '/root/.strop/strop.db', '/home'):\n    secret(name)", REFUSED),
    _attack("/sys", "refused(os.listdir, '/sys')", REFUSED),
    _attack("/proc/kcore and friends", "for name in ('/proc/kcore', '/proc/kmsg', '/proc/sys/kernel/core_pattern'):\n    refused(lambda: os.write(os.open(name, os.O_RDWR), b'x'))", REFUSED),
    _attack("/proc/sysrq-trigger", "refused(lambda: open('/proc/sysrq-trigger', 'w').write('c'))", REFUSED),
    _attack("change the kernel's settings", "for name in ('kernel/core_pattern', 'kernel/hostname', 'vm/overcommit_memory', 'kernel/modprobe', 'fs/binfmt_misc/register'):\n    refused(lambda: open('/proc/sys/' + name, 'w').write('|/tmp/x'))", REFUSED),
    _attack("the memory of process 1", "refused(open, '/proc/1/mem', 'rb')\nrefused(open, '/proc/1/environ', 'rb')\nrefused(os.listdir, '/proc/1/fd')\nrefused(os.readlink, '/proc/1/exe')", REFUSED),
    _attack("the root of process 1", "refused(os.listdir, '/proc/1/root')\nrefused(os.listdir, '/proc/1/cwd')", REFUSED),
    _attack("descriptors left open", "names = [os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd') if int(n) > 2 and os.path.lexists(f'/proc/self/fd/{n}')]\nprint('ESCAPED' if any('socket' in n for n in names) else 'contained')", CONTAINED),
    _attack("the server's folder", "import tempfile\nprint('ESCAPED' if [n for n in os.listdir('/tmp') if n.startswith('strop')] else 'contained')", CONTAINED),
    _attack("files of other runs", "print('ESCAPED' if set(os.listdir('/tmp')) - {'box', 'work', 'root'} - set(os.path.commonpath([sys.prefix, '/']).split('/')) - {p.split('/')[2] for p in (sys.prefix, sys.base_prefix) if p.startswith('/tmp/')} else 'contained')", CONTAINED),
    _attack("the mount table tells no secret place", "text = open('/proc/self/mounts').read()\nprint('ESCAPED' if '/strop.db' in text else 'contained')", CONTAINED),
    _attack("raw disks", "for name in ('/dev/vda', '/dev/sda', '/dev/mem', '/dev/kmsg', '/dev/kvm', '/dev/fuse'):\n    secret(name)", REFUSED),
    _attack("make a device", "import stat\nrefused(os.mknod, '/tmp/disk', stat.S_IFBLK | 0o600, os.makedev(254, 0))", REFUSED),
    _attack("import the service", f"sys.path.append({_OURS!r})\ntry:\n    import strop_sandbox.app\n    print('ESCAPED')\nexcept ImportError:\n    print('contained')", CONTAINED),
)  # fmt: skip

KERNEL = (
    _attack("ptrace", "call(101, 16, os.getppid(), 0, 0)\ncall(101, 0, 0, 0, 0)", REFUSED),
    _attack("read another's memory", "buffer = ctypes.create_string_buffer(8)\ncall(310, os.getppid(), buffer, 1, buffer, 1, 0)", REFUSED),
    _attack("mount", "os.makedirs('/tmp/m', exist_ok=True)\ncall(165, b'none', b'/tmp/m', b'tmpfs', 0, None)", REFUSED),
    _attack("remount writable", "call(165, None, b'/usr', None, 32, None)", REFUSED),
    _attack("unmount", "call(166, b'/usr', 2)", REFUSED),
    _attack("new mount calls", "call(428, -100, b'/', 0)\ncall(430, b'tmpfs', 0)", REFUSED),
    _attack("chroot and pivot_root", "call(161, b'/tmp')\ncall(155, b'/tmp', b'/tmp')", REFUSED),
    _attack("namespaces of one's own", "for flag in (0x10000000, 0x00020000, 0x40000000, 0x20000000): call(272, flag)", REFUSED),
    _attack("namespaces by clone", "call(56, 0x10000000 | 17, 0, 0, 0, 0)\ncall(56, 0x00020000 | 17, 0, 0, 0, 0)", REFUSED),
    _attack("namespaces by clone3", "call(435, ctypes.create_string_buffer(88), 88)", REFUSED),
    _attack("enter process 1's namespaces", "refused(os.open, '/proc/1/ns/mnt', 0)\ncall(308, 0, 0)", REFUSED),
    _attack("bpf", "call(321, 0, ctypes.create_string_buffer(128), 128)", REFUSED),
    _attack("io_uring", "call(425, 8, ctypes.create_string_buffer(128))", REFUSED),
    _attack("performance events", "call(298, ctypes.create_string_buffer(128), 0, -1, -1, 0)", REFUSED),
    _attack("keyrings", "call(250, 0, -3, 1)\ncall(248, b'user', b'x', b'y', 1, -3)", REFUSED),
    _attack("userfaultfd", "call(323, 0)", REFUSED),
    _attack("kernel modules", "call(313, 0, b'', 0)\ncall(175, b'', 0, b'')", REFUSED),
    _attack("reboot and kexec", "call(169, 0xfee1dead, 672274793, 0x1234567, 0)\ncall(246, 0, 0, 0, 0)", REFUSED),
    _attack("set the clock", "refused(time.clock_settime, time.CLOCK_REALTIME, 0)", REFUSED),
    _attack("change the host's name", "refused(socket.sethostname, 'mine')", REFUSED),
    _attack("become root", "refused(os.setuid, 0)\nrefused(os.setgroups, [0])", REFUSED),
    _attack("gain by a set-uid program", "done = subprocess.run(['su', '-c', 'id'], capture_output=True, stdin=subprocess.DEVNULL)\nprint('ESCAPED' if b'uid=0' in done.stdout else 'refused')", REFUSED),
    _attack("the kernel's log", "call(103, 3, ctypes.create_string_buffer(128), 128)", REFUSED),
    _attack("type into a terminal", "import fcntl\nrefused(fcntl.ioctl, 0, 0x5412, b'x')", REFUSED),
    _attack("open by handle", "call(304, -100, ctypes.create_string_buffer(64), 0)", REFUSED),
    _attack("32-bit calls", "#include <stdio.h>\nint main() { int r; __asm__ volatile(\"int $0x80\" : \"=a\"(r) : \"a\"(26), \"b\"(0), \"c\"(0), \"d\"(0), \"S\"(0)); puts(r < 0 ? \"refused\" : \"ESCAPED\"); }", KILLED, REFUSED, language="c"),
)  # fmt: skip

NETWORK = (
    _attack("the internet", "refused(socket.create_connection, ('1.1.1.1', 53), 2)", REFUSED),
    _attack("names", "refused(socket.gethostbyname, 'example.com')", REFUSED),
    _attack("the cloud's metadata", "refused(socket.create_connection, ('169.254.169.254', 80), 2)", REFUSED),
    _attack("the server on its own port", "refused(socket.create_connection, ('127.0.0.1', {port}), 2)", REFUSED),
    _attack("vsock, out of a virtual machine", "refused(socket.socket, 40, socket.SOCK_STREAM)", REFUSED),
    _attack("raw and packet sockets", "refused(socket.socket, socket.AF_INET, socket.SOCK_RAW, 1)\nrefused(socket.socket, socket.AF_PACKET, socket.SOCK_RAW)", REFUSED),
    _attack("abstract sockets of the machine", "names = [line.split()[-1] for line in open('/proc/net/unix').read().splitlines()[1:] if '@' in line]\nprint('ESCAPED' if names else 'contained')", CONTAINED),
    _attack("configure the network", "done = subprocess.run(['sh', '-c', 'ip link add x type dummy'], capture_output=True)\nprint('ESCAPED' if done.returncode == 0 else 'refused')", REFUSED),
)  # fmt: skip

PLAYING_WITH_THE_REQUEST = (
    _attack("a name in files that climbs out", "print('ESCAPED')", REFUSED, files={"../../etc/passwd": _X}),
    _attack("a name in files that climbs out of a writable place", "print('ESCAPED')", REFUSED, files={"/tmp/../etc/passwd": _X}),
    _attack("a system's program in files", "print('ESCAPED')", REFUSED, files={"/usr/bin/env": _X}),
    _attack("the box's own init in files", "print('ESCAPED')", REFUSED, files={"/strop/strop_init.pyc": _X}),
    _attack("the memory of process 1 in files", "print('ESCAPED')", REFUSED, files={"/proc/1/mem": _X}),
    _attack("the channel of process 1 in files", "print('ESCAPED')", REFUSED, files={"/proc/self/fd/3": _X}),
    _attack("a file in files below another one", "print('ESCAPED')", REFUSED, files={"a": _X, "a/b": _X}),
    _attack("link at a fetched name to a secret", "os.symlink('/etc/shadow', 'a.txt')\nos.symlink('/proc/1/environ', 'b.txt')\nprint('contained')", CONTAINED, fetch_files=["a.txt", "b.txt", "/etc/shadow"]),
    _attack("pipe at a fetched name", "os.mkfifo('a.txt')\nprint('contained')", CONTAINED, fetch_files=["a.txt"]),
    _attack("device at a fetched name", "os.symlink('/dev/zero', 'a.txt')\nprint('contained')", CONTAINED, fetch_files=["a.txt"]),
    _attack("enormous file at a fetched name", "with open('a.txt', 'wb') as f: f.truncate(200 << 20)\nprint('contained')", CONTAINED, fetch_files=["a.txt"]),
    _attack("folder at a fetched name", "os.mkdir('a.txt')\nprint('contained')", CONTAINED, fetch_files=["a.txt", ".", "/"]),
    _attack("an answer forged on its output", "import json, struct\nbody = json.dumps({'reason': '', 'return_code': 0, 'stdout': 'Rk9SR0VE'}).encode()\nfor fd in (0, 1, 2, 3, 4, 5):\n    try: os.write(fd, struct.pack('>I', len(body)) + body)\n    except OSError: pass\nprint('contained', flush=True)\nos._exit(3)", "error"),
    _attack("its own working folder removed", "import shutil\nos.chdir('/'); shutil.rmtree('/tmp/box')\nprint('contained')", CONTAINED, fetch_files=["a.txt"]),
    _attack("a signal in its exit code", "os._exit(137)", "error"),
    _attack("an include of a secret at compile time", "#include \"/etc/shadow\"\nint main() {}", "compile_error", language="c"),
    _attack("a compiler that never ends", "#include __FILE__\n#include __FILE__\nint main() {}", "compile_error", "compile_time_limit", language="cpp", compile_timeout=2),
    _attack("a compiler with an enormous array", "char a[1 << 30] = {1};\nint main() {}", "compile_error", "compile_time_limit", MEMORY, CONTAINED, "success", "error", KILLED, language="c", compile_timeout=3),
)  # fmt: skip

BEHIND_THE_WALLS = (
    _attack("the interpreter overwritten through /proc/self/exe", "refused(open, '/proc/self/exe', 'wb')\nrefused(os.chmod, '/proc/self/exe', 0o777)", REFUSED),
    _attack("what makes boxes, started by itself", "import json\nours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)\nmade = subprocess.Popen([sys.executable, '-B', '/strop/zygote.pyc'], stdin=theirs.fileno(), stderr=subprocess.PIPE)\nours.send(json.dumps({'places': [['/tmp', 1 << 20]], 'roots': [], 'filter': '/dev/null'}).encode())\nprint(ours.recv(16))\nchannel, other = socket.socketpair()\nwith open('/tmp/words', 'w+') as words:\n    socket.send_fds(ours, [b'{\"uid\": 0}'], [other.fileno(), words.fileno()])\n    other.close()\n    said, fds, _, _ = socket.recv_fds(channel, 1, 1)\n    words.seek(0)\n    print('ESCAPED' if fds else 'refused', words.read())", REFUSED),
    _attack("every other family of sockets", "for family in (*range(3, 10), *range(11, 16), *range(17, 46)):\n    refused(socket.socket, family, socket.SOCK_STREAM)\n    call(41, ctypes.c_long(0x100000000 | family), 2, 0)\n    call(53, family, 1, 0, (ctypes.c_int * 2)())", REFUSED),
    _attack("calls by the numbers of x32", "#include <stdio.h>\n#include <unistd.h>\n#include <sys/syscall.h>\nint main() { puts(syscall(0x40000000 | 272, 0x10000000) < 0 && syscall(0x40000000 | 521, 0, 0, 0, 0) < 0 ? \"refused\" : \"ESCAPED\"); }", REFUSED, KILLED, language="c"),
    _attack("cores of crashes, for the machine's program that takes them", "for limits in ((0, 0), (1 << 20, 1 << 20)): refused(resource.setrlimit, resource.RLIMIT_CORE, limits)\ncall(160, resource.RLIMIT_CORE, (ctypes.c_ulong * 2)(0, 0))\nif os.fork() == 0: os.abort()\nos.wait()\nprint('ESCAPED' if [name for name in os.listdir('.') if name.startswith('core')] else 'refused')", REFUSED),
    _attack("a set-uid program of its own", "import shutil\nshutil.copy('/usr/bin/id', '/tmp/id')\nrefused(os.chown, '/tmp/id', 0, 0)\nos.chmod('/tmp/id', 0o6755)\nrefused(os.setxattr, '/tmp/id', 'security.capability', bytes.fromhex('0000000200000000ffffffff00000000ffffffff'))\ntold = subprocess.run(['/tmp/id', '-u'], capture_output=True, text=True).stdout\nprint('ESCAPED' if told == '0\\n' else 'refused')", REFUSED),
    _attack("all asynchronous reading of the machine", "call(206, 60000, ctypes.byref(ctypes.c_ulong(0)))", REFUSED),
    _attack("every disk of the machine flushed", "for _ in range(50): call(162)", REFUSED),
    _attack("System V memory that nobody removes", "libc.shmat.restype = ctypes.c_void_p\nfor _ in range(20):\n    one = libc.shmget(0, 20 << 20, 0o1777)\n    if one < 0: print('refused'); break\n    where = libc.shmat(one, None, 0)\n    ctypes.memset(where, 1, 20 << 20)\n    libc.shmdt(ctypes.c_void_p(where))\nelse: print('ESCAPED')", REFUSED, MEMORY, **_SMALL),
    _attack("semaphores and message queues left behind", "for key in range(1, 200):\n    libc.semget(key, 100, 0o1666); libc.msgget(key, 0o1666)\ndef queues():\n    for n in range(300):\n        if ctypes.CDLL('librt.so.1', use_errno=True).mq_open(b'/q%d' % n, 0o102, 0o600, None) < 0: raise OSError(n)\nrefused(queues)", REFUSED),
    _attack("timers without end", "def flood():\n    one = ctypes.c_void_p()\n    for _ in range(2000000):\n        if libc.timer_create(1, None, ctypes.byref(one)) < 0: raise OSError('timers')\nrefused(flood)", REFUSED, MEMORY, KILLED, **_SMALL),
    _attack("watches and polls without end", "fds = []\ntry:\n    for _ in range(400):\n        fds.append(libc.inotify_init1(0)); fds.append(libc.epoll_create1(0)); fds.append(libc.eventfd(0, 0))\n        if min(fds[-3:]) < 0: raise OSError('no more')\n    print('ESCAPED')\nexcept OSError:\n    print('refused')", REFUSED),
    _attack("descriptors in flight", "held = []\ndef fly():\n    for _ in range(100):\n        a, b = socket.socketpair(); held.extend((a, b))\n        for _ in range(5): socket.send_fds(a, [b'x'], [0] * 250)\nrefused(fly)", REFUSED),
    _attack("memory in sockets that nobody reads", "held, sent = [], 0\nlistener = socket.create_server(('127.0.0.1', 0))\ntry:\n    for _ in range(200):\n        a = socket.create_connection(listener.getsockname()); b, _ = listener.accept()\n        a.setblocking(False); b.setblocking(False); held += [a, b]\n        for one in (a, b):\n            try:\n                while True: sent += one.send(bytes(1 << 18))\n            except BlockingIOError: pass\nexcept OSError: pass\nprint('ESCAPED' if sent > 300 << 20 else 'contained', sent >> 20)", CONTAINED, MEMORY, KILLED, **_SMALL),
    _attack("links at fetched names into the kernel's files", "os.symlink('/proc/self/maps', 'a.txt')\nos.symlink('/proc/self/attr/current', 'b.txt')\nos.symlink('/proc/thread-self/environ', 'c.txt')\nos.symlink('/proc/version', 'd.txt')\nprint('contained')", CONTAINED, fetch_files=["a.txt", "b.txt", "c.txt", "d.txt"]),
    _attack("a link that changes while it is fetched", "if os.fork() == 0:\n    os.setsid()\n    if os.fork(): os._exit(0)\n    while True:\n        open('x', 'w').close(); os.replace('x', 'a.txt')\n        os.symlink('/proc/1/environ', 'y'); os.replace('y', 'a.txt')\ntime.sleep(0.1)\nprint('contained')", CONTAINED, fetch_files=["a.txt"] * 50),
    _attack("a name in files that no file can have", "print('ESCAPED')", REFUSED, files={"x" * 300: _X}),
    _attack("a name in files with signs that turn the direction", "print('ESCAPED' if os.listdir('.') == ['main.py'] else 'contained')", CONTAINED, files={"\u202ecod.exe\n": _X}),
    _attack("oom_score_adj of the init process", "for name in ('oom_score_adj', 'oom_adj', 'timerslack_ns', 'coredump_filter', 'autogroup', 'clear_refs'):\n    refused(lambda: os.write(os.open(f'/proc/1/{name}', os.O_WRONLY), b'15'))\nrefused(lambda: os.write(os.open('/proc/self/oom_score_adj', os.O_WRONLY), b'-1000'))", REFUSED),
)  # fmt: skip

ATTACKS = (
    *(*PROCESSES, *MEMORY_AND_DISK, *LOOKING, *KERNEL, *NETWORK),
    *(*PLAYING_WITH_THE_REQUEST, *BEHIND_THE_WALLS),
)
