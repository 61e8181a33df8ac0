"""Recordings as files: one folder, a header, and one file for each kernel.

A kernel's file is written when its last case is done, at once or not at all, so that a
recording that was killed goes on with the next kernel.
"""

import hashlib
import json
import random
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import ClassVar, Final, TypeVar

import torch
from torch import Tensor

from kfuzz.contracts.binding import BoundKernel, Derived
from kfuzz.contracts.oracle import compare_all
from kfuzz.core.budget import Depth, SizeBudget
from kfuzz.core.codec import encode
from kfuzz.core.errors import BindingError, DecodeError, HarnessError, UsageError
from kfuzz.core.finding import Fingerprint, safe_name, short_hash
from kfuzz.core.recipe import NOWHERE, Case, TensorSpec
from kfuzz.core.verdict import Observed
from kfuzz.engine.workers.jobs import Stopped
from kfuzz.engine.workers.runner import Runner, runner_of
from kfuzz.engine.workers.zygotes import Backend
from kfuzz.evaluation.calling import posed
from kfuzz.evaluation.drawing import fuzz_target, round_seed, strategy_of
from kfuzz.execution.values.fills import HOST, logical_values, pinned
from kfuzz.features.lab.grade.grading import claims_of
from kfuzz.features.lab.probe.search import readings
from kfuzz.features.lab.probe.sums import Subject, data_format
from kfuzz.numerics.acceptance import Acceptance
from kfuzz.numerics.compare import Comparison, Outcome
from kfuzz.numerics.formats import format_of, is_subnormal
from kfuzz.store import files
from kfuzz.store.files import read_plain, replace_file
from kfuzz.targets.load import LoadedKernel

T = TypeVar("T")
Place = tuple[str, str]
"""Operator and name of a kernel."""

FORMAT: Final = 1
HEADER: Final = "recording.json"
_SUFFIX: Final = ".json.z"
_UNFINISHED: Final = ".new-"
# Stored and unpacked; a bomb of zeros packs a thousandfold.
_MOST_BYTES: Final = 64 << 20
_MOST_UNPACKED: Final = 256 << 20


@dataclass(frozen=True)
class Header:
    """What a whole recording has in common.

    Attributes:
        backend: "cpu", "cuda" or "interpret".
        fingerprint: versions and device.
        seed: of the drawn cases.
        cases: cases drawn for each kernel, 0 where they are of another recording.
        targets: what was recorded, as on the command line.
        probed: whether the arithmetic was probed, too.
        like: hash of the recording whose cases these are, "" where they were drawn.
    """

    backend: str
    fingerprint: Fingerprint
    seed: int
    cases: int
    targets: tuple[str, ...]
    probed: bool = False
    like: str = ""


@dataclass(frozen=True)
class Result:
    """One output of one case.

    Attributes:
        name: of the output.
        dtype: its format.
        shape: its sizes.
        bits: hash of its bytes.
        values: hash with one NaN and one zero.
        flushed: the same hash with subnormals replaced by zero.
        missed: elements outside what is allowed.
        exact: whether each element was decided, and one value alone admitted for it.
    """

    RETIRED: ClassVar = ("classes", "worst", "allowed", "data")

    name: str
    dtype: str
    shape: tuple[int, ...]
    bits: str
    values: str
    flushed: str
    missed: int = 0
    exact: bool = False


@dataclass(frozen=True)
class Entry:
    """One case on one device.

    Attributes:
        key: hash of the recipe.
        case: the recipe.
        inputs: hash of the input bytes as made on the device.
        subnormals: subnormal elements of the inputs.
        outcome: "allowed", "outside", "refused" by the kernel, or "unjudged".
        contract: the clause that it breaks, "" where none.
        message: what shows it, what the kernel said, or why it is unjudged.
        unlike: of the repeats those with other bits than the first.
        results: the outputs, none where nothing could be read.
    """

    key: str
    case: Case
    inputs: str
    subnormals: int
    outcome: str
    contract: str = ""
    message: str = ""
    unlike: int = 0
    results: tuple[Result, ...] = ()


@dataclass(frozen=True)
class Recorded:
    """One kernel.

    Attributes:
        name: of the kernel; the full one where the recording has two of a name.
        operator: what it computes.
        claims: declarations that differ from the language's defaults, as text.
        entries: its cases.
        probes: what probes found, by "probe/dtype", or "probe/dtype/terms"; of an
            order of additions with its hash.
        problem: why cases are lacking, "" if none are.
    """

    name: str
    operator: str
    claims: Mapping[str, str]
    entries: tuple[Entry, ...]
    probes: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True)
class Recording:
    """A recording as read: its header, and the kernels by operator and name."""

    header: Header
    kernels: Mapping[tuple[str, str], Recorded]

    @property
    def device(self) -> str:
        """What it was made on, in words."""
        print_ = self.header.fingerprint
        where = print_.device or self.header.backend
        return f"{where} ({self.header.backend}, torch {print_.torch})"


def open_folder(folder: Path, header: Header) -> None:
    """Begin a recording, or go on with one that was made in the same way.

    Raises:
        UsageError: if the folder holds another recording or other files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # Other parts may be begun at the same moment.
    there = {f.name for f in folder.iterdir() if not f.name.startswith(_UNFINISHED)}
    if there and (HEADER not in there or read_header(folder) != header):
        raise UsageError(
            "other files are there, or a recording of other targets, cases or versions",
            where=str(folder),
            fix="give another --out, or delete it",
        )
    if not there:
        text = files.dumps({"format": FORMAT, "header": encode(header)})
        replace_file(folder / HEADER, text.encode(), prefix=_UNFINISHED)


def path_of(folder: Path, operator: str, name: str) -> Path:
    """Return the file of a kernel: of each its own, also where case is ignored."""
    named = f"{operator}--{name}"
    return folder / f"{safe_name(named)}-{short_hash(named)}{_SUFFIX}"


def is_recorded(folder: Path, operator: str, name: str) -> bool:
    """Whether a kernel's file is there, and has all that was to be in it."""
    path = path_of(folder, operator, name)
    return path.exists() and not _read_kernel(path).problem


def write_kernel(folder: Path, made: Recorded) -> None:
    """Write a kernel's file at once."""
    document = {"format": FORMAT, "kernel": encode(made)}
    text = json.dumps(document, allow_nan=False, separators=(",", ":"))
    place = path_of(folder, made.operator, made.name)
    replace_file(place, zlib.compress(text.encode(), 9), prefix=_UNFINISHED)


def read_header(folder: Path) -> Header:
    """Return the header of a recording.

    Raises:
        DecodeError: if there is none, or it is of another format.
    """
    path = folder / HEADER
    fix = "`kfuzz record --out DIR` makes one"
    text = read_plain(path, 1 << 20, fix=fix)
    return files.value_of(Header, "header", text, FORMAT, where=str(path))


def read(folder: Path) -> Recording:
    """Return a recording.

    Raises:
        DecodeError: if a file is missing, damaged, too large or of another format.
    """
    header = read_header(folder)
    kernels = {}
    for path in sorted(folder.glob(f"*{_SUFFIX}")):
        kernel = _read_kernel(path)
        if path != path_of(folder, kernel.operator, kernel.name):
            what = f"holds {kernel.name} of {kernel.operator}"
            raise DecodeError(what, where=str(path), fix="give it its own name back")
        kernels[kernel.operator, kernel.name] = kernel
    return Recording(header, kernels)


def _read_kernel(path: Path) -> Recorded:
    packed = read_plain(path, _MOST_BYTES, follow=False)
    text = _unpacked(packed, path)
    return files.value_of(Recorded, "kernel", text, FORMAT, where=str(path))


def _unpacked(packed: bytes, path: Path) -> bytes:
    unpacking = zlib.decompressobj()
    try:
        text = unpacking.decompress(packed, _MOST_UNPACKED)
        if unpacking.eof:
            return text
        raise DecodeError("is cut off, or unpacks to too much", where=str(path))
    except zlib.error as error:
        raise DecodeError(f"is damaged: {error}", where=str(path)) from None


# Making a recording: equal cases whatever the device, judged by its children.

BUDGET: Final = SizeBudget(elements=1 << 14, rows=64)
"""The same on every device: sizes are drawn within it. What scales blocks of 128 by 128
has no smaller case."""

REPEATS: Final = 3
PROBES: Final = (
    "order", "accumulator", "fused", "operands", "subnormals", "store", "intrinsics",
)  # fmt: skip
# Fresh processes in which a failure must show, before a device is reported for it.
_FRESH: Final = 2
# Calls for the probes of one format.
_CALLS: Final = 400
# Bytes that a case is drawn from, and draws that may give none.
_BYTES: Final = 4096
_TRIES: Final = 8


def key_of(case: Case) -> str:
    """Return the hash of a recipe."""
    return _hash(json.dumps(encode(case), sort_keys=True).encode())


def drawn(kernel: BoundKernel, count: int, seed: int) -> list[Case]:
    """Return the cases of a seed; what kernels compute has no part in it."""
    found: dict[str, Case] = {}
    strategy = strategy_of(kernel, BUDGET)
    if strategy is None:
        return []

    def take(case: Case) -> None:
        plain = replace(case, edge=NOWHERE, config=None)
        if len(found) < count and kernel.operator.accepts(plain, kernel.declaration):
            found.setdefault(key_of(plain), plain)

    # From bytes: what Hypothesis draws from a seed depends on the modules loaded.
    once = fuzz_target(strategy, take)
    chance = random.Random(round_seed(seed, kernel.name, 0))
    for _ in range(_TRIES * count):
        if len(found) == count:
            break
        once(chance.randbytes(_BYTES))
    return list(found.values())


def names_of(loaded: Sequence[LoadedKernel]) -> list[str]:
    """Return each kernel's name, the full one where an operator has two of a name."""
    places = Counter((k.kernel.operator.name, k.kernel.name) for k in loaded)
    return [
        k.full_name if places[k.kernel.operator.name, k.kernel.name] > 1
        else k.kernel.name
        for k in loaded
    ]  # fmt: skip


def cases_of(
    kernel: BoundKernel, name: str, count: int, seed: int, like: Recording | None
) -> Callable[[], Sequence[Case]] | None:
    """Return what gives the cases of a kernel; None where the other recording has none.

    Args:
        kernel: the kernel.
        name: its name in recordings.
        count: cases to draw.
        seed: of the drawn cases.
        like: the recording to take them from instead.
    """
    if like is None:
        return partial(drawn, kernel, count, seed)
    place, claims = (kernel.operator.name, name), claims_of(kernel.declaration)
    of = like.kernels.get(place) or general(place, claims, like.kernels)
    return None if of is None else lambda: [entry.case for entry in of.entries]


def general(
    place: Place, claims: Mapping[str, str], others: Mapping[Place, T]
) -> T | None:
    """Return the kernel that takes a format among others; None where there is none.

    Where one side binds a format by a kernel of its own, "…_bfloat16", that is
    compared with the kernel of the other side that takes this format, too.

    Args:
        place: operator and name of the kernel that takes one format.
        claims: what it declares, as text.
        others: the other side's kernels by operator and name.
    """
    operator, name = place
    suffix = f"_{claims.get('dtypes', '')}"
    if not name.endswith(suffix):
        return None
    return others.get((operator, name.removesuffix(suffix)))


def recorded(
    loaded: LoadedKernel,
    backend: Backend,
    cases: Callable[[], Sequence[Case]],
    *,
    name: str,
    root: Path,
    probe: bool,
    stopped: Callable[[], bool],
) -> Recorded:
    """Return what a kernel gives for cases.

    What ends it before the last case is its problem, and no other kernel's.

    Raises:
        BackendError: if the device does no work.
        Stopped: if it is told to stop before the last case.
    """
    kernel = loaded.kernel
    runner = runner_of(loaded, backend, root=root, expired=stopped, budget=BUDGET)
    entries: list[Entry] = []
    probes: dict[str, str] = {}
    problem = ""
    try:
        for case in cases():
            if stopped():
                raise Stopped
            if kernel.operator.accepts(case, kernel.declaration):
                entries.append(_entry(kernel, runner, case))
        if not entries:
            problem = "its declaration allows none of the cases"
        elif probe:
            probes = _probes(kernel, runner)
    except (BindingError, HarnessError) as error:
        problem = str(error)
    finally:
        runner.close()
    claims = claims_of(kernel.declaration)
    return Recorded(name, kernel.operator.name, claims, tuple(entries), probes, problem)


def _entry(kernel: BoundKernel, runner: Runner, case: Case) -> Entry:
    key = key_of(case)
    report = runner.judge(case, Depth.SEARCH)
    outcome, contract, message = "allowed", "", ""
    if report.failure is not None:
        outcome, contract = "outside", report.failure.contract
        message = report.failure.message
        signature = report.failure.signature(kernel.name)
        fresh = runner.judge_fresh(case, [Depth.SEARCH] * _FRESH)
        if not all(each.shows(signature) for each in fresh):
            outcome, contract = "unjudged", ""
            message = f"not in each of {_FRESH} fresh processes: {message}"
    elif report.refusal:
        outcome, message = "refused", report.refusal
    elif why := report.error or report.unsupported:
        outcome, message = "unjudged", why
    inputs = hashlib.sha256()
    subnormals = 0
    for name, spec in sorted(runner.pin(case).tensors.items()):
        inputs.update(f"{name} {spec.dtype} {spec.shape}\n".encode())
        inputs.update(spec.values or b"")
        subnormals += int(_subnormal(pinned(spec, HOST)).sum())
    seen = Observed()
    if outcome in ("allowed", "outside"):
        seen = runner.observe(case, REPEATS)
    results = _results(kernel, case, seen.outputs)
    if outcome == "allowed" and (not results or any(r.missed for r in results)):
        outcome = "unjudged"
        message = seen.problem or "a repeat misses, which the judged call did not"
    return Entry(
        key, case, inputs.hexdigest()[:32], subnormals, outcome, contract, message,
        seen.unlike, results,
    )  # fmt: skip


def _results(
    kernel: BoundKernel, case: Case, outputs: Mapping[str, TensorSpec]
) -> tuple[Result, ...]:
    if not outputs:
        return ()
    tensors = {name: pinned(spec, HOST) for name, spec in outputs.items()}
    values = {name: logical_values(case, name, HOST) for name in case.tensors}
    derived = Derived(case, values)
    accepted = posed(kernel.operator, kernel.declaration, derived).acceptance or {}
    compared = compare_all(tensors, accepted)
    return tuple(
        _result(name, spec, tensors[name], compared.get(name), accepted.get(name))
        for name, spec in outputs.items()
    )


def _result(
    name: str, spec: TensorSpec, x: Tensor, made: Comparison | None,
    a: Acceptance | None,
) -> Result:  # fmt: skip
    """Return a result with what comes of holding it against what is admitted."""
    plain, flushed = _canonical(x)
    result = Result(
        name, spec.dtype, spec.shape, _hash(spec.values or b""), _hash(_bytes(plain)),
        _hash(_bytes(flushed)),
    )  # fmt: skip
    if made is None or a is None:
        return result
    alone = (made.low == made.high) & made.low.isfinite()
    if a.flush:  # zero is admitted besides a subnormal number
        alone &= (made.low == 0) | (made.low.abs() >= a.output.min_normal)
    decided = made.outcomes != Outcome.UNDECIDED
    return replace(
        result, missed=int(made.missed.sum()), exact=bool((alone & decided).all())
    )


def _canonical(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return values with one NaN and one zero, and without subnormals besides."""
    if not x.dtype.is_floating_point:
        return x, x
    wide = x.to(torch.float64)
    plain = torch.where(wide == 0, wide.abs(), wide)
    plain = torch.where(wide.isnan(), torch.full_like(wide, float("nan")), plain)
    flushed = torch.where(_subnormal(x), torch.zeros_like(wide), plain)
    return plain, flushed


def _subnormal(x: Tensor) -> Tensor:
    """Return where elements are subnormal numbers."""
    if not x.dtype.is_floating_point:
        return torch.zeros_like(x, dtype=torch.bool)
    return is_subnormal(x.to(torch.float64), format_of(x.dtype))


def _bytes(x: Tensor) -> bytes:
    flat = x.detach().cpu().contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).numpy().tobytes())


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


def _probes(kernel: BoundKernel, runner: Runner) -> dict[str, str]:
    """Return what probes say, short enough to be compared; of a number of calls."""
    found = {}
    for dtype in kernel.declaration.dtypes:
        subject = Subject(
            kernel, data_format(kernel, dtype), _counted(runner), BUDGET, output=dtype,
            most_terms=32, most_pairs=512,
        )  # fmt: skip
        for reading in readings(subject, PROBES):
            if reading.found:
                terms = f"/{reading.terms}" if reading.terms else ""
                tree = reading.tree
                told = "" if tree is None else f" ({_hash(repr(tree).encode())[:12]})"
                found[f"{reading.probe}/{dtype}{terms}"] = reading.found + told
    return found


def _counted(runner: Runner) -> Callable[[Case, int], Observed]:
    """Return what asks a runner so often and no more: a count is alike everywhere."""
    left = _CALLS

    def ask(case: Case, times: int) -> Observed:
        nonlocal left
        left -= times
        if left < 0:
            return Observed(problem=f"a recording asks {_CALLS} times")
        return runner.observe(case, times)

    return ask


def digest(source: Recording) -> str:
    """Return a hash of the cases of a recording."""
    keys = sorted(e.key for k in source.kernels.values() for e in k.entries)
    return _hash("\n".join(keys).encode())
