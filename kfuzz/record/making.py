"""Making a recording: equal cases whatever the device, judged by its children."""

import base64
import hashlib
import json
import random
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from kfuzz.contracts.binding import BoundKernel
from kfuzz.contracts.derive import Derived
from kfuzz.contracts.relation import compare_all
from kfuzz.core.arithmetic_facts import Observed
from kfuzz.core.budget import Depth, SizeBudget
from kfuzz.core.codec import encode
from kfuzz.core.errors import BindingError, HarnessError
from kfuzz.core.recipe import NOWHERE, Case, TensorSpec
from kfuzz.engine.search.case_drawing import fuzz_target, round_seed, strategy_of
from kfuzz.engine.workers.backend import Backend
from kfuzz.engine.workers.jobs import Stopped
from kfuzz.engine.workers.opening import runner_of
from kfuzz.engine.workers.runner import Runner
from kfuzz.evaluation.calling import posed
from kfuzz.execution.values.fills import HOST, logical_values
from kfuzz.grade.against import general
from kfuzz.grade.grading import claims_of
from kfuzz.numerics.acceptance import Acceptance
from kfuzz.numerics.comparator.compare import Comparison, Outcome
from kfuzz.probe.catalogue import readings
from kfuzz.probe.subject import Subject
from kfuzz.probe.sums import data_format
from kfuzz.record.recording import Entry, Recorded, Recording, Result
from kfuzz.targets.load import LoadedKernel

BUDGET: Final = SizeBudget(elements=1 << 14, rows=64)
"""The same on every device: sizes are drawn within it. What scales blocks of 128 by 128
has no smaller case."""

REPEATS: Final = 3
PROBES: Final = (
    "order", "accumulator", "fused", "operands", "subnormals", "store", "intrinsics",
)  # fmt: skip
# One case of so many keeps all bits of its results.
_KEPT: Final = 64
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
        if len(found) < count and kernel.operator.admits(plain, kernel.declaration):
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
    place = kernel.operator.name, name
    claims = claims_of(kernel.declaration)
    of = like.kernels.get(place) or general(place, claims, like.kernels)
    return None if of is None else lambda: [entry.case for entry in of.entries]


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
            if kernel.operator.admits(case, kernel.declaration):
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
        subnormals += _classes(_tensor(spec))["subnormal"]
    seen = Observed()
    if outcome in ("allowed", "outside"):
        seen = runner.observe(case, REPEATS)
    results = _results(kernel, case, seen.outputs, keep=outcome == "outside")
    if outcome == "allowed" and (not results or any(r.missed for r in results)):
        outcome = "unjudged"
        message = seen.problem or "a repeat misses, which the judged call did not"
    return Entry(
        key, case, inputs.hexdigest()[:32], subnormals, outcome, contract, message,
        seen.unlike, results,
    )  # fmt: skip


def _results(
    kernel: BoundKernel, case: Case, outputs: Mapping[str, TensorSpec], *, keep: bool
) -> tuple[Result, ...]:
    if not outputs:
        return ()
    tensors = {name: _tensor(spec) for name, spec in outputs.items()}
    values = {name: logical_values(case, name, HOST) for name in case.tensors}
    derived = Derived(case, values)
    accepted = posed(kernel.operator, kernel.declaration, derived).acceptance or {}
    compared = compare_all(tensors, accepted)
    keep = keep or int(key_of(case)[:8], 16) % _KEPT == 0
    return tuple(
        _result(name, spec, tensors[name], keep=keep)
        if name not in compared
        else _held(
            _result(name, spec, tensors[name], keep=keep),
            compared[name],
            accepted[name],
        )
        for name, spec in outputs.items()
    )


def _result(name: str, spec: TensorSpec, x: Tensor, *, keep: bool) -> Result:
    plain, flushed = _canonical(x)
    raw = spec.values or b""
    return Result(
        name, spec.dtype, spec.shape, _hash(raw), _hash(_bytes(plain)),
        _hash(_bytes(flushed)), _classes(x),
        data=base64.b64encode(zlib.compress(raw)).decode() if keep else None,
    )  # fmt: skip


def _held(result: Result, made: Comparison, a: Acceptance) -> Result:
    """Return a result with what comes of holding it against what is admitted."""
    ratio = made.ratio
    alone = (made.low == made.high) & made.low.isfinite()
    if a.flush:  # zero is admitted besides a subnormal number
        alone &= (made.low == 0) | (made.low.abs() >= a.output.min_normal)
    decided = made.outcomes != Outcome.UNDECIDED
    return replace(
        result,
        worst=float(ratio.max()) if ratio.numel() else 0.0,
        missed=int(made.missed.sum()),
        allowed=_hash(_bytes(made.low) + _bytes(made.high)),
        exact=bool((alone & decided).all()),
    )


def _canonical(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return values with one NaN and one zero, and without subnormals besides."""
    if not x.dtype.is_floating_point:
        return x, x
    wide = x.to(torch.float64)
    plain = torch.where(wide == 0, wide.abs(), wide)
    plain = torch.where(wide.isnan(), torch.full_like(wide, float("nan")), plain)
    flushed = torch.where(_is_subnormal(x, wide), torch.zeros_like(wide), plain)
    return plain, flushed


def _is_subnormal(x: Tensor, wide: Tensor) -> Tensor:
    return (wide != 0) & (wide.abs() < torch.finfo(x.dtype).smallest_normal)


def _classes(x: Tensor) -> dict[str, int]:
    if not x.dtype.is_floating_point:
        return {"subnormal": 0}
    wide = x.to(torch.float64)
    masks = {
        "nan": wide.isnan(),
        "+inf": wide == float("inf"),
        "-inf": wide == float("-inf"),
        "+0": (wide == 0) & ~wide.signbit(),
        "-0": (wide == 0) & wide.signbit(),
        "subnormal": _is_subnormal(x, wide),
    }
    return {name: int(mask.sum()) for name, mask in masks.items()}


def _tensor(spec: TensorSpec) -> Tensor:
    raw = torch.frombuffer(bytearray(spec.values or b""), dtype=torch.uint8) if (
        spec.values
    ) else torch.empty(0, dtype=torch.uint8)  # fmt: skip
    return raw.view(getattr(torch, spec.dtype)).reshape(spec.shape)


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
                name = f"{reading.probe}/{dtype}"
                if reading.terms:  # an order at each number of terms
                    name += f"/{reading.terms}"
                tree = reading.tree
                told = "" if tree is None else f" ({_hash(repr(tree).encode())[:12]})"
                found[name] = reading.found + told
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
