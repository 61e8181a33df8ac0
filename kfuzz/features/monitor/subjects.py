"""What is monitored: a call as a case of its contract, and what it breaks."""

import inspect
import math
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from kfuzz.contracts.binding import BoundKernel, Derived
from kfuzz.contracts.classes import CLASSES
from kfuzz.contracts.gradients.bounds import attributed, in_force
from kfuzz.contracts.language import Probe
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.operators import OPERATORS
from kfuzz.contracts.oracle import accept, expected_metadata, first_nonfinite, pose
from kfuzz.contracts.reading import unjudged, worst_ratio
from kfuzz.contracts.suite import mapped
from kfuzz.core.declaration import Declaration
from kfuzz.core.errors import BindingError, HarnessError
from kfuzz.core.finding import Finding, Target, host_fingerprint
from kfuzz.core.recipe import Case, Fill, Scalar, TensorSpec
from kfuzz.core.verdict import CaseReport, Failure, Kind, Signature, State
from kfuzz.evaluation.calling import posed
from kfuzz.evaluation.diagnosis import judge_explained
from kfuzz.evaluation.large import Cut, cut_of, part_of, row_axis
from kfuzz.execution.calls.results import read_outputs
from kfuzz.execution.device.backends import backend_of, sharing
from kfuzz.execution.interpreter.watch import interpreting
from kfuzz.execution.memory.placement import extent
from kfuzz.execution.values.fills import in_domain
from kfuzz.features.monitor.gate import Reason
from kfuzz.features.monitor.seen import Call, Returned, Seen, TensorCopy
from kfuzz.numerics.acceptance import Acceptance
from kfuzz.numerics.compare import Outcome, compare
from kfuzz.numerics.run import Expected, Metadata, Run, Touch
from kfuzz.store.corpus import Corpus, Stored
from kfuzz.store.life import enter, merged
from kfuzz.strategies.parameters import IndexParameter, ScalarParameter
from kfuzz.targets.load import project_root

Arguments = Callable[..., Mapping[str, Any] | Sequence[Any]]
"""Takes what the function is called with; gives the contract's arguments, by name or
in order."""

OWNERS: Final = ("self", "ctx", "cls")
"""Names of the parameter for what a function belongs to: its contract has none."""


def home_of(kernel: BoundKernel) -> Target:
    """Return where a kernel is found again: its file, or its module in a package.

    A module of a package imports its neighbours by the package's name, which a file
    loaded by its path has not. Asked where the kernel is bound: when a program ends,
    its main module has no file any more.
    """
    module = sys.modules.get(kernel.module)
    file = getattr(module, "__file__", None)
    if not kernel.top_level or not file:
        return Target("", kernel.name)
    path, root = Path(file).resolve(), project_root()
    packaged = bool(getattr(module, "__package__", "")) and kernel.module != "__main__"
    if packaged or not path.is_relative_to(root):
        known = kernel.module != "__main__"
        return Target("", kernel.name, kernel.module if known else "")
    return Target(path.relative_to(root).as_posix(), kernel.name)


class Outside(Exception):
    """A call that the contract says nothing of: counted, and not judged."""


class Undefined(Outside):
    """A call whose NaN or infinities the declaration leaves undefined."""


@dataclass(frozen=True)
class Judged:
    """What came of checking a call.

    Attributes:
        case: the call as a case, its values pinned.
        report: verdicts and the failure, if there is one.
        replayable: whether the kernel of the subject takes the case.
    """

    case: Case
    report: CaseReport
    replayable: bool


class Subject(ABC):
    """A function with what its calls are held to.

    Attributes:
        name: the function's.
        operator_name: of what it is to compute.
        declaration: what the function claims.
        explicit: names of the claims that were written down.
        arguments: from the function's arguments to the contract's; None where the
            signatures tell.
        owner: the parameter for what the function belongs to, "" if it has none.
        kernel: it as a bound kernel, where kfuzz can call it by itself; None else.
        target: where the kernel is found again, for findings.
    """

    target: Target

    def __init__(
        self,
        function: Callable[..., Any],
        declaration: Declaration,
        *,
        name: str,
        operator_name: str,
        explicit: frozenset[str],
        arguments: Arguments | None,
        kernel: BoundKernel | None = None,
    ) -> None:
        """Take a function; see the attributes."""
        self.name, self.operator_name = name, operator_name
        self.declaration, self.explicit = declaration, explicit
        self.arguments, self.kernel = arguments, kernel
        self.owner = "" if arguments else owner_of(function)

    @abstractmethod
    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """Return the arguments of a call.

        Raises:
            Outside: if the contract says nothing of such a call.
            Exception: whatever functions of the user's raise.
        """

    @abstractmethod
    def judge(self, seen: Seen) -> Judged:
        """Judge a call; all tensors are on the CPU.

        Raises:
            Outside: if the contract says nothing of it.
            Exception: whatever a reference of the user's raises.
        """

    def results(self, returned: Any) -> Any:
        """Return what of a returned object the contract speaks of: all of it."""
        return returned


def owner_of(function: Callable[..., Any]) -> str:
    """Return the parameter for what a function belongs to; "" if it has none.

    A bound method has been given it already.
    """
    signature = signature_of(function)
    first = next(iter(signature.parameters), "") if signature else ""
    return first if first in OWNERS else ""


def signature_of(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return a function's signature; None for builtins that have none."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def scalar_of(value: Any, name: str) -> Scalar:
    """Return an argument as recipes hold it; a dtype is its name.

    Raises:
        Outside: if it is none that a recipe can hold.
    """
    if isinstance(value, torch.dtype):
        return dtype_name(value)
    if is_plain(value):
        return value  # type: ignore[no-any-return]
    raise Outside(f"{name} is {type(value).__name__}, no plain scalar")


def is_plain(value: Any) -> bool:
    """Whether an argument is a scalar as recipes hold it, or a dtype."""
    return type(value) in (bool, int, float, str, type(None), torch.dtype)


def dtype_name(dtype: torch.dtype) -> str:
    """Return torch's name of a dtype without the prefix."""
    return str(dtype).removeprefix("torch.")


def spec_of(
    copy: TensorCopy,
    axes: tuple[str, ...],
    *,
    below: str = "",
    domain: str = "",
    valued: bool = True,
) -> TensorSpec:
    """Return the recipe of a tensor with its values, or with zeros instead."""
    data = raw(copy.values).numpy().tobytes() if valued else None
    contiguous = TensorSpec(copy.shape, axes, "uint8", copy.strides).is_contiguous
    return TensorSpec(
        copy.shape, axes, dtype_name(copy.dtype), None if contiguous else copy.strides,
        copy.offset, None if valued else Fill("zeros"),
        values=data, below=below, domain=domain,
    )  # fmt: skip


def raw(values: Tensor) -> Tensor:
    """Return the elements of a tensor in C order as bytes, uint8 [bytes], fresh.

    One element may have any stride and count as contiguous.
    """
    whole = values.reshape(-1).clone(memory_format=torch.contiguous_format)
    return whole.view(torch.uint8)


def case_of(
    operator: Operator,
    seen: Seen,
    scalars: Mapping[str, Scalar],
    *,
    by_size: bool = False,
    valued: bool = True,
) -> Case:
    """Return a call as a pinned case of an operator.

    Args:
        operator: what was to be computed.
        seen: the call.
        scalars: all scalars.
        by_size: whether the leading dimensions of "*" are named by their sizes: of a
            reference it is not known which belong together, and equal ones shrink
            together. Else as strategies name them.
        valued: whether it holds the values; zeros stand for them else.

    Raises:
        Outside: if a rank does not fit.
    """
    specs, late = {}, []
    for name, copy in seen.tensors.items():
        parameter = operator.tensors[name]
        below = parameter.below if isinstance(parameter, IndexParameter) else ""
        count = len(copy.shape) - len(parameter.names)
        if parameter.without:
            late.append(name)
        if count < 0 or (count and not parameter.variadic):
            raise Outside(f"{name} has rank {len(copy.shape)}: {parameter.describe()}")
        leading = [f"n{n}" if by_size else f"d{i}" for i, n in enumerate(copy.shape)]
        axes = parameter.axes(leading[:count])
        specs[name] = spec_of(
            copy, axes, below=below, domain=parameter.domain, valued=valued
        )
    case = Case(specs, dict(scalars))
    for name in late:
        lead = case.lead.axes
        axis = operator.reduced_axis(case)
        kept = [a for i, a in enumerate(lead) if axis is None or i != len(lead) + axis]
        if len(kept) != len(case.tensors[name].shape):
            raise Outside(f"{name} does not fit the other arguments")
        spec = replace(specs[name], axes=tuple(kept), below="", domain="")
        case = case.with_tensor(name, spec)
    return case


def outside(operator: Operator, claims: Declaration, case: Case) -> str:
    """Return why a kernel's contract says nothing of a case, "" if it does.

    What its declaration asks of shapes, dtypes and layouts, and the operator's domain.
    """
    for name, spec in case.tensors.items():
        if claims.layouts == "any":
            continue
        if spec.offset:
            return f'{name} begins at an odd address: layouts="{claims.layouts}"'
        if claims.layouts == "contiguous" and not spec.is_contiguous:
            return f'{name} is not contiguous: layouts="contiguous"'
        shape, steps = spec.shape, spec.element_strides
        dense = not shape or shape[-1] <= 1 or steps[-1] == 1
        # Rows are dense and no elements overlap.
        dense &= all(step for n, step in zip(shape, steps, strict=True) if n > 1)
        if claims.layouts == "inner_contiguous" and not dense:
            return f'{name} has gaps in its rows: layouts="inner_contiguous"'
    for name, scalar in operator.scalars.items():
        if not isinstance(scalar, ScalarParameter) or name not in case.scalars:
            continue
        value, known = case.scalars[name], (scalar.default, *scalar.domain)
        if isinstance(value, str) and value not in known:
            return f"{name}={value!r} is not {scalar.describe()}"
        if isinstance(value, float) and not math.isfinite(value):
            return f"{name}={value} is no number"
    for name in case.tensors:
        if not in_domain(case, name):
            return f"{name} is not {operator.tensors[name].describe()}"
    if not operator.accepts(case, claims):
        shapes = ", ".join(
            f"{n} {s.dtype}{list(s.shape)}" for n, s in case.tensors.items()
        )
        return f"outside what is declared: {shapes}"
    return ""


def named(given: Any, names: Sequence[str], where: str) -> dict[str, Any]:
    """Return what `arguments=` gave, by name.

    Raises:
        BindingError: if it is neither a mapping nor a sequence that is short enough.
    """
    if isinstance(given, Mapping):
        return dict(given)
    if isinstance(given, Tensor):
        given = (given,)
    if not isinstance(given, tuple | list) or len(given) > len(names):
        raise BindingError(
            f"arguments= returned {type(given).__name__}, neither a mapping nor at "
            f"most {len(names)} arguments",
            where=where,
        )
    return dict(zip(names, given, strict=False))


# What a plain reference's arithmetic depends on besides its arguments.
#
# TF32 that the process allows where it calls, and random numbers.

PRODUCTS: Final = {"matmul": "matmul", "convolution": "conv", "recurrence": "rnn"}
"""Kinds of products, and what torch calls them."""

# Read by torch when it is loaded.
_OVERRIDE: Final = os.environ.get("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE") == "1"
_RECURRENT: Final = frozenset(
    {"lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell"}
)


def tf32_allowed() -> frozenset[str]:
    """Return the kinds of float32 products for which torch may use TF32 on GPUs now."""
    # What `torch.backends.cuda.matmul.fp32_precision` asks, at less cost.
    of: Any = torch._C._get_fp32_precision_getter
    allowed = [k for k, name in PRODUCTS.items() if of("cuda", name) == "tf32"]
    return frozenset([*allowed, "matmul"] if _OVERRIDE else allowed)


class NoDraws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Random numbers put a call outside the contract: another thread draws from them.

    What has a generator of its own may draw from that.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run an operator that draws nothing."""
        kwargs = kwargs or {}
        draws = torch.Tag.nondeterministic_seeded in func.tags
        if draws and _draws(func, args, kwargs):
            raise Outside(f"the reference draws random numbers by {func}")
        return func(*args, **kwargs)


class Recurrences(TorchFunctionMode):
    """Notes whether a recurrent layer is called: torch decomposes it further below.

    Attributes:
        found: whether one was.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found = False

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run a function of torch's."""
        self.found |= getattr(func, "__name__", "") in _RECURRENT
        return func(*args, **(kwargs or {}))


def _draws(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an operator draws in a call: dropout may be off."""
    given = {a.name: a.default_value for a in func._schema.arguments}
    given |= dict(zip(given, args, strict=False)) | kwargs
    if given.get("generator") is not None:
        return False
    if "dropout_p" in given:
        return bool(given["dropout_p"])
    return given.get("train", given.get("training", True)) is not False


# One observed call, judged as the campaign judges a case: same contracts, same bounds.
#
# What needs further calls of the kernel says nothing here; which of several contracts a
# wrong value breaks is therefore provisional until the finding is shrunk.

_CPU: Final = torch.device("cpu")
_OF_ADDRESSES: Final = frozenset({"K-MEM-04"})
_OF_VALUES: Final = frozenset({"K-VAL-01", "K-GRD-01"})


def judged(
    operator: Operator,
    declaration: Declaration,
    explicit: frozenset[str],
    case: Case,
    seen: Seen,
    *,
    without: frozenset[str] = frozenset(),
    metadata: Metadata | None = None,
) -> CaseReport:
    """Judge an observed call.

    Args:
        operator: what was to be computed.
        declaration: what the kernel claims.
        explicit: names of the claims that were written down.
        case: the call as a case.
        seen: what was observed.
        without: contract classes that say nothing of such a call.
        metadata: what is known to be wrong with a result before any value is read.

    Raises:
        Outside: if the oracle has no result for the call, if the declaration leaves
            NaN and infinities of its arguments undefined, or if a call that is over
            has a result of which no element can be decided.
        BindingError: if the operator's oracle or error model is malformed.
    """
    values = {n: copy.values.contiguous() for n, copy in seen.tensors.items()}
    if declaration.nonfinite == "undefined":
        # A search draws none; a live call has what it has.
        found = first_nonfinite(operator, values)
        if found is not None:
            what = found.describe()
            raise Undefined(f"{what}, which nonfinite='undefined' leaves open")
    evidence = posed(operator, declaration, Derived(case, values))
    if evidence.refused is not None:
        line = next(iter(str(evidence.refused).strip().splitlines()), "")
        kind = type(evidence.refused).__name__
        raise Outside(f"the reference raises {kind}: {line:.200}")
    expected = expected_metadata(evidence.acceptance or {})
    base = run_of(seen, expected, metadata)
    evidence = replace(evidence, runs={Probe.BASE: base}, explicit=explicit)
    every = frozenset(CLASSES)
    if operator.forward is not None:
        every = in_force(every, every)
    if seen.is_compiled:
        without = without | _OF_ADDRESSES
    wanted = _OF_VALUES if seen.verdict_only else None
    evidence, verdicts, failure = judge_explained(
        evidence, every - without, asked=wanted
    )
    if failure is not None:
        failure = mapped(evidence, failure)
    elif seen.verdict_only and (undecided := unjudged(evidence)):
        raise Outside(f"no element of {', '.join(undecided)} can be decided")
    ratio = 0.0 if seen.verdict_only else worst_ratio(evidence)
    report = CaseReport(verdicts, failure=failure, ratio=ratio)
    return report if operator.forward is None else attributed(report, every)


def run_of(
    seen: Seen,
    expected: dict[str, Expected],
    metadata: Metadata | None,
    *,
    copy: bool = True,
) -> Run:
    """Return an observed call as a run of the kernel, whose results are copies."""
    touches = tuple(
        Touch(
            name, "element", count, 0, seen.tensors[name].dtype.itemsize,
            tuple(map(int, np.unravel_index(first, seen.tensors[name].shape))),
        )
        for name, (count, first) in seen.changed.items()
    )  # fmt: skip
    if seen.handed:
        metadata = Metadata(Kind.WRONG_TYPE, "", seen.handed)
    wrong = metadata or _elsewhere(seen, expected)
    if wrong is not None:
        return Run(metadata=wrong, touches=touches)
    outputs, lay, wrong, wider = read_outputs(
        rebuilt(seen.returned), expected, _CPU, copy=copy
    )
    places = zip(lay, seen.returned.copies, strict=False)
    return Run(
        outputs=outputs,
        metadata=wrong or wider,
        touches=touches,
        arguments={n: c.footprint for n, c in seen.tensors.items()},
        results={n: c.footprint for n, c in places},
    )


def rebuilt(returned: Returned) -> object:
    """Return tuples with the copies; what else holds some is only of the same type."""
    if not _is_plain(returned.nest):
        return _stand_in(returned.kind)
    items = (
        leaf.values if isinstance(leaf, TensorCopy) else _stand_in(leaf)
        for leaf in returned.leaves
    )

    def filled(nest: Any) -> object:
        return tuple(map(filled, nest)) if isinstance(nest, tuple) else next(items)

    return filled(returned.nest)


def _is_plain(nest: Any) -> bool:
    """Whether tuples and lists alone hold leaves."""
    return nest == 0 or (isinstance(nest, tuple) and all(map(_is_plain, nest)))


def _stand_in(kind: str) -> object:
    """Return an object whose type has a name."""
    return None if kind == "NoneType" else type(kind, (), {})()


def _elsewhere(seen: Seen, expected: dict[str, Expected]) -> Metadata | None:
    """Return what is wrong with the device of a result.

    It is that of the arguments, those on the CPU aside where others are on a GPU.
    """
    kinds = {copy.device.type for copy in seen.tensors.values()}
    wanted = next((k for k in kinds if not backend_of(k).has.on_host), "cpu")
    names = list(expected)
    for i, leaf in enumerate(seen.returned.leaves):
        if isinstance(leaf, TensorCopy) and leaf.device.type != wanted:
            name = names[i] if i < len(names) else ""
            what = f"{name or 'a result'} is on {leaf.device}, expected {wanted}"
            return Metadata(Kind.WRONG_DEVICE, name, what)
    return None


# Whether an observed call's results are right, seen a few rows at a time.
#
# Most of what judging a large call costs is memory for numbers of float64 that no cache
# holds. Where the rows of an operator do not depend on one another, they are held
# against what is accepted slice by slice. Only a plain yes is given: whatever else is
# found, or cannot be found so, is judged whole.

AT_ONCE: Final = 1 << 18
"""Elements of a slice: some ten tensors of float64 stay in a cache of 32 MiB, and the
time of torch's operators outweighs that of calling them."""

_CUTS: Final[dict[Any, Cut]] = {}  # of calls by their structure
_MOST_CUTS: Final = 1 << 10


def conforms(
    operator: Operator, declaration: Declaration, case: Case, seen: Seen
) -> bool:
    """Whether every element of the results is decided and right, as far as is seen.

    Args:
        operator: one of kfuzz's own: of others it is not known that rows are rows.
        declaration: what the kernel claims.
        case: the call as a case without values.
        seen: what was observed.

    Raises:
        BindingError: if the operator's oracle or error model is malformed.
    """
    specs = case.tensors
    own = operator is OPERATORS.get(operator.name)
    if not own or seen.changed or seen.handed or case.largest <= AT_ONCE:
        return False
    parameters = [operator.tensors[name] for name in specs]
    apart = (p.domain or isinstance(p, IndexParameter) for p in parameters)
    if declaration.nonfinite != "propagate" or any(apart):
        return False
    plain = {n: replace(s, strides=None, offset=0) for n, s in specs.items()}
    case = replace(case, tensors=plain)
    axis = row_axis(operator, case, lambda spec: True)
    if axis is None or any(
        axis and axis not in s.axes and s.numel > AT_ONCE // 4 for s in plain.values()
    ):  # seen with each slice
        return False
    values = {n: c.values.reshape(-1) for n, c in seen.tensors.items()}

    def accepted(start: int, stop: int) -> dict[str, Acceptance]:
        part = part_of(case, axis, start, stop, lambda n, a, b: values[n][a:b])
        return accept(operator, pose(operator, part.case, part.values, declaration))

    shapes = ((n, s.shape, s.dtype) for n, s in plain.items())
    like = (operator.name, declaration, AT_ONCE, *shapes, *case.scalars.items())
    try:
        cut = _CUTS.get(like) or cut_of(operator, case, axis, accepted, AT_ONCE)
        if len(_CUTS) < _MOST_CUTS:
            _CUTS[like] = cut
        run = run_of(seen, dict(cut.expected), None, copy=False)
        if run.metadata is not None:
            return False
        starts = range(0, cut.rows, cut.at_once)
        return all(_inside(cut, run.outputs, start, accepted) for start in starts)
    except BindingError:
        raise
    except Exception:  # not to be cut, or outside the oracle's domain
        return False


def _inside(
    cut: Cut,
    outputs: Mapping[str, Tensor],
    start: int,
    accepted: Callable[[int, int], Mapping[str, Acceptance]],
) -> bool:
    stop = min(start + cut.at_once, cut.rows)
    for name, a in accepted(start, stop).items():
        y = cut.slice_of(name, outputs[name], start, stop).unsqueeze(0)
        if a.relation is not None or int(compare(y, a).outcomes.amax()) != Outcome.OK:
            return False
    return True


# What is reported of a violation, how much of the data that is, and what is stored.

# Of two elements mean and deviation give both away, of a few a good guess.
FEWEST: Final = 32
"""Finite elements that statistics are of, at least, where no element is reported."""


_LOGGED: Final = (
    "function", "contract", "kind", "output", "elements", "ratio", "call", "why",
    "finding",
)  # fmt: skip


class Keep(StrEnum):
    """How much of a call's data leaves the monitor.

    FULL: the inputs themselves; only then are findings stored.
    SUMMARY: shapes, scalars, statistics, the least and the greatest element of each
        argument, and the numbers at the worst element.
    STATISTICS: shapes, how many elements are NaN or infinite, how many miss and by how
        many times the tolerance; of arguments with `FEWEST` finite elements or more
        their mean, deviation and number of zeros. No element, no index and no scalar.
        That is no anonymity: elements that are all alike, or one far above the others,
        show in a mean.
    """

    FULL = "full"
    SUMMARY = "summary"
    STATISTICS = "statistics"


@dataclass(frozen=True)
class TensorSummary:
    """What is reported of a tensor in place of its elements.

    Attributes:
        shape: sizes.
        dtype: torch's name without the prefix.
        strides: in elements.
        device: where it lay.
        mean, deviation: of its finite elements; None where it has none, holds no
            numbers, or they may not be reported.
        least, greatest: two of its finite elements; None likewise, and always where
            statistics alone are kept.
        nan, infinite: how many elements are so.
        zero: likewise; None where it may not be reported.
    """

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...]
    device: str
    mean: float | None = None
    deviation: float | None = None
    least: float | None = None
    greatest: float | None = None
    nan: int = 0
    infinite: int = 0
    zero: int | None = 0


@dataclass(frozen=True)
class Violation:
    """One call that broke its contract.

    Attributes:
        function: name of the monitored function.
        operator: name of what it is held to.
        contract: the contract class, e.g. "C-PRC-01"; provisional until the finding
            is shrunk, since one call cannot distinguish all classes.
        kind: how it shows.
        output: the result concerned, "" for none.
        message: one line.
        elements: how many elements of that result miss.
        ratio: |error| / tolerance at the worst element; None where that is 0.
        index: logical index of the worst element.
        actual: what the function gave there.
        expected: the reference there.
        low, high: what is allowed there.
        inputs: what is reported of each tensor argument.
        scalars: the other arguments.
        values: the tensor arguments as they were before the call, on the CPU; None
            unless everything is kept.
        call: number of the call.
        why: why it was looked at.
        when: UTC time, ISO 8601 to the second.
        finding: id of the stored finding, "" where none was stored.
        path: its folder, "" likewise.
    """

    function: str
    operator: str
    contract: str
    kind: Kind
    output: str
    message: str
    elements: int
    ratio: float | None
    inputs: Mapping[str, TensorSummary]
    call: int
    why: Reason
    when: str
    index: tuple[int, ...] | None = None
    actual: float | None = None
    expected: float | None = None
    low: float | None = None
    high: float | None = None
    scalars: Mapping[str, Scalar] = field(default_factory=dict)
    values: Mapping[str, Tensor] | None = field(default=None, repr=False)
    finding: str = ""
    path: str = ""

    def fields(self) -> dict[str, Any]:
        """Return what structured logs hold: plain values, no tensor."""
        found = {name: getattr(self, name) for name in _LOGGED}
        return {
            f"kfuzz_{name}": str(value) if isinstance(value, StrEnum) else value
            for name, value in found.items()
        }


def violation_of(
    failure: Failure,
    seen: Seen,
    *,
    keep: Keep,
    scalars: Mapping[str, Scalar],
    **known: Any,
) -> Violation:
    """Return the evidence of a failure, as far as the data may be reported.

    Args:
        failure: as the judge attributed it.
        seen: the call.
        keep: how much is reported.
        scalars: the arguments that are no tensors.
        known: what `Violation` says of function and call: function, operator, call,
            why, when, finding and path.
    """
    # The message quotes the worst element.
    what = f"{failure.output}: " if failure.output else ""
    message = f"{what}{failure.kind} ({failure.contract})"
    more: dict[str, Any] = {}
    if keep is not Keep.STATISTICS:
        message = failure.message
        more = {
            "index": failure.index, "actual": failure.got, "low": failure.low,
            "expected": failure.expected, "high": failure.high,
            "scalars": dict(scalars),
        }  # fmt: skip
    if keep is Keep.FULL:
        more["values"] = {n: copy.values.clone() for n, copy in seen.tensors.items()}
    return Violation(
        contract=failure.contract, kind=failure.kind, output=failure.output,
        message=message, elements=failure.elements, ratio=failure.ratio,
        inputs={
            name: summary_of(copy, elements=keep is not Keep.STATISTICS)
            for name, copy in seen.tensors.items()
        },
        **more, **known,
    )  # fmt: skip


def summary_of(copy: TensorCopy, *, elements: bool) -> TensorSummary:
    """Return what is reported of a tensor.

    Args:
        copy: the tensor.
        elements: whether single elements may be reported.
    """
    made = TensorSummary(
        copy.shape, str(copy.dtype).removeprefix("torch."), copy.strides,
        str(copy.device),
    )  # fmt: skip
    if copy.dtype is torch.bool or not copy.values.numel():
        return made
    wide = copy.values.to(torch.float64)
    finite = wide[torch.isfinite(wide)]
    few = not elements and finite.numel() < FEWEST
    some = bool(finite.numel()) and not few
    return replace(
        made,
        mean=float(finite.mean()) if some else None,
        deviation=float(finite.std(unbiased=False)) if some else None,
        least=float(finite.min()) if some and elements else None,
        greatest=float(finite.max()) if some and elements else None,
        nan=int(wide.isnan().sum()), infinite=int(wide.isinf().sum()),
        zero=None if few else int((finite == 0).sum()),
    )  # fmt: skip


# Violations as findings of a corpus: what `kfuzz shrink` and `kfuzz replay` take.

MOST: Final = 3
"""Findings of one signature that are stored; a fault that shows in every batch would
fill the disk."""


class Store:
    """Puts findings into a corpus; for the worker alone.

    Attributes:
        corpus: the corpus.
    """

    def __init__(self, path: str | Path) -> None:
        self.corpus = Corpus(Path(path))
        self._stored: dict[Signature, int] = {}

    def save(self, subject: Subject, judged: Judged, seen: Seen) -> tuple[str, str]:
        """Store a violating call.

        Returns:
            Its id and folder; "" twice where enough of its kind are stored.

        Raises:
            HarnessError: if the disk refuses.
        """
        failure = judged.report.failure
        assert failure is not None
        made = finding_of(subject, judged, failure, seen)
        count = self._stored.get(made.signature)
        if count is None:
            entries = self.corpus.entries(made.signature.kernel)
            found = (e.finding.signature for e in entries if isinstance(e, Stored))
            count = sum(s.symptom == made.signature.symptom for s in found)
        self._stored[made.signature] = count
        if count >= MOST:
            return "", ""

        def join(held: Finding | None) -> Finding:
            """Keep what was reported of the very same call before, a mark above all."""
            alike = held is not None and held.signature == made.signature
            return merged(held, made) if held is not None and alike else made

        stored = self.corpus.change(made, join)
        assert stored is not None
        self._stored[made.signature] += 1
        return stored.id, str(self.corpus.root / stored.folder)


def finding_of(
    subject: Subject, judged: Judged, failure: Failure, seen: Seen
) -> Finding:
    """Return a violating call as a finding, its inputs pinned."""
    devices = [c.device for c in seen.tensors.values()]
    elsewhere = (d for d in devices if not backend_of(d).has.on_host)
    device = next(elsewhere, torch.device("cpu"))
    backend = backend_of(device)
    if interpreting():
        alike = sharing(backend.torch_type)
        backend = next((b for b in alike if not b.has.native), backend)
    name, driver = backend.describe(str(device))
    target = subject.target if judged.replayable else Target("", subject.name)
    case = placeable(judged.case)
    made = Finding(
        signature=failure.signature(subject.name),
        target=target,
        operator=subject.operator_name,
        device=backend.name,
        case=case,
        first=case,
        failure=failure,
        declaration=subject.declaration,
        fingerprint=host_fingerprint(device=name, driver=driver, flags=backend.flags()),
        first_errors=failure.errors,
    )
    return enter(made, State.NEW, "seen by the monitor")


def placeable(case: Case) -> Case:
    """Return a case that memory can be laid out for.

    Elements that overlap other than by a stride of 0 lie side by side instead.
    """
    tensors = {}
    for name, spec in case.tensors.items():
        try:
            extent(name, spec)
        except HarnessError:
            spec = replace(spec, strides=None)
        tensors[name] = spec
    return replace(case, tensors=tensors)
