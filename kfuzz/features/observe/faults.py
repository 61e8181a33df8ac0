"""Running a program with its launches followed, and the faults of these."""

import atexit
import linecache
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

from kfuzz.core import event
from kfuzz.core.declaration import Declaration
from kfuzz.core.features import with_home
from kfuzz.core.finding import Finding, Line, Target, host_fingerprint, relative
from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.core.verdict import Access, Failure, Kind, State, Verdict
from kfuzz.report.finding_view import access_words
from kfuzz.report.text import counted, one_line
from kfuzz.store.files import replace_file
from kfuzz.store.life import utc_now
from kfuzz.targets.load import project_root

# Running a program of a user's as Python would, with its launches followed.

FOLDER: Final = "KFUZZ_FOLLOWED_IN"
"""Environment variable: where its processes leave what they saw."""

_BY: Final = "KFUZZ_FOLLOWED_BY"
_GRACE_S: Final = 10.0
"""For a program that is asked to end to leave what it saw."""


@contextmanager
def scratch(verb: str) -> Iterator[Path]:
    """Yield a new folder, which goes with the block."""
    with tempfile.TemporaryDirectory(
        prefix=f"kfuzz-{verb}-", ignore_cleanup_errors=True
    ) as folder:
        yield Path(folder)


def run_program(
    words: list[str],
    folder: Path,
    modules: list[str],
    *,
    interpreted: bool,
    seconds: float | None = None,
    environment: Mapping[str, str] | None = None,
) -> int | None:
    """Run a program; a signal is its own to obey.

    Args:
        words: behind `python` on its command line.
        folder: an empty one, for what its processes saw.
        modules: whose `begin` each of its processes calls once it has torch.
        interpreted: whether its Triton kernels are, and no GPU is to be seen.
        seconds: after which it is ended; None for never.
        environment: variables besides its own.

    Returns:
        What it ended with; None where its time was over.
    """
    site = folder / "site"
    site.mkdir()
    shutil.copy(Path(__file__).with_name("site.py"), site / "sitecustomize.py")
    variables = with_home(os.environ) | dict(environment or {})
    variables["PYTHONPATH"] = os.pathsep.join([str(site), variables["PYTHONPATH"]])
    variables |= {FOLDER: str(folder), _BY: ",".join(modules)}
    if interpreted:
        variables |= {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        program = subprocess.Popen(
            [sys.executable, *words], env=variables,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )  # fmt: skip
        try:
            return program.wait(seconds)
        except subprocess.TimeoutExpired:
            program.send_signal(signal.SIGINT)
        try:
            program.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            program.kill()
            program.wait()
        return None
    finally:
        signal.signal(signal.SIGINT, before)


def ending(code: int) -> str:
    """Return how a program ended, in words."""
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return f"ended with {how}"


# What of a program's arguments one process tells another.


@dataclass(frozen=True)
class Shape:
    """A tensor as a call got it.

    Attributes:
        sizes: of its dimensions.
        strides: in elements.
        dtype: "float32", ….
        device: "cpu", "cuda:0", ….
        values: the elements on the CPU; None where there were too many of them.
    """

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: str
    values: Any = field(default=None, compare=False)

    def __str__(self) -> str:
        """Return it as a signature has it."""
        return f"{self.dtype}[{', '.join(map(str, self.sizes))}]"


class Unknown(str):
    """A value that no file of bindings can hold: what it is, for people."""


# In a process of the program.


def test_of_now() -> str:
    """Return pytest's id of the test that runs, "" outside one."""
    return os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]


def at_end(act: Callable[[], object]) -> None:
    """Act when this process, or a fork of it, ends other than by a signal."""
    atexit.register(act)
    ended = os._exit

    def acting(status: int) -> NoReturn:
        act()
        ended(status)

    os._exit = acting


def leave(folder: Path, kind: str, seen: Any) -> None:
    """Leave what this process saw, whole or not at all."""
    with suppress(OSError):  # the command has ended before it
        file = folder / f"{os.getpid()}.{kind}"
        replace_file(file, pickle.dumps(seen), prefix=".new-", sync=False)


def left(folder: Path, kind: str) -> Iterator[Any]:
    """Yield what the processes left, into a folder of kfuzz's own."""
    for file in sorted(folder.glob(f"*.{kind}")):
        yield pickle.loads(file.read_bytes())


KIND: Final = "faults"
"""Of what a process leaves."""

GPU: Final = "KFUZZ_SANITIZE_GPU"
"""Environment variable: what GPU processes meet."""


class Kernel(NamedTuple):
    """A Triton function.

    Attributes:
        file: of its source.
        line: at which it begins there.
        name: of the function.
    """

    file: str
    line: int
    name: str


@dataclass(frozen=True)
class Fault:
    """One place in a kernel that touches memory it should not.

    Attributes:
        kernel: the kernel.
        access: the access, of the launch with the smallest arguments.
        arguments: of that launch, by the kernel's names for them.
        caller: "file.py:12", where it was launched.
        test: pytest's id of the test that launched it; "" outside one.
        launches: how many launches show it.
        wrong: how a result misses the bound of its operator; "" for other faults, whose
            `access` says all.
    """

    kernel: Kernel
    access: Access
    arguments: Mapping[str, Shape | Unknown]
    caller: str
    test: str
    launches: int = 1
    wrong: str = ""

    @property
    def key(self) -> tuple[object, ...]:
        """What launches that show the same place have in common."""
        a = self.access
        return self.kernel, a.line, a.access, a.where, a.other_line

    @property
    def kind(self) -> tuple[str, Kind]:
        """The contract that is broken, and how."""
        if self.wrong:
            return self.wrong.rpartition("(")[2].rstrip(")"), Kind.VALUE
        is_load = self.access.access == "load"
        outside = Kind.READ_OUTSIDE if is_load else Kind.WRITE_OUTSIDE
        return _CONTRACTS.get(self.access.where, ("K-MEM-01", outside))

    @property
    def message(self) -> str:
        """What happens, as a sentence."""
        return self.wrong or access_words(self.access)

    @property
    def words(self) -> str:
        """The place in a few words, the same for all launches."""
        access = self.access
        of = f" of {access.argument}" if access.argument else ""
        return (
            f"{self.kernel.name}, {access.access}{of} at {access.line} ({self.kind[0]})"
        )

    @property
    def size(self) -> int:
        """Elements of the tensors together."""
        shapes = (a for a in self.arguments.values() if isinstance(a, Shape))
        return sum(prod(shape.sizes) for shape in shapes)


class Seen:
    """What one process did.

    Attributes:
        launches: by kernel, how many were interpreted.
        faults: by what they have in common.
        lacking: by kernel, and why it cannot be interpreted, how many launches.
    """

    def __init__(self) -> None:
        self.launches: dict[Kernel, int] = {}
        self.faults: dict[tuple[object, ...], Fault] = {}
        self.lacking: dict[tuple[Kernel, str], int] = {}

    def add(self, fault: Fault) -> None:
        """Take a fault to those like it; the smallest arguments stand for all."""
        held = self.faults.get(fault.key, fault)
        count = fault.launches + (held.launches if held is not fault else 0)
        least = min(held, fault, key=lambda f: f.size)
        self.faults[fault.key] = replace(least, launches=count)

    def join(self, other: "Seen") -> None:
        """Take what another process did, too."""
        for fault in other.faults.values():
            self.add(fault)
        for kernel, count in other.launches.items():
            self.launches[kernel] = self.launches.get(kernel, 0) + count
        for key, count in other.lacking.items():
            self.lacking[key] = self.lacking.get(key, 0) + count


def read(folder: Path) -> tuple[Seen, int]:
    """Return what the processes did, and how many of them said so."""
    seen = list(left(folder, KIND))
    whole = Seen()
    for each in seen:
        whole.join(each)
    return whole, len(seen)


_CONTRACTS: Final = {
    "hint": ("K-MEM-01", Kind.READ_OUTSIDE),  # what compilers do by it
    "race": ("C-ORD-02", Kind.RACE),
    "unwritten": ("K-MEM-02", Kind.UNWRITTEN),
}


def lines(
    seen: Seen, faults: list[Fault], known: dict[str, str], ended: int | None,
    processes: int,
) -> Iterator[str]:  # fmt: skip
    """Yield what people read: a block a fault, then what was done."""
    for fault in faults:
        reason = known.get(fault.access.line)
        state = "" if reason is None else f" (suppressed: {one_line(reason)})"
        yield f"{fault.kernel.name}: {fault.message}{state}"
        arguments = ", ".join(f"{n}={a}" for n, a in fault.arguments.items())
        yield f"    {_launches(fault.launches)}, least: {arguments}"
        yield f"    launched at {fault.caller or 'an unknown place'}"
        if fault.test:
            yield f"    in {fault.test}"
    for place in sorted(known.keys() - {f.access.line for f in faults}):
        yield f"{place}: suppressed, and no fault shows there any more"
    for (kernel, why), n in seen.lacking.items():
        yield f"{kernel.name}: {_launches(n)} not interpreted: {one_line(why)}"
    kernels = counted(len(seen.launches), "kernel")
    launches = _launches(sum(seen.launches.values()))
    where = "one process" if processes == 1 else f"{processes} processes"
    yield (
        f"{counted(len(faults), 'fault')} in {launches} of {kernels}, in {where}; "
        f"{sum(seen.lacking.values())} not interpreted"
    )
    if ended is None:
        yield "the program did not end in its time"
    elif ended:
        yield f"the program {ending(ended)}"


def _launches(count: int) -> str:
    return "1 launch" if count == 1 else f"{count} launches"


def document(
    seen: Seen, faults: list[Fault], known: dict[str, str], ended: int | None
) -> dict[str, Any]:
    """Return what programs read."""
    return {
        "program": ended,
        "launches": sum(seen.launches.values()),
        "kernels": [
            {"kernel": node_id(kernel), "launches": count}
            for kernel, count in seen.launches.items()
        ],
        "faults": [
            {
                "kernel": node_id(f.kernel),
                "contract": f.kind[0],
                "line": f.access.line,
                "access": f.access.access,
                "where": f.access.where,
                "argument": f.access.argument,
                "message": f.message,
                "launches": f.launches,
                "arguments": {n: str(a) for n, a in f.arguments.items()},
                "caller": f.caller,
                "test": f.test,
                "suppressed": known.get(f.access.line),
            }
            for f in faults
        ],
        "not_interpreted": [
            {"kernel": node_id(kernel), "why": why, "launches": count}
            for (kernel, why), count in seen.lacking.items()
        ],
    }


# For reports in files: the faults as findings, which nothing replays.


def node_id(kernel: Kernel) -> str:
    """Return the name of a kernel in reports."""
    return f"{relative(kernel.file, project_root())}::{kernel.name}"


def events(
    seen: Seen,
    faults: Iterable[Fault],
    known: dict[str, str],
    seconds: float,
    interrupted: bool,
) -> Iterator[event.Event]:
    """Yield what reports fold."""
    by_kernel = defaultdict(list)
    for fault in faults:
        by_kernel[fault.kernel].append(fault)
    notes = defaultdict(list)
    for (kernel, why), count in seen.lacking.items():
        notes[kernel].append(event.Note(f"not interpreted: {one_line(why)}", count))
    kernels = list(dict.fromkeys([*seen.launches, *notes]))
    yield event.RunStarted(0, "interpret", tuple(map(node_id, kernels)), utc_now())
    for kernel in kernels:
        name = node_id(kernel)
        findings = tuple(
            _finding(f, known.get(f.access.line)) for f in by_kernel[kernel]
        )
        for finding in findings:
            yield event.FindingSaved(name, finding, "", True, "done")
        count = seen.launches.get(kernel, 0)
        broken = {f.signature.contract for f in findings}
        verdicts = {
            contract: Verdict.VIOLATES if contract in broken else Verdict.CONFORMS
            for contract in ("K-MEM-01", "K-MEM-02", "C-ORD-02")
        }
        yield event.KernelFinished(
            kernel=name,
            operator="",
            cases=count,
            cases_per_s=0.0,
            contracts={
                c: event.ContractTally(v, decided=count) for c, v in verdicts.items()
            },
            findings=findings,
            notes=tuple(notes[kernel]),
        )
    yield event.RunFinished(seconds, interrupted, 0, "interpret")


def _finding(fault: Fault, reason: str | None) -> Finding:
    """Return a fault as a finding."""
    contract, kind = fault.kind
    access, words = fault.access, fault.message
    failure = Failure(
        contract=contract,
        kind=kind,
        output=access.argument,
        message=words,
        elements=access.count,
        accesses=() if fault.wrong else (access,),
    )
    file, _, number = access.line.rpartition(":")
    source = linecache.getline(fault.kernel.file, int(number)) if file else ""
    case = Case(
        {n: _spec(a) for n, a in fault.arguments.items() if isinstance(a, Shape)},
        {n: str(a) for n, a in fault.arguments.items() if isinstance(a, Unknown)},
    )
    return Finding(
        signature=failure.signature(fault.kernel.name),
        target=Target("", fault.kernel.name),
        operator="",
        device="interpret",
        case=case,
        first=case,
        failure=failure,
        declaration=Declaration(),
        fingerprint=host_fingerprint(device="interpret"),
        state=State.CONFIRMED if reason is None else State.KNOWN,
        line=Line(file, int(number), True, words, source=source) if file else None,
    )


def _spec(argument: Shape) -> TensorSpec:
    axes = tuple(f"{argument.dtype}{n}" for n in range(len(argument.sizes)))
    return TensorSpec(
        argument.sizes, axes, argument.dtype, argument.strides, fill=Fill("randn")
    )
