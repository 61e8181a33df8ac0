"""A shorter call after calls on the case's own shape: what they left behind in it.

A buffer that is kept for the next call may be larger than that call needs, as one
padded to whole blocks is. Beyond the call's own data it holds those of the call before.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from torch import Tensor

from kfuzz.contracts.derive import Derived
from kfuzz.contracts.evidence import Evidence, Shorter
from kfuzz.contracts.language import Probe
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.reading import agree, comparable, conforms
from kfuzz.core.declaration import Declaration
from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.evaluation.case_calls import CaseCalls, Step
from kfuzz.evaluation.probes.second_call import second_data
from kfuzz.numerics.elements import as_integers


def with_shorter(evidence: Evidence, calls: CaseCalls) -> Evidence:
    """Return the evidence with a shorter call after the first data and the second.

    Where the two differ, and one of them misses, the first is made once more in the
    same order: bits that differ by chance are no matter of what came before. Unchanged
    where the kernel promises no bits, where the second data do not conform, and where
    no shorter case is in the domain.
    """
    claims, whole, derived = evidence.declaration, evidence.acceptance, calls.plain
    promised = claims.promises_bits and conforms(evidence, Probe.SECOND)
    if whole is None or not promised:
        return evidence
    part = shortened(evidence.operator, claims, derived)
    wanted = None if part is None else calls.accepted(part)
    if part is None or wanted is None:
        return evidence
    turned = second_data(evidence.operator, derived.case, derived.values)
    second = replace(derived, values=turned)

    def after(evidence: Evidence, before: Derived, probe: Probe) -> Evidence:
        # What is admitted of the second data has the same form.
        calls.on(before, whole)
        run = calls.on(part, wanted)
        return evidence.running({probe: run}, {probe: wanted})

    evidence = evidence.knowing(Shorter(_difference(part.case, derived.case)))
    evidence = after(evidence, derived, Probe.SHORTER)
    if not comparable(evidence, Probe.SHORTER):
        return evidence  # to be judged where such a case is drawn
    evidence = after(evidence, second, Probe.SHORTER_AGAIN)
    missed = not all(
        conforms(evidence, p) for p in (Probe.SHORTER, Probe.SHORTER_AGAIN)
    )
    if missed and not agree(evidence, Probe.SHORTER, Probe.SHORTER_AGAIN):
        evidence = after(evidence, derived, Probe.SHORTER_REPEAT)
    return evidence


def shortened(
    operator: Operator, claims: Declaration, derived: Derived
) -> Derived | None:
    """Return the case with one dimension shorter, the others as they were.

    By one where that is in the domain, else by the least power of two that is. It is
    the reduced dimension, else the last one that can be cut; None where none can.
    """
    case = derived.case
    for axis in _axes(operator, case):
        less, n = 1, case.dims[axis]
        while less < n:
            sizes = operator.settled({**case.dims, axis: n - less}, case)
            if sizes[axis] == n - less:  # it does not follow from another one
                part = _cut(derived, sizes)
                if part is not None and operator.admits(part.case, claims):
                    fitted = operator.fitted(part.case, part.values)
                    return replace(part, values=fitted)
            less *= 2
    return None


def _difference(part: Case, whole: Case) -> str:
    """Return for example "x of [3, 19], not [3, 20]"."""
    pairs = ((n, s.shape, whole.tensors[n].shape) for n, s in part.tensors.items())
    return " and ".join(
        f"{name} of {list(shape)}, not {list(have)}"
        for name, shape, have in pairs
        if shape != have
    )


def _axes(operator: Operator, case: Case) -> Iterator[str]:
    """Yield the dimensions to cut, the most telling first; none that bounds indices."""
    at, axes = operator.reduced_axis(case), case.lead.axes
    names = [axes[at]] if at is not None and -len(axes) <= at < 0 else []
    if operator.dim is None and isinstance(operator.reduced, str):
        names = [operator.reduced]
    names += reversed(case.dims)
    bounds = {spec.below for spec in case.tensors.values()}
    yield from (n for n in dict.fromkeys(names) if n in case.dims and n not in bounds)


def _cut(derived: Derived, sizes: Mapping[str, int]) -> Derived | None:
    """Return the leading part of every tensor; None if one would have to grow."""
    tensors: dict[str, TensorSpec] = {}
    values: dict[str, Tensor] = {}
    for name, spec in derived.case.tensors.items():
        shape = tuple(sizes[axis] for axis in spec.axes)
        if any(n > have for n, have in zip(shape, spec.shape, strict=True)):
            return None
        # As integers: float8 has no operators.
        x = derived.values[name]
        part = as_integers(x)[tuple(slice(n) for n in shape)]
        values[name] = part.contiguous().view(x.dtype)
        tensors[name] = replace(
            spec,
            shape=shape,
            strides=None if spec.is_contiguous else spec.strides,
            # The values are given apart: a recipe has to name some.
            fill=spec.fill or Fill("zeros"),
            plants=(),
            values=None,
        )
    case = replace(derived.case, tensors=tensors, destinations={}, edge=None)
    return Derived(case, values)


STEP: Final = Step(
    (Probe.SHORTER, Probe.SHORTER_AGAIN, Probe.SHORTER_REPEAT),
    with_shorter,
    place=(2, 1),
)
