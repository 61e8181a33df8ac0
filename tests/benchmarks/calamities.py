"""Everything that ends or hinders a run: nothing announced is lost, nothing is left.

    python -m tests.benchmarks.calamities --kills 1000 --disks 20 --clocks 6 --jobs 2

Searches of faulty kernels meet SIGKILL at random moments: of the search, of the process
that its children are forked from, of a child; some are the whole command line, which
meets SIGINT at times instead. The writers share one corpus. Others meet a disk that is
full, read-only or broken from some write on, one search for each write, or a clock that
jumps by years. After each, all that it announced is
looked for in the corpus, and whatever it began must have ended within two seconds.

The last line has the figures; the exit code is 1 if anything is lost or left.
"""

import argparse
import contextlib
import errno
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kfuzz.core.budget import Budget
from kfuzz.core.event import FindingSaved
from kfuzz.engine.config import RunConfig
from kfuzz.execution import parent
from kfuzz.execution.processes import wire as table
from kfuzz.store import files as durable
from kfuzz.store import life
from kfuzz.store.corpus import Corpus, Problem, ProblemKind
from tests.e2e.project import HEADER

ROOT: Final = Path(__file__).resolve().parents[2]
GONE_SECONDS: Final = 2.0
# A search of 30 s that nobody kills ends by then, on a machine that others use too.
END_SECONDS: Final = 240.0
# A search lives so long at most, and meets so many other kills before its own.
LIFE_SECONDS: Final = 8.0
KILLS_WITHIN: Final = 12
# Every so many searches one is a command line, which imports torch first.
COMMAND_EVERY: Final = 12
COMMAND_SECONDS: Final = 9.0
_VICTIMS: Final = ("search", "forking", "child")
_FORKING_SHARE: Final = 0.04
_INTERRUPTED_SHARE: Final = 0.3
# For a search to end by itself once it is asked to, on a busy machine.
INTERRUPTED_SECONDS: Final = 60.0
_REFUSALS: Final = (errno.ENOSPC, errno.EROFS, errno.EIO, errno.EACCES)
_YEARS: Final = (1902, 2105)

KERNELS: Final = "".join(
    f"""
@kernel(ops.relu)
def wrong_at_{n}(x):
    return torch.relu(x) + (x.numel() % {n} == 1)
"""
    for n in range(2, 12)
)


@dataclass
class Figures:
    """What came of it.

    Attributes:
        kills: processes killed, by what they were.
        phases: the same, by how far the search was.
        announced: kernels of which a finding was announced, summed over the searches.
        lost: those of them whose finding the corpus does not hold.
        left: processes that went on, and what they were at.
        disks: searches on a full disk.
        clocks: searches under a clock that jumps.
        damaged: entries of the corpus that cannot be read.
        raised: searches that ended by an exception that kfuzz did not expect.
    """

    kills: Counter[str] = field(default_factory=Counter)
    phases: Counter[str] = field(default_factory=Counter)
    announced: int = 0
    lost: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    disks: int = 0
    clocks: int = 0
    damaged: list[str] = field(default_factory=list)
    raised: list[str] = field(default_factory=list)

    def add(self, other: "Figures") -> None:
        """Take the figures of another process."""
        self.kills += other.kills
        self.phases += other.phases
        self.announced += other.announced
        self.lost += other.lost
        self.left += other.left
        self.disks += other.disks
        self.clocks += other.clocks
        self.damaged += other.damaged
        self.raised += other.raised

    @property
    def good(self) -> bool:
        """Whether nothing is lost, left or damaged."""
        return not (self.lost or self.left or self.damaged or self.raised)

    def line(self, seconds: float) -> str:
        """Return all of it on one line."""
        return (
            f"{self.kills.total()} kills ({_counts(self.kills)}; "
            f"{_counts(self.phases)}), {self.disks} full disks, {self.clocks} clocks "
            f"that jump: {len(self.lost)} lost of {self.announced} announced, "
            f"{len(self.left)} left over after {GONE_SECONDS:.0f} s, "
            f"{len(self.damaged)} damaged, {len(self.raised)} raised; {seconds:.0f} s"
        )


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{n} {name}" for name, n in sorted(counter.items()))


class Search:
    """A search in a process group of its own, and what it has announced.

    Args:
        begin: begins it, given where it is to write a line for each finding; returns
            its process id.
    """

    def __init__(self, begin: Callable[[int], int]) -> None:
        told, tells = os.pipe()
        self.pid = begin(tells)
        os.close(tells)
        self.announced: set[str] = set()
        self.raised: list[str] = []
        self.phase = "start"
        self._told = told
        os.set_blocking(told, False)
        self._heard = b""

    def hear(self) -> None:
        """Take what was announced."""
        with contextlib.suppress(BlockingIOError):
            while piece := os.read(self._told, 1 << 16):
                self._heard += piece
        *lines, self._heard = self._heard.split(b"\n")
        for line in lines:
            words = line.decode(errors="replace").split()
            if len(words) < 2:
                continue
            if words[0] in ("found", "candidate"):
                self.phase = "confirming"
            elif words[0] in ("done", "FAIL"):
                self.phase = "searching on"
            elif words[0] == "begun":
                self.phase = "searching"
                continue
            elif words[0] == "raised":
                self.raised.append(" ".join(words[1:]))
                continue
            else:
                continue
            self.announced.add(words[1].rstrip(":"))

    def close(self) -> None:
        """Take the rest of it."""
        self.hear()
        os.close(self._told)


def _forked(config: RunConfig, prepared: Callable[[], None]) -> Callable[[int], int]:
    """Return what begins a search as a fork of this process, where torch is loaded."""

    def begin(tells: int) -> int:
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            os.setsid()
            null = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(null, descriptor)
            parent.prctl(parent.PR_SET_CHILD_SUBREAPER, 0)
            prepared()
            _search(config, tells)
            code = 0
        except BaseException as error:
            if not isinstance(error, KeyboardInterrupt):
                _tell(tells, f"raised {type(error).__name__} {error}")
        finally:
            os._exit(code)

    return begin


def _search(config: RunConfig, tells: int) -> None:
    """Search as the process `kfuzz.cli.searching` does."""
    from kfuzz.cli.run import homes
    from kfuzz.core.errors import StorageError
    from kfuzz.engine.search import campaign
    from kfuzz.engine.workers import zygotes

    os.set_inheritable(tells, False)
    kept = [tells]  # closed once: a fork of a fork may have another of that number

    def let_go() -> None:
        while kept:
            os.close(kept.pop())

    os.register_at_fork(after_in_child=let_go)
    zygotes.begin_here(config.device, homes(config))
    _tell(tells, "begun it")
    with contextlib.suppress(StorageError):  # said, and what was stored is there
        for event in campaign.run(config, stop=threading.Event()):
            if isinstance(event, FindingSaved):
                _tell(tells, f"{event.stage} {event.finding.signature.kernel}")
    zygotes.end_all()


def _tell(tells: int, line: str) -> None:
    os.write(tells, (line.replace("\n", " ")[:2000] + "\n").encode(errors="replace"))


def _command(folder: Path, seed: int) -> Callable[[int], int]:
    """Return what begins a search from the command line."""

    def begin(tells: int) -> int:
        words = ["-m", "kfuzz", "run", "kernels.py", "--device", "cpu"]
        words += ["--max-time", "1h", "--seed", str(seed), "--corpus", "corpus"]
        process = subprocess.Popen(
            [sys.executable, *words],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=tells,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        process.returncode = 0  # it is waited for here
        return process.pid

    return begin


class Worker:
    """One after the other, searches are begun and meet what they are to meet.

    Args:
        folder: the project; its corpus is shared.
        seed: of all that is random.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.random = random.Random(seed)
        self.figures = Figures()
        self._corpus = Corpus(folder / "corpus")
        # What loses its parent comes here, and is seen.
        parent.prctl(parent.PR_SET_CHILD_SUBREAPER, 1)

    def _config(self, **budget: float) -> RunConfig:
        seed = self.random.getrandbits(32)
        limits = {"max_time": 600.0, **budget}
        return RunConfig(
            targets=(str(self.folder / "kernels.py"),),
            root=self.folder,
            corpus=self._corpus.root,
            seed=seed,
            budget=Budget(**limits),  # type: ignore[arg-type]
            device="cpu",
            jobs=self.random.choice((1, 2)),
            replay=self.random.random() < 0.3,
        )

    def kill(self, number: int) -> None:
        """Let one search meet kills, its own last."""
        whole = number % COMMAND_EVERY == COMMAND_EVERY - 1
        if whole:
            begin = _command(self.folder, self.random.getrandbits(32))
        else:
            begin = _forked(self._config(), lambda: None)
        search = Search(begin)
        end = time.monotonic() + self.random.uniform(
            0, COMMAND_SECONDS if whole else LIFE_SECONDS
        )
        others = self.random.randrange(KILLS_WITHIN + 1)
        while time.monotonic() < end and not _has_ended(search.pid):
            time.sleep(self.random.uniform(0.02, 0.3))
            search.hear()
            if others > 0:
                others -= self._kill_below(search)
        search.hear()
        interrupts = whole and self.random.random() < _INTERRUPTED_SHARE
        self._note("interrupted" if interrupts else "search", search)
        with contextlib.suppress(ProcessLookupError):
            os.kill(search.pid, signal.SIGINT if interrupts else signal.SIGKILL)
        if interrupts:
            self._await(search, INTERRUPTED_SECONDS)
        self._bury(search)

    def _kill_below(self, search: Search) -> bool:
        """Kill something that the search began; return whether there was anything."""
        # Most of them children: without what they are forked from there is a pause.
        wanted = 1 if self.random.random() < _FORKING_SHARE else 2
        below = [p for p in _tree(search.pid) if min(p[1], 2) == wanted]
        if not below:
            return False
        pid, depth = self.random.choice(below)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        self._note(_VICTIMS[min(depth, 2)], search)
        return True

    def _note(self, victim: str, search: Search) -> None:
        self.figures.kills[victim] += 1
        self.figures.phases[f"while {search.phase}"] += 1

    def fill(self, write: int) -> bool:
        """Let a search meet a disk that refuses all from some write on.

        Returns:
            Whether it came so far.
        """
        met = self.folder / f"met-{os.getpid()}"
        refusal = _REFUSALS[write % len(_REFUSALS)]

        def prepared() -> None:
            real, left = durable.write_file, write

            def refusing(path: Path, content: bytes, *, sync: bool = True) -> None:
                nonlocal left
                left -= 1
                if left < 0:
                    met.touch()
                    with open(path, "wb") as file:  # as far as there is room
                        file.write(content[: len(content) // 2])
                    raise OSError(refusal, os.strerror(refusal))
                real(path, content, sync=sync)

            for module in list(sys.modules.values()):
                if getattr(module, "write_file", None) is real:
                    module.write_file = refusing  # type: ignore[attr-defined]

        self._to_its_end(prepared)
        self.figures.disks += 1
        came = met.exists()
        met.unlink(missing_ok=True)
        return came

    def jump(self) -> None:
        """Let a search meet a clock that jumps."""
        drawn = random.Random(self.random.getrandbits(32))

        def prepared() -> None:
            def now() -> str:
                return f"{drawn.randint(*_YEARS)}-02-03T04:05:06Z"

            for module in list(sys.modules.values()):
                if getattr(module, "utc_now", None) is real:
                    module.utc_now = now  # type: ignore[attr-defined]
            time.time = lambda: drawn.uniform(-1e9, 4e9)

        real = life.utc_now
        self._to_its_end(prepared)
        self.figures.clocks += 1

    def _to_its_end(self, prepared: Callable[[], None]) -> None:
        search = Search(_forked(self._config(max_findings=1, max_time=30), prepared))
        self._await(search, END_SECONDS)
        self._bury(search)

    def _await(self, search: Search, seconds: float) -> None:
        """Wait for the end of a search."""
        end = time.monotonic() + seconds
        while not _has_ended(search.pid) and time.monotonic() < end:
            search.hear()
            time.sleep(0.02)
        if not _has_ended(search.pid):
            self.figures.raised.append("a search did not end")
            os.kill(search.pid, signal.SIGKILL)

    def _bury(self, search: Search) -> None:
        """See that all that a search began is gone, and all that it announced there."""
        end = time.monotonic() + GONE_SECONDS
        while (left := self._living()) and time.monotonic() < end:
            time.sleep(0.01)
        self.figures.left += [f"{_at(pid)} after {search.phase}" for pid in left]
        while left := self._living():
            for pid in left:
                table.kill(pid)
            time.sleep(0.01)
        search.close()
        self.figures.raised += search.raised
        self.figures.announced += len(search.announced)
        stored = set()
        for entry in self._corpus.entries():
            if isinstance(entry, Problem):
                self.figures.damaged.append(entry.what)
            else:
                stored.add(entry.finding.signature.kernel)
        self.figures.lost += sorted(search.announced - stored)

    def _living(self) -> list[int]:
        """Return what has come to this process and runs; what ended is reaped."""
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        return [pid for pid in table.children_of(os.getpid()) if _has_memory(pid)]


def _has_memory(pid: int) -> bool:
    """Whether a process can go on: one that is ending gives its memory back first."""
    with contextlib.suppress(OSError):
        return "VmSize" in Path(f"/proc/{pid}/status").read_text()
    return False


def _at(pid: int) -> str:
    """Return what a process is at, as far as the system says."""
    told = []
    for name in ("status", "wchan", "cmdline"):
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{pid}/{name}").read_text(errors="replace")
            if name == "status":
                kept = (
                    "Name",
                    "State",
                    "PPid",
                    "Threads",
                    "SigBlk",
                    "ShdPnd",
                    "SigPnd",
                )
                text = " ".join(
                    " ".join(line.split())
                    for line in text.splitlines()
                    if line.startswith(kept)
                )
            told.append(text.replace("\0", " ").strip()[:200])
    return ", ".join(told) or "gone meanwhile"


def _has_ended(pid: int) -> bool:
    try:
        return (
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        )
    except ChildProcessError:
        return True


def _tree(pid: int, depth: int = 1) -> Iterator[tuple[int, int]]:
    """Yield the processes below one, each with its depth."""
    for child in table.children_of(pid):
        yield child, depth
        yield from _tree(child, depth + 1)


def _part(folder: Path, number: int, jobs: int, asked: argparse.Namespace) -> Figures:
    """Do one writer's part."""
    worker = Worker(folder, asked.seed * 1000 + number)
    searches = 0
    while worker.figures.kills.total() < asked.kills // jobs:
        worker.kill(searches)
        searches += 1
    for write in range(number, asked.disks, jobs):
        if not worker.fill(write):
            break
    for _ in range(number, asked.clocks, jobs):
        worker.jump()
    return worker.figures


def run(folder: Path, asked: argparse.Namespace) -> Figures:
    """Do all that is asked for, side by side; return what came of it."""
    import multiprocessing

    (folder / "pyproject.toml").touch()
    (folder / "kernels.py").write_text(HEADER + KERNELS)
    _load()
    figures = Figures()
    context = multiprocessing.get_context("fork")
    parts = [(folder, n, asked.jobs, asked) for n in range(asked.jobs)]
    queue = context.SimpleQueue()
    processes = [
        context.Process(target=lambda p=p: queue.put(_part(*p))) for p in parts
    ]
    for process in processes:
        process.start()
    for _ in processes:
        figures.add(queue.get())
    for process in processes:
        process.join()
    corpus = Corpus(folder / "corpus")
    corpus.repair()
    problems = [p for p in corpus.check() if p.kind is not ProblemKind.LEFTOVER]
    figures.damaged += [problem.what for problem in problems]
    return figures


def _load() -> None:
    """Import what a search needs, once: no operation of torch, no thread."""
    from kfuzz.cli import run  # noqa: F401
    from kfuzz.engine.search import campaign  # noqa: F401
    from kfuzz.execution.device.backends import guess
    from kfuzz.execution.processes.forking import load_modules

    os.environ["TRITON_INTERPRET"] = "1"
    backend = guess("cpu")
    assert backend is not None
    load_modules(backend.preload)


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--disks", type=int, default=20, help="writes that fail")
    parser.add_argument("--clocks", type=int, default=6)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        figures = run(Path(folder), asked)
    for text in (*figures.lost, *figures.left, *figures.damaged, *figures.raised):
        print(text)
    print(figures.line(time.monotonic() - began))
    return 0 if figures.good else 1


if __name__ == "__main__":
    sys.exit(main())
