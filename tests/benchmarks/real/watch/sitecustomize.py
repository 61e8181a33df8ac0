"""What a run of kfuzz spends its time on, seen from outside, whatever its version.

`tests.benchmarks.real.run` copies this file to a folder and puts that first in
PYTHONPATH: every Python process of the run loads it as it starts, and keeps what it
counts in that folder, in a file for each process. It samples processor time by where
the main thread is; in the process of the command also the time during which findings
are confirmed and reduced, and when the first case was judged. Standard library only.
"""

import atexit
import contextlib
import json
import os
import signal
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
# Of processor time, between two samples.
EVERY_SECONDS = 0.01
# A child is ended at once: what it counted is written this often.
WRITE_SECONDS = 0.1
# Of time, between two looks at the threads of the command.
LOOK_SECONDS = 0.02

# Where its frames are says what a process does; the first that any frame matches. The
# first holds for all processes, the others for children.
MARKS = (
    ("import", ("/kfuzz/targets/load.py",)),
    ("compile", ("/triton/compiler/", "/triton/backends/", "/kfuzz/cuda/compilers.py")),
    ("values", ("/kfuzz/execution/values/", "/kfuzz/execution/memory/")),
    ("oracle", ("/contracts/", "/kfuzz/numerics/")),
    ("call", ("/kfuzz/execution/calls/",)),
)
REDUCING = ("/kfuzz/engine/reduce/", "/kfuzz/engine/confirm/")


class Counted:
    """The counters of this process, in a file of its own."""

    def __init__(self, role: str) -> None:
        self.role = role
        self.seconds: dict[str, float] = {}
        self.told: dict[str, object] = {}
        self.places: dict[str, float] = {}
        self._last = time.process_time()
        self._below = self._of_others()
        self._written = 0.0

    def sample(self, _signal: int, frame: object) -> None:
        """Count what was computed since the last sample."""
        now, below = time.process_time(), self._of_others()
        spent = now - self._last
        if not _forks(frame):  # what it forks counts itself
            spent += below - self._below
        self._last, self._below = now, below
        phase = _phase(frame, self.role)
        self.seconds[phase] = self.seconds.get(phase, 0.0) + spent
        if phase == "other":
            place = _place(frame)
            self.places[place] = self.places.get(place, 0.0) + spent
            self.told["places"] = self.places
        if now - self._written >= WRITE_SECONDS:
            # What is raised here would count as raised by what was interrupted.
            with contextlib.suppress(Exception):
                self.write()

    def write(self) -> None:
        """Put the counters on disk, whole."""
        self._written = time.process_time()
        path = os.path.join(HERE, f"{os.getpid()}.json")
        with open(f"{path}.new", "w") as file:
            json.dump({"role": self.role, "seconds": self.seconds, **self.told}, file)
        os.replace(f"{path}.new", path)

    def _of_others(self) -> float:
        """Processor time of a child's own processes, such as compilers."""
        if self.role != "child":
            return 0.0  # they count themselves
        ended = os.times()
        return ended.children_user + ended.children_system


def _phase(frame: object, role: str) -> str:
    """Return what the frames of a process say that it does."""
    names = []
    while frame is not None:
        names.append(frame.f_code.co_filename)
        frame = frame.f_back
    for phase, marks in MARKS if role == "child" else MARKS[:1]:
        if any(mark in name for mark in marks for name in names):
            return phase
    return "other" if role == "child" else role


def _place(frame: object) -> str:
    """Return the innermost function, and the innermost of kfuzz's own."""
    inner, own = "", ""
    while frame is not None and not own:
        code = frame.f_code
        name = f"{os.path.basename(code.co_filename)}:{code.co_name}"
        inner = inner or name
        if "/kfuzz/" in code.co_filename:
            own = name
        frame = frame.f_back
    return inner if inner == own else f"{own} > {inner}"


def _forks(frame: object) -> bool:
    """Whether a process is in the loop that forks children and reaps them."""
    return _is_in(frame, ("/kfuzz/execution/processes/forking.py",))


class Watch:
    """Looks at the threads of a command now and then.

    By a signal: a thread of its own would keep the process from being forked.
    """

    def __init__(self, counted: Counted) -> None:
        self.counted = counted
        self.reducing = 0.0
        self.patched = False
        self.last = time.monotonic()

    def look(self, _signal: int, _frame: object) -> None:
        """Count who reduces, and see that cases are noted."""
        now = time.monotonic()
        threads = [f for f in sys._current_frames().values() if _is_in(f, REDUCING)]
        self.reducing += (now - self.last) * len(threads)
        self.last = now
        self.counted.told["reducing"] = self.reducing
        record = sys.modules.get("kfuzz.engine.search.record")
        if not self.patched and hasattr(record, "Record"):
            _note_cases(record.Record, self.counted)
            self.patched = True


def _is_in(frame: object, marks: tuple[str, ...]) -> bool:
    while frame is not None:
        if any(mark in frame.f_code.co_filename for mark in marks):
            return True
        frame = frame.f_back
    return False


def _note_cases(record: type, counted: Counted) -> None:
    """Have a record tell of its first case, and count structures."""
    kinds: dict[int, set[int]] = {}

    def noted(method: object) -> object:
        def take(self: object, case: object, report: object) -> object:
            taken = method(self, case, report)
            if self.cases:
                counted.told.setdefault("first", time.time())
            tensors = [
                (n, s.shape, s.element_strides, s.offset, s.dtype)
                for n, s in case.tensors.items()
            ]
            kinds.setdefault(id(self), set()).add(
                hash((tuple(tensors), tuple(case.scalars.items())))
            )
            counted.told["structures"] = sum(map(len, kinds.values()))
            return taken

        return take

    record.take, record.take_batch = noted(record.take), noted(record.take_batch)


def _begin(role: str) -> Counted:
    counted = Counted(role)
    signal.signal(signal.SIGPROF, counted.sample)
    signal.setitimer(signal.ITIMER_PROF, EVERY_SECONDS, EVERY_SECONDS)
    return counted


def _arguments() -> list[str]:
    """Return the command line; sys.argv is not there yet."""
    with open("/proc/self/cmdline", "rb") as file:
        return file.read().decode(errors="replace").split("\0")


def _forked() -> None:
    """Begin anew in a process that was forked, which inherits handlers alone."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    atexit.unregister(counted.write)
    _begin("child")


if any(f"{argument}.".startswith("kfuzz.") for argument in _arguments()):
    is_zygote = "kfuzz.execution.processes.zygote" in _arguments()
    counted = _begin("preload" if is_zygote else "command")
    os.register_at_fork(after_in_child=_forked)
    if not is_zygote:
        atexit.register(counted.write)
        signal.signal(signal.SIGALRM, Watch(counted).look)
        signal.setitimer(signal.ITIMER_REAL, LOOK_SECONDS, LOOK_SECONDS)
