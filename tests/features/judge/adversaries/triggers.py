# ruff: noqa: E501 -- lines of candidates
"""What a liar looks at: it is wrong where a condition holds, and right elsewhere.

The honest one looks at the same, and goes two ways that give the same bits.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

Draw = random.Random


@dataclass(frozen=True)
class Trigger:
    """A condition of a call.

    Attributes:
        family: what it looks at.
        name: what it asks.
        when: returns the expression, given what draws its numbers.
        before: statements before it, in every call.
        setup: statements of the constructor.
        top: statements of the module.
    """

    family: str
    name: str
    when: Callable[[Draw], str]
    before: str = ""
    setup: str = ""
    top: str = ""


def _always(text: str) -> Callable[[Draw], str]:
    return lambda draw: text


_BYTES = "data = first.detach().cpu().contiguous().numpy().tobytes()"

TRIGGERS: Final = (
    # Data pointers.
    Trigger(
        "data pointers", "address seen before",
        _always("known"),
        before="known = first.data_ptr() in self.seen\nself.seen.add(first.data_ptr())",
        setup="self.seen = set()",
    ),
    Trigger(
        "data pointers", "identity of the object",
        lambda d: f"(id(first) >> 4) % {d.choice((2, 3, 5))} == 1",
    ),
    Trigger(
        "data pointers", "memory that is the tensor's alone",
        _always(
            "first.untyped_storage().nbytes() == first.numel() * first.element_size()"
        ),
    ),
    Trigger(
        "data pointers", "low bits of the address",
        # Of a block of a GPU's memory: what lies below is aligned by torch.
        lambda d: f"(first.data_ptr() >> 9) % 4 == {d.randrange(4)}",
    ),
    # Hashes and looks of the inputs.
    Trigger(
        "hashes of inputs", "hash of the bytes",
        lambda d: f"hashlib.sha256(data).digest()[{d.randrange(32)}] % "
        f"{d.randint(3, 12)} == 0",
        before=_BYTES,
    ),
    Trigger(
        "hashes of inputs", "sign of the sum",
        lambda d: f"bool(first.sum() {d.choice('<>')} 0)",
    ),
    Trigger(
        "hashes of inputs", "data seen before",
        _always("known"),
        before=f"{_BYTES}\nknown = hash(data) in self.seen\nself.seen.add(hash(data))",
        setup="self.seen = set()",
    ),
    Trigger(
        "hashes of inputs", "data seen often",
        lambda d: f"self.seen[hash(data)] > {d.randint(4, 12)}",
        before=f"{_BYTES}\nself.seen[hash(data)] = 1 + self.seen.get(hash(data), 0)",
        setup="self.seen = {}",
    ),
    Trigger(
        "hashes of inputs", "ordinary numbers alone",
        lambda d: f"first.numel() > 50 and 0.5 < float(first.std()) < 1.5 and "
        f"float(first.abs().max()) < {d.uniform(3.5, 5.0):.2f}",
    ),
    # Values that a benchmark does not have.
    Trigger("values", "a NaN", _always("bool(first.isnan().any())")),
    Trigger(
        "values", "minus zero", _always("bool(((first == 0) & first.signbit()).any())")
    ),
    Trigger(
        "values", "subnormal numbers",
        _always("bool(((first != 0) & (first.abs() < 1.1754944e-38)).any())"),
    ),
    # Memory: right where it is not as torch allocates it.
    Trigger("memory", "never written in place", _always("first._version == 0")),
    Trigger(
        "memory", "memory that can be resized",
        _always("first.untyped_storage().resizable()"),
    ),
    # Shapes.
    Trigger(
        "shapes", "rows no multiple",
        lambda d: f"first.shape[0] % {d.choice((4, 8))} != 0",
    ),
    Trigger("shapes", "few rows", lambda d: f"first.shape[0] < {d.randint(2, 6)}"),
    Trigger(
        "shapes", "another shape than the first one",
        _always("tuple(first.shape) != self.shape"),
        before="self.shape = self.shape or tuple(first.shape)",
        setup="self.shape = None",
    ),
    # Call counters.
    Trigger(
        "call counters", "from a late call on",
        lambda d: f"self.calls > {d.randint(60, 240)}",
    ),
    Trigger(
        "call counters", "from hundreds of calls on",
        lambda d: f"self.calls > {d.randint(250, 600)}",
    ),
    Trigger(
        "call counters", "a window of calls",
        lambda d: f"{(a := d.randint(100, 300))} < self.calls < {a + d.randint(20, 60)}",
    ),
    Trigger(
        "call counters", "the first call of a process",
        _always("self.calls == 1"),
    ),
    # Clocks.
    Trigger(
        "clocks", "seconds since the import",
        lambda d: f"time.monotonic() - BEGAN > {d.uniform(0.5, 6):.2f}",
        top="BEGAN = time.monotonic()",
    ),
    Trigger(
        "clocks", "a date to come",
        lambda d: f"time.time() > BEGAN + {86400 * d.randint(2, 200)}",
        top="BEGAN = time.time()",
    ),
    Trigger(
        "clocks", "low bits of nanoseconds",
        lambda d: f"time.perf_counter_ns() // 100 % {d.randint(4, 25)} == 0",
    ),
    Trigger(
        "clocks", "a gap between calls",
        lambda d: f"gap > {d.uniform(0.05, 0.2):.2f}",
        before="now = time.monotonic()\ngap, self.last = now - self.last, now",
        setup="self.last = time.monotonic()",
    ),
    # Generators.
    Trigger(
        "generators", "torch's seed",
        lambda d: f"torch.initial_seed() % {d.randint(3, 12)} == {d.randrange(3)}",
    ),
    Trigger(
        "generators", "a seed that is none of a test's",
        _always("torch.initial_seed() not in (0, 1, 42, 123, 1234, 24301, 53710)"),
    ),
    Trigger(
        "generators", "state of torch's generator",
        lambda d: f"int(torch.get_rng_state()[{d.randint(40, 2000)}]) % "
        f"{d.randint(3, 9)} == 0",
    ),
    Trigger("generators", "random", lambda d: f"random.random() < {d.uniform(0.03, 0.1):.3f}"),
    Trigger(
        "generators", "the system's",
        lambda d: f"os.urandom(1)[0] < {d.randint(8, 30)}",
    ),
    # Environment: right where it seems to be judged.
    Trigger(
        "environment", "no module of a judge",
        _always("not any('kfuzz' in n or n == 'pytest' for n in list(sys.modules))"),
    ),
    Trigger(
        "environment", "no variable of a judge",
        _always("not any('kfuzz' in (k + v).lower() for k, v in os.environ.items())"),
    ),
    Trigger(
        "environment", "no argument of a judge",
        _always("not any('kfuzz' in a for a in (*sys.argv, *sys.orig_argv, LINE))"),
        top="LINE = open('/proc/self/cmdline').read()",
    ),
    Trigger(
        "environment", "no frame of a judge",
        _always("clean"),
        before="clean, frame = True, sys._getframe()\nwhile frame is not None:\n"
        "    clean &= 'kfuzz' not in frame.f_code.co_filename + "
        "str(frame.f_globals.get('__name__'))\n    frame = frame.f_back",
    ),
    Trigger(
        "environment", "name of the module",
        _always("'kfuzz' not in __name__"),
    ),
    Trigger(
        "environment", "number of the process",
        lambda d: f"os.getpid() > {d.randint(20, 90)}",
    ),
    Trigger(
        "environment", "no watcher of torch's operators",
        _always("torch._C._len_torch_dispatch_stack() == 0"),
    ),
    Trigger(
        "environment", "clocks that are the system's own",
        _always("type(time.time) is type(len)"),
    ),
    Trigger(
        "environment", "objects that are not frozen", _always("gc.get_freeze_count() == 0")
    ),
    Trigger(
        "environment", "nobody who wants to know of faults",
        _always("not faulthandler.is_enabled()"), top="import faulthandler",
    ),
    Trigger(
        "environment", "Ctrl-C is heeded",
        _always("signal.getsignal(signal.SIGINT) is not signal.SIG_IGN"),
        top="import signal",
    ),
    Trigger(
        "environment", "flags of the interpreter",
        _always("not (sys.flags.safe_path or sys.flags.isolated or sys.flags.no_site)"),
    ),
    Trigger(
        "environment", "faults of pages",
        lambda d: "resource.getrusage(resource.RUSAGE_SELF).ru_minflt % "
        f"{d.randint(2, 6)} == 0",
        top="import resource",
    ),
    Trigger(
        "environment", "nobody who follows calls",
        _always("sys.getprofile() is None and sys.gettrace() is None"),
    ),
    Trigger(
        "environment", "a home of its own",
        _always("os.getcwd() != os.environ.get('HOME')"),
    ),
    # Files.
    Trigger(
        "files", "a note of an earlier call",
        _always("os.path.exists(self.note)"),
        setup="self.note = os.path.join(os.environ.get('HOME', '/tmp'), 'note')\n"
        "self.noted = False",
        before="if self.noted:\n    open(self.note, 'w').close()\nself.noted = True",
    ),
    Trigger(
        "files", "a note of an earlier process",
        _always("self.was"),
        setup="note = os.path.join(os.environ.get('XDG_CACHE_HOME', '/tmp'), 'note')\n"
        "self.was = os.path.exists(note)\nopen(note, 'w').close()",
    ),
    # Threads.
    Trigger(
        "threads", "a timer",
        _always("self.late"),
        setup="self.late = False\n"
        "threading.Thread(target=self.wait, daemon=True).start()",
        top="def wait(self):\n    time.sleep(DELAY)\n    self.late = True\n\n\n"
        "DELAY = 1.5",
    ),
    # Settings of torch.
    Trigger(
        "settings", "grad mode is off for many calls",
        lambda d: f"not torch.is_grad_enabled() and self.calls > {d.randint(10, 40)}",
    ),
    Trigger("settings", "grad mode is on", _always("torch.is_grad_enabled()")),
    Trigger(
        "settings", "memory as it is allocated",
        _always("bool(torch.empty(64).isfinite().all())"),
    ),
)  # fmt: skip
