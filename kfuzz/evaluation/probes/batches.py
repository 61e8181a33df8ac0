"""Batch invariance: the same rows in other batches, for kernels that declare it."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

import torch

from kfuzz.contracts.derive import Derived
from kfuzz.contracts.evidence import Batches, Evidence, Rows
from kfuzz.contracts.language import Probe
from kfuzz.contracts.operator import Operator
from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.evaluation.case_calls import CaseCalls, Step
from kfuzz.numerics.acceptance import Acceptance
from kfuzz.numerics.elements import as_integers

# Two rows are the fewest of which a batch can be a part.
_FEWEST: Final = 2
# Few rows are where kernels choose another split or another tile.
_FEW: Final = (1, 2, 3, 5)


def with_batches(evidence: Evidence, calls: CaseCalls) -> Evidence:
    """Return the evidence with the case twice, then parts: fewer rows, or reordered.

    Unchanged where that is not declared, or the case has no two rows along a leading
    axis. A part that the declaration excludes is left out.
    """
    operator, claims, whole = (
        evidence.operator,
        evidence.declaration,
        evidence.acceptance,
    )
    derived = calls.plain
    axis = batch_axis(operator, derived.case)
    if not claims.batch_invariant or axis is None or whole is None:
        return evidence
    n = derived.case.dims[axis]
    found: list[Rows] = []
    axes: Mapping[str, int] | None = None
    for rows in _parts(n, reordered=_is_plain(derived.case, axis)):
        part = taken(derived, axis, rows)
        if not operator.admits(part.case, claims):
            continue
        wanted = calls.accepted(part)
        if wanted is None:
            continue
        if len(rows) < n:
            axes = _axes(whole, wanted, n, len(rows))
            if axes is None:
                return evidence
        if axes is not None:
            found.append(Rows(rows, axes, calls.on(part, wanted)))
    if axes is None or not found:
        return evidence
    everything = tuple(range(n))
    twice = [Rows(everything, axes, calls.on(derived, whole)) for _ in "12"]
    return evidence.knowing(Batches((*twice, *found)))


def batch_axis(operator: Operator, case: Case) -> str | None:
    """Return the dimension of independent rows; None where the case has none.

    It is the first axis of every tensor that has it, no index is below it, and it is
    not reduced.
    """
    name = operator.batch or "d0"
    specs = case.tensors.values()
    holding = [s for s in specs if name in s.axes]
    if not holding or case.dims[name] < _FEWEST:
        return None
    if any(s.axes[0] != name for s in holding) or any(s.below == name for s in specs):
        return None
    reduced = operator.reduced_axis(case)
    if reduced is not None and case.lead.axes[reduced] == name:
        return None
    return name


def taken(derived: Derived, axis: str, rows: tuple[int, ...]) -> Derived:
    """Return the case with some of its rows, each tensor laid out as it was."""
    tensors, values = {}, {}
    for name, spec in derived.case.tensors.items():
        tensors[name], values[name] = spec, derived.values[name]
        if axis not in spec.axes:
            continue
        x = values[name]
        index = torch.tensor(rows, device=x.device)
        # As integers: float8 has no operators.
        values[name] = as_integers(x).index_select(0, index).view(x.dtype)
        tensors[name] = _resized(spec, len(rows))
    return Derived(replace(derived.case, tensors=tensors, edge=None), values)


def _resized(spec: TensorSpec, rows: int) -> TensorSpec:
    # The values are given apart: a recipe has to name some.
    fill = spec.fill or Fill("zeros")
    shape = (rows, *spec.shape[1:])
    return replace(spec, shape=shape, fill=fill, plants=(), values=None)


def _parts(n: int, *, reordered: bool) -> Iterator[tuple[int, ...]]:
    """Yield rows of batches other than the whole, the fewest first."""
    for count in sorted({c for c in (*_FEW, n // 2, n - 1) if 0 < c < n}):
        yield tuple(range(count))
    yield (n - 1,)
    if reordered:
        yield tuple(range(n - 1, -1, -1))


def _is_plain(case: Case, axis: str) -> bool:
    """Whether rows can change places: none of them share memory."""
    specs = (s for s in case.tensors.values() if axis in s.axes)
    return all(s.is_contiguous for s in specs)


def _axes(
    whole: Mapping[str, Acceptance], part: Mapping[str, Acceptance], n: int, rows: int
) -> dict[str, int] | None:
    """Return the axis of each output that holds the rows; None if one has none."""
    axes: dict[str, int] = {}
    if whole.keys() != part.keys():
        return None
    for name, accepted in whole.items():
        have, other = accepted.shape, part[name].shape
        pairs = enumerate(zip(have, other, strict=False))
        differ = [i for i, (one, two) in pairs if one != two]
        if len(have) != len(other) or len(differ) != 1:
            return None
        if (have[differ[0]], other[differ[0]]) != (n, rows):
            return None
        axes[name] = differ[0]
    return axes


STEP: Final = Step((Probe.SLICED,), with_batches, place=(5, 2))
