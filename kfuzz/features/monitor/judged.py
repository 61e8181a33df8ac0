"""One observed call, judged as the campaign judges a case: same contracts, same bounds.

What needs further calls of the kernel says nothing here; which of several contracts a
wrong value breaks is therefore provisional until the finding is shrunk.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from kfuzz.contracts.binding import Derived
from kfuzz.contracts.classes import CLASSES
from kfuzz.contracts.gradients.bounds import attributed, in_force
from kfuzz.contracts.language import Probe
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.operators import OPERATORS
from kfuzz.contracts.oracle import accept, expected_metadata, first_nonfinite, pose
from kfuzz.contracts.reading import ratios, unjudged
from kfuzz.contracts.suite import mapped
from kfuzz.core.declaration import Declaration
from kfuzz.core.errors import BindingError
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CaseReport, Kind
from kfuzz.evaluation.calling import posed
from kfuzz.evaluation.diagnosis import judge_explained
from kfuzz.evaluation.large import Cut, cut_of, part_of, row_axis
from kfuzz.execution.calls.results import read_outputs
from kfuzz.execution.device.backends import backend_of
from kfuzz.features.monitor.seen import Returned, Seen, TensorCopy
from kfuzz.features.monitor.subjects import Outside, Undefined
from kfuzz.numerics.acceptance import Acceptance
from kfuzz.numerics.compare import Outcome, compare
from kfuzz.numerics.run import Expected, Metadata, Run, Touch
from kfuzz.strategies.parameters import IndexParameter

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
    near = {} if seen.verdict_only else ratios(evidence)
    report = CaseReport(
        verdicts, failure=failure, ratio=max(near.values(), default=0.0),
        ratios=near if len(near) > 1 else {},
    )  # fmt: skip
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
    outputs, lay, wrong = read_outputs(
        rebuilt(seen.returned), expected, _CPU, copy=copy
    )
    places = zip(lay, seen.returned.copies, strict=False)
    return Run(
        outputs=outputs,
        metadata=wrong,
        touches=touches,
        arguments={n: c.footprint for n, c in seen.tensors.items()},
        results={n: c.footprint for n, c in places},
    )


def rebuilt(returned: Returned) -> object:
    """Return tuples with the copies; what else holds some is only of the same type."""
    if not returned.nest:
        return _stand_in(returned.kind)
    items = (
        leaf.values if isinstance(leaf, TensorCopy) else _stand_in(leaf)
        for leaf in returned.leaves
    )

    def filled(nest: Any) -> object:
        return tuple(map(filled, nest)) if isinstance(nest, list) else next(items)

    return filled(json.loads(returned.nest))


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

AT_ONCE: Final = 1 << 17
"""Elements of a slice: some ten tensors of float64 stay in a cache of a few MiB, and
the time of torch's operators outweighs that of calling them."""


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
    if not own or seen.changed or seen.handed:
        return False
    if declaration.nonfinite != "propagate" or case.largest < 2 * AT_ONCE:
        return False
    parameters = [operator.tensors[name] for name in specs]
    if any(p.domain or isinstance(p, IndexParameter) for p in parameters):
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

    try:
        cut = cut_of(operator, case, axis, accepted, AT_ONCE)
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
        outcomes = compare(y, a).outcomes
        if a.relation is not None or bool((outcomes != Outcome.OK).any()):
            return False
    return True
