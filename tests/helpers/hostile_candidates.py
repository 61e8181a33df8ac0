"""Kernels that attack whoever runs them; imported in contained children alone."""

import atexit
import builtins
import contextlib
import ctypes
import gc
import mmap
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import torch
from torch import Tensor

if __name__.startswith("tests."):
    raise ImportError("for contained children only")

LIBC = ctypes.CDLL(None, use_errno=True)


def honest(x: Tensor) -> Tensor:
    return torch.relu(x)


def kills_itself(x: Tensor) -> Tensor:
    os.kill(os.getpid(), signal.SIGKILL)
    return x


def exits(x: Tensor) -> Tensor:
    atexit.register(print, "hello")
    os._exit(0)


def closes_everything(x: Tensor) -> Tensor:
    os.closerange(0, 4096)
    while True:
        time.sleep(1)


def takes_memory(x: Tensor) -> Tensor:
    while True:
        HELD.append(torch.ones(1 << 24))


HELD: list[object] = []


def takes_shared_memory(x: Tensor) -> Tensor:
    """Take memory that limits of data do not count, in one process after the other."""
    while True:
        if os.fork() == 0:
            memory = mmap.mmap(-1, 64 << 20)
            memory.write(b"x" * (64 << 20))
            time.sleep(60)


def fills_the_disk(x: Tensor) -> Tensor:
    """Write many files, in whatever folders can be written to."""
    piece = b"x" * (1 << 20)
    for number in range(4096):
        with open(os.path.join(os.environ["HOME"], f"f{number}"), "wb") as file:
            file.write(piece)
        cache = os.environ["XDG_CACHE_HOME"]
        with open(os.path.join(cache, f"f{number}"), "wb") as file:
            file.write(piece)
    return torch.relu(x)


def writes_elsewhere(x: Tensor) -> Tensor:
    """Return where it could write outside its folders, as a count."""
    written = 0
    here = os.path.dirname(os.path.abspath(__file__))
    for folder in (
        here,
        "/tmp",
        "/",
        "/dev/shm",
        "/var/tmp",
        os.path.expanduser("~root"),
    ):
        try:
            name = os.path.join(folder, f"kfuzz-escaped-{os.getppid()}")
            with open(name, "w"):
                pass
            os.unlink(name)
            written += folder != "/dev/shm"
        except OSError:
            pass
    return torch.full_like(x, written)


def prints_much(x: Tensor) -> Tensor:
    piece = b"x" * (1 << 20)
    for _ in range(1024):
        os.write(1, piece)
    return torch.relu(x)


def forks(x: Tensor) -> Tensor:
    end = time.monotonic() + 2  # should nothing else end it
    while time.monotonic() < end:
        try:
            os.fork()
        except OSError:
            time.sleep(0.01)
    os._exit(0)


def loops(x: Tensor) -> Tensor:
    while True:
        pass


def sleeps(x: Tensor) -> Tensor:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(3600)
    return x


def leaves_a_daemon(x: Tensor) -> Tensor:
    """Leave a process behind that is nobody's child, in a session of its own."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execvp("sleep", ["sleep", "54321.5"])
        os._exit(0)
    time.sleep(0.1)
    return torch.relu(x)


def _descriptors() -> list[int]:
    return [int(name) for name in os.listdir("/proc/self/fd") if int(name) > 2]


def writes_to_descriptors(x: Tensor) -> Tensor:
    for descriptor in _descriptors():
        with contextlib.suppress(OSError):
            os.write(descriptor, b"\xff" * 64)
    return torch.relu(x)


def _send(*frames: bytes) -> None:
    for descriptor in _descriptors():
        try:
            sock = socket.socket(fileno=os.dup(descriptor))
            for frame in frames:
                sock.sendall(len(frame).to_bytes(4, "big") + frame)
        except OSError:
            pass


def answers_twice(x: Tensor) -> Tensor:
    _send(*[b'{"returned": {}, "number": %d}' % n for n in range(1, 9)])
    return torch.relu(x)


def answers_later(x: Tensor) -> Tensor:
    threading.Timer(0.05, _send, [b'{"number": 1}']).start()
    return torch.relu(x)


def announces_a_gigabyte(x: Tensor) -> Tensor:
    for descriptor in _descriptors():
        with contextlib.suppress(OSError):
            os.write(descriptor, (1 << 30).to_bytes(4, "big"))
    return torch.relu(x)


def nests(x: Tensor) -> Tensor:
    _send(b"[" * 500_000)
    return torch.relu(x)


LIE = (
    b'{"number": %d, "returned": {"many": false, "count": 1, "type": "Tensor",'
    b' "nesting": "", "call": 1, "late": false, "operators": [], "kernels": [],'
    b' "strays": [], "left": [],'
    b' "items": [{"type": "Tensor", "layout": "torch.strided",'
    b' "device": "cpu", "argument": null, "storage": 0, "carried": 0, "at": %d,'
    b' "geometry": {"dtype": "%s", "shape": %s, "strides": %s, "offset": %d}}]}}'
)


def _lie(at: int, dtype: bytes, shape: bytes, strides: bytes, offset: int) -> None:
    # The third message: what contains it, what it opens, what it returns.
    _send(LIE % (3, at, dtype, shape, strides, offset))
    time.sleep(30)


def lies_beyond(x: Tensor) -> Tensor:
    _lie(0, b"float32", b"[1099511627776]", b"[1]", 0)
    return x


def lies_about_type(x: Tensor) -> Tensor:
    _lie(0, b"Tensor", b"[4]", b"[1]", 0)
    return x


def patches_torch(x: Tensor) -> Tensor:
    """Make every comparison pass and every clock stand still, here at least."""
    yes = lambda *a, **k: True  # noqa: E731
    for name in ("equal", "allclose", "isclose"):
        setattr(torch, name, yes)
    for name in ("__eq__", "__ne__", "equal", "clone", "cpu", "contiguous", "numpy"):
        setattr(Tensor, name, lambda self, *a, **k: self)
    time.time = time.monotonic = time.perf_counter = lambda: 0.0
    gc.collect = lambda *a: 0
    torch.cuda.synchronize = lambda *a: None
    builtins.isinstance = yes
    builtins.all = yes
    for name in [n for n in sys.modules if n.startswith("kfuzz.")]:
        sys.modules[name].judge = yes  # type: ignore[attr-defined]
        del sys.modules[name]
    return x * 0


def _follow(frame: object, event: str, argument: object) -> object:
    """Change what the caller of the kernel holds."""
    local = getattr(frame, "f_locals", {})
    for value in list(local.values()):
        if type(value) is Tensor and value.dtype is torch.float32:
            value.fill_(7.0)
    return _follow


def follows_every_line(x: Tensor) -> Tensor:
    sys.settrace(_follow)
    sys._getframe().f_back.f_trace = _follow  # type: ignore[union-attr]
    return torch.relu(x)


def reads_its_parents(x: Tensor) -> Tensor:
    """Return of how many other processes it could read the memory or take hold."""
    found = 0
    own = {os.getpid()}
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) in own:
            continue
        if not _runs_kfuzz(name):
            continue
        try:
            with open(f"/proc/{name}/mem", "r+b", buffering=0):
                found += 1
        except OSError:
            pass
        found += LIBC.ptrace(16, int(name), 0, 0) == 0  # PTRACE_ATTACH
    return torch.full_like(x, found)


def _runs_kfuzz(name: str) -> bool:
    try:
        with open(f"/proc/{name}/cmdline", "rb") as file:
            line = file.read()
    except OSError:
        return False
    return b"kfuzz" in line or b"pytest" in line


def signals_others(x: Tensor) -> Tensor:
    """Return how many processes outside it may signal."""
    found = 0
    for pid in (os.getppid(), *range(2, 4)):
        try:
            if pid not in (0, os.getpid()):
                os.kill(pid, 0)
                found += pid != 1
        except OSError:
            pass
    return torch.full_like(x, found)


def connects(x: Tensor) -> Tensor:
    """Return whether it could reach a listener on this machine."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "port")) as file:
        port = int(file.read())
    try:
        socket.create_connection(("127.0.0.1", port), timeout=2).close()
    except OSError:
        return torch.zeros_like(x)
    return torch.ones_like(x)


def tells_its_environment(x: Tensor) -> Tensor:
    return torch.full_like(x, sum("SECRET" in k + v for k, v in os.environ.items()))


def writes_later(x: Tensor) -> Tensor:
    """Return what a thread goes on counting in."""
    y = torch.zeros_like(x)

    def work() -> None:
        for _ in range(2000):
            y.add_(1)
            time.sleep(0.001)

    threading.Thread(target=work, daemon=True).start()
    return y


class Lazy(Tensor):
    """A tensor that computes when somebody looks."""


def lazy(x: Tensor) -> Tensor:
    return torch.relu(x).as_subclass(Lazy)


def opens_a_shell(x: Tensor) -> Tensor:
    """Run a program, and use the folders and devices that every program may."""
    command = [
        "sh",
        "-c",
        "mktemp >/dev/null && head -c 1 /dev/urandom >$HOME/x; echo 1",
    ]
    said = subprocess.run(command, capture_output=True, check=True)
    return torch.relu(x) * int(said.stdout)


# Kernels that are merely wrong, each in a way that a evaluator sees.


def writes_past_the_end(x: Tensor) -> Tensor:
    ctypes.memset(x.data_ptr() + x.numel() * x.element_size(), 0, 4)
    return torch.relu(x)


def zeroes_its_input(x: Tensor) -> Tensor:
    y = torch.relu(x)
    x.zero_()
    return y


def moves_its_input(x: Tensor) -> Tensor:
    y = torch.relu(x)
    x.set_(torch.zeros_like(x))
    return y


def turns_its_input(x: Tensor) -> Tensor:
    y = torch.relu(x)
    x.t_()
    return y


def has_its_input_elsewhere(x: Tensor) -> Tensor:
    x.data = x.data.clone()
    return torch.relu(x)


def returns_its_input(x: Tensor) -> Tensor:
    return x.relu_()


def in_place(x: Tensor) -> Tensor:
    return x.relu_()


BUFFERS: dict[object, Tensor] = {}
MEMO: dict[int, Tensor] = {}


def shares_a_buffer(x: Tensor) -> Tensor:
    buffer = BUFFERS.setdefault(x.shape, torch.empty_like(x))
    return torch.relu(x, out=buffer) if False else buffer.copy_(torch.relu(x))


def remembers_addresses(x: Tensor) -> Tensor:
    if x.data_ptr() not in MEMO:
        MEMO[x.data_ptr()] = torch.relu(x)
    return MEMO[x.data_ptr()].clone()


def leaves_a_tail(x: Tensor) -> Tensor:
    y = torch.empty(x.shape, dtype=x.dtype)
    y[:-1] = torch.relu(x[:-1])
    return y


def expects_contiguous(x: Tensor) -> Tensor:
    flat = torch.as_strided(x, (x.numel(),), (1,), x.storage_offset())
    return torch.relu(flat).reshape(x.shape)


def raises(x: Tensor) -> Tensor:
    raise ZeroDivisionError("no such luck")


def says_that_memory_ran_out(x: Tensor) -> Tensor:
    return torch.empty(1 << 50, dtype=torch.uint8)


def of_other_size(x: Tensor) -> Tensor:
    return torch.zeros(1 << 20)


def of_other_dtype(x: Tensor) -> Tensor:
    return torch.relu(x).half()


def a_mapping(x: Tensor) -> object:
    return {"y": torch.relu(x)}


def prints_later(x: Tensor) -> Tensor:
    """Print more than it may once it has answered."""

    def flood() -> None:
        time.sleep(0.3)
        for _ in range(100):
            os.write(1, bytes(1 << 16))

    threading.Thread(target=flood, daemon=True).start()
    return torch.relu(x)


def _ancestor(generations: int) -> int:
    pid = os.getpid()
    for _ in range(generations):
        with open(f"/proc/{pid}/stat") as file:
            pid = int(file.read().rpartition(")")[2].split()[1])
    return pid


def stops_what_watches_it(x: Tensor) -> Tensor:
    """Have no limit on processes and memory hold; it knows that there are two above."""
    os.kill(_ancestor(2), signal.SIGSTOP)
    return torch.relu(x)


_PARENTS: dict[str, int] = {}


def outlives_its_parent(x: Tensor) -> Tensor:
    """End the process that ends as it does, and go on."""
    parent = _ancestor(1)
    if _PARENTS.setdefault("first", parent) == parent:
        LIBC.prctl(1, 0)  # PR_SET_PDEATHSIG
        os.kill(parent, signal.SIGKILL)
        time.sleep(0.3)
    return torch.relu(x)


def kills_its_parent(x: Tensor) -> Tensor:
    with contextlib.suppress(OSError):
        os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(0.2)
    return torch.relu(x)
