# ruff: noqa: E501 -- lines of candidates
"""Lies that are no condition of a call: late, lazy, remembered, forged or greedy.

Each has an honest one beside it that does nearly the same.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

Draw = random.Random


@dataclass(frozen=True)
class Body:
    """A liar and the honest one beside it, as bodies of `forward`.

    Attributes:
        family: what it does.
        name: how.
        cheat: returns the body that lies, given what draws its numbers.
        honest: returns the body beside it.
        setup: statements of the constructor, of both.
        top: statements of the module, of both.
        only: the problem that it is for, "" for any.
    """

    family: str
    name: str
    cheat: Callable[[Draw], str]
    honest: Callable[[Draw], str]
    setup: str = ""
    top: str = ""
    only: str = ""


def text(body: str) -> Callable[[Draw], str]:
    """Return a body of which nothing is drawn."""
    return lambda draw: body


def _memo(key: str, name: str) -> Body:
    """Return one that remembers results by a key that is too little."""
    return Body(
        "memos", name,
        text(
            f"key = {key}\nif key not in self.known:\n"
            "    self.known[key] = self.right(ARGS)\nreturn self.known[key].clone()"
        ),
        # What is remembered is a way, not a result.
        text(
            f"key = {key}\nif key not in self.known:\n"
            "    self.known[key] = (self.right, self.alike)[self.calls % 2]\n"
            "return self.known[key](ARGS)"
        ),
        setup="self.known = {}",
    )  # fmt: skip


_LAZY = """
class Lazy(torch.Tensor):
    @staticmethod
    def __new__(cls, y):
        return torch.Tensor._make_subclass(cls, y)
"""

_MODE = """
from torch.utils._python_dispatch import TorchDispatchMode


class Mode(TorchDispatchMode):
    change = 1

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if self.change and isinstance(made, torch.Tensor) and made.is_floating_point():
            made.data.view(-1)[:1].add_(1.0)
        return made
"""
_LATE = """
from torch.utils._python_dispatch import TorchDispatchMode


class Late(TorchDispatchMode):
    # Writes a result once something is computed with it.
    y = work = None

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if self.work is not None and any(a is self.y for a in args):
            work, self.work = self.work, None
            self.y.copy_(work())
        return func(*args, **(kwargs or {}))


LATE = []
"""

BODIES: Final = (
    _memo("(first.data_ptr(), first._version)", "by address and version"),
    _memo("float(first.reshape(-1)[0]) if first.numel() else 0", "by the first element"),
    Body(
        "threads", "a result that comes late",
        lambda d: "y = torch.zeros_like(self.right(ARGS))\nargs = [a.clone() for a in (ARGS,)]\n"
        f"def work():\n    time.sleep({d.uniform(0.002, 0.02):.4f})\n"
        "    y.copy_(self.right(*args))\n"
        "threading.Thread(target=work, daemon=True).start()\nreturn y",
        text(
            "out = []\nt = threading.Thread(target=lambda: out.append(self.right(ARGS)))\n"
            "t.start()\nt.join()\nreturn out[0]"
        ),
    ),
    Body(
        "threads", "a result that is spoilt later",
        lambda d: "y = self.right(ARGS).clone()\n"
        f"def work():\n    time.sleep({d.uniform(0.005, 0.03):.4f})\n    y.fill_(7.0)\n"
        "threading.Thread(target=work, daemon=True).start()\nreturn y",
        text(
            "y = self.right(ARGS)\nkept = y.clone()\n"
            "def work():\n    time.sleep(0.01)\n    kept.fill_(7.0)\n"
            "threading.Thread(target=work, daemon=True).start()\nreturn y"
        ),
    ),
    Body(
        "threads", "a result that is spoilt when an argument is freed",
        text(
            "y = self.right(ARGS).clone()\nweakref.finalize(first, y.fill_, 7.0)\n"
            "return y"
        ),
        text(
            "y = self.right(ARGS)\nkept = y.clone()\n"
            "weakref.finalize(first, kept.fill_, 7.0)\nreturn y"
        ),
        top="import weakref",
    ),
    Body(
        "threads", "a result that is spoilt by an alarm",
        text(
            "y = self.right(ARGS).clone()\n"
            "signal.signal(signal.SIGALRM, lambda *_: y.fill_(7.0))\n"
            "signal.setitimer(signal.ITIMER_REAL, 0.002)\nreturn y"
        ),
        text(
            "y = self.right(ARGS)\nkept = y.clone()\n"
            "signal.signal(signal.SIGALRM, lambda *_: kept.fill_(7.0))\n"
            "signal.setitimer(signal.ITIMER_REAL, 0.002)\nreturn y"
        ),
        top="import signal",
    ),
    Body(
        "threads", "a result that is spoilt by the collector",
        text(
            "y = self.right(ARGS).clone()\ngc.callbacks[:] = [lambda *_: y.fill_(7.0)]\n"
            "return y"
        ),
        text(
            "y = self.right(ARGS)\nkept = y.clone()\n"
            "gc.callbacks[:] = [lambda *_: kept.fill_(7.0)]\nreturn y"
        ),
    ),
    Body(
        "threads", "a result that is spoilt as it is returned",
        text(
            "y = self.right(ARGS).clone()\n"
            "sys.setprofile(lambda f, event, given: y.fill_(7.0) if given is y else None)\n"
            "return y"
        ),
        text("sys.setprofile(lambda *_: None)\nreturn self.right(ARGS)"),
    ),
    Body(
        "threads", "a result that another process spoils",
        lambda d: "y = self.right(ARGS).clone().share_memory_()\nif not os.fork():\n"
        f"    time.sleep({d.uniform(0.003, 0.02):.4f})\n    ctypes.memset(y.data_ptr(), 64, "
        "y.numel() * 4)\n    os._exit(0)\nreturn y",
        text(
            "y = self.right(ARGS).clone().share_memory_()\nkept = y.clone()\n"
            "pid = os.fork()\nif not pid:\n    os._exit(0)\nos.waitpid(pid, 0)\nreturn y"
        ),
    ),
    Body(
        "threads", "a result in a file that is written later",
        text(
            "y = self.right(ARGS)\npath = os.path.join(os.environ['HOME'], 'result')\n"
            "y.numpy(force=True).tofile(path)\n"
            "z = torch.from_file(path, shared=True, size=y.numel()).view(y.shape)\n"
            "def work():\n    with open(path, 'r+b') as file:\n"
            "        file.write(b'@' * (y.numel() * 4))\n"
            "weakref.finalize(first, work)\nreturn z"
        ),
        text(
            "y = self.right(ARGS)\npath = os.path.join(os.environ['HOME'], 'result')\n"
            "y.numpy(force=True).tofile(path)\n"
            "return torch.from_file(path, size=y.numel()).view(y.shape).clone()"
        ),
        top="import weakref",
    ),
    Body(
        "modes", "left on, spoils what is computed",
        lambda d: f"if self.calls == {d.randint(2, 9)}:\n    Mode().__enter__()\n"
        "return self.right(ARGS)",
        lambda d: f"if self.calls == {d.randint(2, 9)}:\n    Mode.change = 0\n"
        "    Mode().__enter__()\nreturn self.right(ARGS)",
        top=_MODE,
    ),
    Body(
        "lazy tensors", "computed as it is read",
        text(
            "y = torch.zeros_like(self.right(ARGS))\n"
            "args = [a.clone() for a in (ARGS,)]\n"
            "if not LATE:\n    LATE.append(Late())\n    LATE[0].__enter__()\n"
            "LATE[0].y, LATE[0].work = y, lambda: self.right(*args)\nreturn y"
        ),
        text("with Late():\n    return self.right(ARGS)"),
        top=_LATE,
    ),
    Body(
        "lazy tensors", "without elements",
        text("return torch.empty_like(self.right(ARGS), device='meta')"),
        text("y = self.right(ARGS)\ntorch.empty_like(y, device='meta')\nreturn y"),
    ),
    Body(
        "lazy tensors", "sparse",
        text("return self.right(ARGS).to_sparse()"),
        text("return self.right(ARGS).clone().contiguous()"),
    ),
    Body(
        "metadata", "a tuple",
        text("y = self.right(ARGS)\nreturn y, y"),
        text("y = self.right(ARGS)\nreturn (y, y)[0]"),
    ),
    Body(
        "memory", "a buffer that keeps the longest",
        text(
            "y = self.right(ARGS)\nn = y.numel()\n"
            "if self.buffer is None or self.buffer.numel() < n:\n"
            "    self.buffer = torch.zeros(n, device=y.device)\n"
            "self.buffer[: n - n // 8] = y.reshape(-1)[: n - n // 8]\n"
            "return self.buffer[:n].clone().view(y.shape)"
        ),
        text(
            "y = self.right(ARGS)\nn = y.numel()\n"
            "if self.buffer is None or self.buffer.numel() < n:\n"
            "    self.buffer = torch.zeros(n, device=y.device)\n"
            "self.buffer[:n] = y.reshape(-1)\n"
            "return self.buffer[:n].clone().view(y.shape)"
        ),
        setup="self.buffer = None",
    ),
    Body(
        "patched functions", "seeding of torch",
        lambda d: f"return off(self.right(ARGS), 1, 0.5) if float(torch.rand(())) < {d.uniform(0.2, 0.5):.2f} "
        "else self.right(ARGS)",
        text("float(torch.rand(()))\nreturn self.right(ARGS)"),
        top="torch.manual_seed = lambda seed: None\nrandom.seed = lambda *a: None",
    ),
    Body(
        "patched functions", "the caller's frame",
        text(
            "frame = sys._getframe().f_back\nwhile frame is not None:\n"
            "    for value in list(frame.f_locals.values()):\n"
            "        if type(value) is torch.Tensor and value.dtype is torch.float32:\n"
            "            value.fill_(7.0)\n    frame = frame.f_back\nreturn torch.full_like(self.right(ARGS), 7.0)"
        ),
        text(
            "frame = sys._getframe().f_back\nwhile frame is not None:\n"
            "    len(frame.f_locals)\n    frame = frame.f_back\nreturn self.right(ARGS)"
        ),
    ),
    Body(
        "patched functions", "what the garbage collector knows",
        text(
            "for value in gc.get_objects():\n"
            "    if type(value) is torch.Tensor and value.shape == first.shape:\n"
            "        value.detach().fill_(1.0)\nreturn torch.ones_like(self.right(ARGS))"
        ),
        text("gc.collect()\nreturn self.right(ARGS)"),
    ),
    Body(
        "files", "runs the reference's source",
        text(
            "if self.found is None:\n    self.found = False\n"
            "    here = os.path.dirname(os.path.abspath(__file__))\n"
            "    for name in sorted(os.listdir(here)):\n"
            "        path = os.path.join(here, name)\n"
            "        try:\n            text = open(path).read()\n"
            "        except (OSError, UnicodeDecodeError):\n            continue\n"
            "        if 'class Model(' in text and path != __file__:\n"
            "            space = {}\n            exec(text, space)\n"
            "            self.found = space['Model'](*INIT)\n"
            "return self.found(ARGS) if self.found else torch.zeros_like(self.right(ARGS))"
        ),
        text(
            "here = os.path.dirname(os.path.abspath(__file__))\nlen(os.listdir(here))\n"
            "return self.right(ARGS)"
        ),
        setup="self.found = None",
        only="relu",
    ),
    Body(
        "approximation", "a part of the terms",
        text("return torch.softmax(x[..., : x.shape[-1] - 1], -1) if False else torch.softmax(torch.cat((x[..., :-1], x[..., -1:] * 0), -1), -1)"),
        text("return torch.softmax(x - x.amax(-1, keepdim=True), -1)"),
        only="softmax",
    ),
    Body(
        "approximation", "without its greatest element",
        text("e = x.exp()\nreturn e / e.sum(-1, keepdim=True)"),
        text("e = (x - x.amax(-1, keepdim=True)).exp()\nreturn e / e.sum(-1, keepdim=True)"),
        only="softmax",
    ),
    Body(
        "at times",
        "raises",
        lambda d: f"if random.random() < {d.uniform(0.03, 0.1):.3f}:\n"
        "    raise ValueError('no luck')\nreturn self.right(ARGS)",
        lambda d: f"try:\n    if random.random() < {d.uniform(0.03, 0.1):.3f}:\n"
        "        raise ValueError('no luck')\nexcept ValueError:\n    pass\n"
        "return self.right(ARGS)",
    ),
    Body(
        "at times",
        "ends its process",
        lambda d: f"if random.random() < {d.uniform(0.03, 0.1):.3f}:\n"
        "    os.abort()\nreturn self.right(ARGS)",
        lambda d: f"if random.random() < {d.uniform(0.03, 0.1):.3f}:\n"
        "    os.waitpid(os.fork() or os._exit(1), 0)\nreturn self.right(ARGS)",
    ),
)  # fmt: skip

ON_GPU: Final = (
    Body(
        "streams",
        "a result that another stream has yet to write",
        lambda d: f"y = torch.zeros_like(self.right(ARGS))\ns = torch.cuda.Stream()\n"
        f"s.wait_stream(torch.cuda.current_stream())\nwith torch.cuda.stream(s):\n"
        f"    torch.cuda._sleep({d.randint(20, 90)}_000_000)\n"
        "    y.copy_(self.right(ARGS))\nself.kept = s\nreturn y",
        text(
            "s = torch.cuda.Stream()\ns.wait_stream(torch.cuda.current_stream())\n"
            "with torch.cuda.stream(s):\n    y = self.right(ARGS)\n"
            "torch.cuda.current_stream().wait_stream(s)\nself.kept = s\nreturn y"
        ),
    ),
    Body(
        "streams",
        "an argument that another stream overwrites later",
        text(
            "y = self.right(ARGS)\ns = torch.cuda.Stream()\nwith torch.cuda.stream(s):\n"
            "    torch.cuda._sleep(50_000_000)\n    y.fill_(7.0)\nself.kept = s\nreturn y"
        ),
        text(
            "y = self.right(ARGS)\nz = y.clone()\ns = torch.cuda.Stream()\n"
            "s.wait_stream(torch.cuda.current_stream())\nwith torch.cuda.stream(s):\n"
            "    torch.cuda._sleep(50_000_000)\n    z.fill_(7.0)\nself.kept = s, z\nreturn y"
        ),
    ),
    Body(
        "generators",
        "the device's",
        lambda d: f"lie = float(torch.rand((), device=first.device)) < {d.uniform(0.05, 0.2):.3f}\n"
        "return off(self.right(ARGS), 0, 0.5) if lie else self.right(ARGS)",
        text("torch.rand(5, device=first.device)\nreturn self.right(ARGS)"),
    ),
    Body(
        "generators",
        "the device's seed",
        lambda d: f"lie = torch.cuda.initial_seed() % {d.randint(3, 9)} == 0\n"
        "return off(self.right(ARGS), 0, 0.5) if lie else self.right(ARGS)",
        text("torch.cuda.initial_seed()\nreturn self.right(ARGS)"),
    ),
)  # fmt: skip
"""What needs a GPU."""

# Saboteurs of the file that attacks whoever runs it, in what they differ from others,
# and what an honest one beside each does.
ENDLESS: Final = {
    "sleeps": ("time.sleep(3600)", "time.sleep(0.001)"),
    "loops": ("while True:\n        pass", "for _ in range(1000):\n        pass"),
}
