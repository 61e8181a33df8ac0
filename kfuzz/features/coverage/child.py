"""The child of a coverage-guided search: libFuzzer chooses bytes, the campaign paces.

libFuzzer never gives its thread back, so it has one of its own; requests are answered
in the main one, where kernels run as in any other child. libFuzzer waits while a case
runs, so that what is drawn depends on the seed, the inputs at the start and what the
cases reached, never on the clock.
"""

import contextlib
import gc
import hashlib
import inspect
import json
import os
import queue
import random
import signal
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Final

from hypothesis.strategies import SearchStrategy

from kfuzz.contracts.binding import BoundKernel
from kfuzz.core.budget import Depth
from kfuzz.core.codec import encode
from kfuzz.core.recipe import Case
from kfuzz.evaluation.drawing import fuzz_target, strategy_of
from kfuzz.evaluation.worker import Reply, Worker

# Changing the bytes that cases are drawn from.
#
# Hypothesis reads one draw after the other from the bytes, each from bytes of its own,
# so that a byte changed in place changes one draw and what depends on it. libFuzzer's
# own changes mostly shift bytes, after which every later draw is another one.

# What an input lacks at its end is made from its hash. No case reads more than this.
PADDING: Final = 512
# Bytes of an input that is all padding: a case drawn afresh.
FRESH_BYTES: Final = 8
MOST_BYTES: Final = 1024
# Inputs whose bytes are remembered as they were read.
_REMEMBERED: Final = 8192

# Shares of the changes, in 16ths; the rest are bytes changed in place.
_FRESH: Final = 2
_NEW_TAIL: Final = 2
_LIBFUZZER: Final = 1
# How many bytes are changed in place.
_PLACES: Final = (1, 1, 1, 2, 2, 3)

Mutate = Callable[[bytes, int], bytes]


def padded(data: bytes) -> bytes:
    """Return the bytes of an input, with as many behind as a case may read."""
    return data + hashlib.shake_128(data).digest(PADDING)


class Mutator:
    """Makes new inputs from those that reached something.

    Args:
        libfuzzer: libFuzzer's own change: bytes and the greatest size to bytes.
    """

    def __init__(self, libfuzzer: Mutate) -> None:
        self._libfuzzer = libfuzzer
        self._read: OrderedDict[bytes, bytes] = OrderedDict()

    def learn(self, data: bytes, read: bytes) -> None:
        """Remember which bytes a case read of an input and its padding."""
        self._read[data] = read
        if len(self._read) > _REMEMBERED:
            self._read.popitem(last=False)

    def mutate(self, data: bytes, most: int, seed: int) -> bytes:
        """Return another input."""
        chance = random.Random(seed)
        whole = bytearray(self._read.get(data, data))
        kind = chance.randrange(16)
        if kind < _FRESH or not whole:
            return chance.randbytes(FRESH_BYTES)[:most]
        if kind < _FRESH + _NEW_TAIL:
            whole = whole[: chance.randrange(len(whole))]
            return bytes(whole + chance.randbytes(FRESH_BYTES))[:most]
        if kind < _FRESH + _NEW_TAIL + _LIBFUZZER:
            return bytes(self._libfuzzer(bytes(whole), most))
        for _ in range(chance.choice(_PLACES)):
            whole[chance.randrange(len(whole))] = chance.randrange(256)
        return bytes(whole)[:most]

    def cross(self, data: bytes, other: bytes, most: int, seed: int) -> bytes:
        """Return the beginning of one input with the end of another."""
        one, two = self._read.get(data, data), self._read.get(other, other)
        cut = random.Random(seed).randrange(min(len(one), len(two)) + 1)
        return (one[:cut] + two[cut:])[:most]


# Inputs in a row that give no case that was not judged before: the domain is used up.
BARREN: Final = 5000
_NEVER: Final = 2**31 - 1  # seconds
_SIGNALS: Final = (
    "abrt", "bus", "fpe", "ill", "int", "segv", "term", "usr1", "usr2", "xfsz",
)  # fmt: skip


class CoverageWorker(Worker):
    """Draws cases and judges them besides what every child does."""

    def __init__(self) -> None:
        super().__init__()
        self._explorer: Explorer | None = None
        self._case: Case | None = None

    def explore(self, folders: list[str], seed: int) -> Reply:
        """Start libFuzzer; see `Explorer.start`."""
        evaluator = self._need()
        drawn = strategy_of(evaluator.kernel, evaluator.setting.budget)
        assert drawn is not None  # it has been drawn from
        self._explorer = Explorer(drawn)
        instrumented = self._explorer.instrument(own_functions(evaluator.kernel))
        self._explorer.start(folders, seed=seed)
        return {"functions": instrumented}

    def draw(self) -> Reply:
        """Draw the next case, None if there are no more."""
        assert self._explorer is not None
        self._case = self._explorer.draw()
        return {"case": self._case}

    def attempt(self) -> Reply:
        """Judge the case that was drawn last."""
        assert self._explorer is not None
        assert self._case is not None
        reply = self.judge(self._case, Depth.SEARCH)
        self._explorer.go_on()
        return reply


class Explorer:
    """libFuzzer in a thread of its own, which stops at every case it has drawn.

    Args:
        cases: the strategy that bytes are turned into cases by.
    """

    def __init__(self, cases: SearchStrategy[Case]) -> None:
        # The zygote imports this module, and need not load what one child uses.
        import atheris

        self._atheris = atheris
        self._target = fuzz_target(cases, self._once)
        # Setup puts another function there.
        self._mutator = Mutator(lambda data, most: atheris.Mutate(data, most))
        self._seen: set[bytes] = set()
        self._barren = 0
        self._awaited = False
        self._drawn: queue.SimpleQueue[Case | BaseException | None] = (
            queue.SimpleQueue()
        )
        self._tried: queue.SimpleQueue[None] = queue.SimpleQueue()

    def instrument(self, functions: list[Any]) -> int:
        """Have functions report which of their branches run; return how many do."""
        done = 0
        for function in functions:
            # Bytecode that atheris cannot rewrite runs as it is.
            with contextlib.suppress(Exception):
                self._atheris.instrument_func(function)
                done += 1
        # libFuzzer does not look at the counter that is reserved last (atheris 3.0).
        self._atheris.instrument_func(lambda: None)
        return done

    def start(self, folders: list[str], *, seed: int) -> None:
        """Start libFuzzer.

        Args:
            folders: inputs to begin with; those that reach something new are written
                to the first.
            seed: of libFuzzer's own choices.
        """
        arguments = [
            "kfuzz",
            *folders,
            f"-seed={seed % (2**31 - 1) + 1}",
            f"-max_len={MOST_BYTES}",
            "-len_control=0",
            # How often a branch runs follows from the size, and shows little more.
            "-use_counters=0",
            # One change from what reached something: a second one mostly loses it.
            "-mutate_depth=1",
            # By the clock, which the search must not depend on.
            "-reload=0",
            # The campaign watches time, memory and the end of the process.
            "-timeout=0",
            f"-report_slow_units={_NEVER}",
            f"-artifact_prefix={folders[0]}.",
            "-rss_limit_mb=0",
            "-malloc_limit_mb=0",
            "-detect_leaks=0",
            "-verbosity=0",
            *(f"-handle_{name}=0" for name in _SIGNALS),
        ]

        def run() -> None:
            try:
                with _starting() as self._started:
                    self._atheris.Setup(
                        arguments,
                        self._one,
                        custom_mutator=self._mutator.mutate,
                        custom_crossover=self._mutator.cross,
                    )
                    self._atheris.Fuzz()
            except BaseException as error:
                self._drawn.put(error)

        threading.Thread(target=run, daemon=True).start()

    def draw(self) -> Case | None:
        """Return the next case, None if there are no more.

        Raises:
            BaseException: whatever ended the drawing.
        """
        if self._awaited:  # the last one was not tried
            self._tried.put(None)
        found = self._drawn.get()
        self._awaited = isinstance(found, Case)
        if isinstance(found, BaseException):
            raise found
        return found

    def go_on(self) -> None:
        """Have libFuzzer go on: the case drawn last was tried."""
        self._awaited = False
        self._tried.put(None)

    def _one(self, data: bytes) -> None:
        """Draw a case from bytes and wait for what it comes to."""
        if not data:  # libFuzzer tries this before it reads inputs
            return
        self._started()
        try:
            self._barren += 1
            read = self._target(padded(data))
            if read is not None:
                self._mutator.learn(data, read)
            if self._barren > BARREN:
                self._drawn.put(None)
                self._tried.get()
        except BaseException as error:
            self._drawn.put(error)
            self._tried.get()

    def _once(self, case: Case) -> None:
        key = hashlib.sha256(json.dumps(encode(case)).encode()).digest()
        if key in self._seen:
            return
        self._seen.add(key)
        self._barren = 0
        self._drawn.put(case)
        self._tried.get()


@contextlib.contextmanager
def _starting() -> Iterator[Callable[[], None]]:
    """Let atheris start beside the main thread, without a word, up to the first call.

    It takes over Ctrl-C, which only the main thread may; children are not told of it.
    """
    ordinary = signal.signal
    kept: list[int] = [os.dup(2)]
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    os.close(null)
    signal.signal = lambda number, handler: None  # type: ignore[assignment]

    def started() -> None:
        while kept:
            signal.signal = ordinary
            descriptor = kept.pop()
            os.dup2(descriptor, 2)
            os.close(descriptor)

    try:
        yield started
    finally:
        started()


def serve() -> CoverageWorker:
    """Return the handler of a fresh child."""
    from kfuzz.evaluation.worker import serve as ordinary

    ordinary()  # what it settles for the process
    return CoverageWorker()


# A kernel's own Python: which functions are the user's.
#
# What is the user's own: the file that binds the kernel, the modules imported from
# beside it, and the file that defines the implementation, unless that is torch's or
# Triton's. In Triton's interpreter the body of a kernel is Python too; what runs there
# is a rewritten copy of the function.


def own_functions(kernel: BoundKernel) -> list[FunctionType]:
    """Return the functions of a kernel's own files that Python runs.

    Where Triton compiles, the bodies of its kernels are not among them.
    """
    files = _own_files(kernel)
    interpreter = sys.modules.get("triton.runtime.interpreter")
    interpreted = getattr(interpreter, "InterpretedFunction", None)
    jit = sys.modules.get("triton.runtime.jit")
    compiled = getattr(jit, "JITFunction", None)
    if interpreted is not None:
        for body in _instances(interpreted):
            if _file(body.fn) in files:
                body.rewrite()
    bodies = {id(b.fn) for b in _instances(compiled)} if compiled else set()
    return [f for f in _functions(files) if id(f) not in bodies]


def _functions(files: frozenset[str]) -> list[FunctionType]:
    """Return the functions that some files define, in the order of their lines."""
    found = [f for f in _instances(FunctionType) if _file(f) in files]
    found.sort(key=lambda f: (f.__code__.co_filename, f.__code__.co_firstlineno))
    return found


def _instances(kind: type) -> list[Any]:
    """Return the objects of a class; `isinstance` would run code of some of them."""
    return [o for o in gc.get_objects() if issubclass(type(o), kind)]


def _own_files(kernel: BoundKernel) -> frozenset[str]:
    """Return the files whose functions are a kernel's own."""
    files = set()
    home = getattr(sys.modules.get(kernel.module), "__file__", None)
    if home:
        folder = Path(home).parent
        beside = (getattr(m, "__file__", None) for m in list(sys.modules.values()))
        files |= {f for f in beside if f and Path(f).parent == folder}
    defined = _file(inspect.unwrap(kernel.function))
    libraries = (sys.modules.get(name) for name in ("torch", "triton"))
    homes = (getattr(library, "__file__", None) for library in libraries)
    foreign = [Path(file).parent for file in homes if file]
    if defined and not any(Path(defined).is_relative_to(f) for f in foreign):
        files.add(defined)
    return frozenset(files)


def _file(function: Any) -> str:
    """Return the file of a function's code, "" where it has none."""
    code = getattr(function, "__code__", None)
    return code.co_filename if isinstance(code, CodeType) else ""
