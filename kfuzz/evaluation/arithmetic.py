"""Which other arithmetic a kernel really has, where a miss might be that.

The bound of a narrower format is a worst case: most wrong formulas lie inside it. So it
names a cause only if the kernel is inside it on ordinary data too, is wrong there as
well, and shows the narrow format besides: in float32 by results that do not follow what
the format cannot hold, in 16 bits by a wider
dtype that is right, or, where none is declared, by few units that it is off.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

import torch
from torch import Tensor

from kfuzz.contracts.derive import Derived, friendly_shapes, with_ordinary_values
from kfuzz.contracts.evidence import Evidence
from kfuzz.contracts.language import Probe
from kfuzz.contracts.narrower import (
    accumulates,
    narrower_declarations,
    other_algorithms,
)
from kfuzz.contracts.oracle import accept
from kfuzz.contracts.reading import comparisons, decided, miss_of
from kfuzz.contracts.relation import compare_all
from kfuzz.core.budget import SizeBudget
from kfuzz.core.declaration import Declaration
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import Kind
from kfuzz.evaluation.calling import Caller, without_edge
from kfuzz.execution.values.fills import logical_values
from kfuzz.numerics.formats import FORMATS

# Ordinary cases hold so many elements of a result at least, where the shapes allow it:
# one rounding may be exact by luck.
_TELLING: Final = 64
_SHAPES: Final = 2
# A bound says something where it is this part of the greatest expected magnitude.
_TIGHT: Final = 1 / 4
# Units in the last place by which float32 numbers are moved: far below the 11 bits of
# TF32 and float16, far above the rounding of float32.
_MOVED: Final = (16, 64)
# What the few roundings of ordinary data come to in a 16-bit result, in its units.
_FEW_UNITS: Final = 16.0
# Dtypes in which a kernel is tried that is wrong in a narrower one, best first.
_WIDER: Final = ("float32", "float16")
# Scales of ordinary data: constants such as eps show beside small numbers.
_SCALES: Final = (1.0, 2.0**-8)


@dataclass(frozen=True)
class _Run:
    """A case of ordinary numbers, and what the kernel gave of it."""

    given: Derived
    evidence: Evidence

    @property
    def missed(self) -> bool:
        """Whether a result misses."""
        return miss_of(self.evidence) is not None


@dataclass(frozen=True)
class Arithmetic:
    """Names the other arithmetic that a miss comes from.

    Attributes:
        caller: calls the kernel.
        derived: the case that misses.
        budget: limits on derived cases.
    """

    caller: Caller
    derived: Derived
    budget: SizeBudget

    def of(self, evidence: Evidence) -> tuple[str, str]:
        """Return the algorithm and the narrower format; "" for what is not shown.

        Raises:
            BindingError: if the operator's oracle or error model is malformed.
        """
        chosen = list(self._candidates(evidence))
        if not chosen:
            return "", ""
        panel = [*self._panel(self.derived.case.data.dtype)]
        for text, claims, narrow in chosen:
            every = [evidence, *(run.evidence for run in panel)]
            if not _is_explained_by(claims, narrow, every):
                continue
            if not narrow:
                return text, ""
            if self._is_narrow(evidence, panel):
                return "", _named(text, evidence, panel)
        return "", ""

    def _candidates(
        self, evidence: Evidence
    ) -> Iterator[tuple[str, Declaration, bool]]:
        """Yield what accepts the case's own miss: in words, whether a format."""
        problem, miss = evidence.problem, miss_of(evidence)
        if problem is None or miss is None or miss.kind is not Kind.VALUE:
            return
        sums = accumulates(evidence.operator, evidence.case)
        every = [
            *((*made, False) for made in other_algorithms(evidence.operator, problem)),
            *((*made, True) for made in narrower_declarations(problem, sums=sums)),
        ]
        for text, claims, narrow in every:
            if _holds(evidence, claims, narrow) is not None:
                yield text, claims, narrow

    def _panel(self, dtype: str) -> Iterator[_Run]:
        """Yield what the kernel gives of ordinary numbers, in one dtype.

        At the case's shape with its own indices and masks, and at short friendly ones.
        In another dtype than the case's its own numbers come first.
        """
        kernel, own = self.caller.kernel, self.derived
        if dtype != own.case.data.dtype:
            yield from self._ran(_cast(own, dtype))
        for plain in (False, True):
            case = with_ordinary_values(kernel.operator, own.case, dtype, plain=plain)
            yield from self._ran(self._valued(case))
        shapes = friendly_shapes(
            kernel.operator, own.case, kernel.declaration, self.budget
        )
        telling = (s for s in shapes if s.lead.numel >= _TELLING)
        for shape in islice(telling, _SHAPES):
            case = with_ordinary_values(kernel.operator, shape, dtype, plain=False)
            for scale in _SCALES:
                yield from self._ran(self._scaled(self._valued(case), scale))

    def _valued(self, case: Case) -> Derived:
        made = valued(case, self.derived)
        return self._within(made, made.values)

    def _scaled(self, given: Derived, scale: float) -> Derived:
        parameters = self.caller.kernel.operator.tensors
        values = {
            n: (x * scale).to(x.dtype)
            if x.is_floating_point() and parameters[n].role == "data"
            else x
            for n, x in given.values.items()
        }
        return self._within(given, values)

    def _within(self, given: Derived, values: Mapping[str, Tensor]) -> Derived:
        fitted = self.caller.kernel.operator.fitted(given.case, values)
        return replace(given, values=fitted)

    def _ran(self, derived: Derived) -> Iterator[_Run]:
        kernel = self.caller.kernel
        if not kernel.operator.admits(derived.case, kernel.declaration):
            return
        evidence, unsupported = self.caller.evidence(without_edge(derived))
        if not unsupported and evidence.base.comparable and evidence.acceptance:
            yield _Run(derived, evidence)

    def _is_narrow(self, evidence: Evidence, panel: Sequence[_Run]) -> bool:
        """Whether a kernel shows that it keeps fewer bits than it declares."""
        dtype = evidence.case.data.dtype
        if dtype == "float32":
            return self._is_insensitive(panel)
        declared = self.caller.kernel.declaration.dtypes
        bits = FORMATS[dtype].precision
        wider = [d for d in _WIDER if d in declared and FORMATS[d].precision > bits]
        if not wider:
            off = [o for run in panel if run.missed for o in _units_off(run.evidence)]
            return bool(off) and max(off) <= _FEW_UNITS
        wide = [*self._panel(wider[0])]
        if not any(run.missed for run in wide):  # the formula is right
            return any(decided(run.evidence) for run in wide)
        return wider[0] == "float32" and self._is_insensitive(wide)

    def _is_insensitive(self, panel: Sequence[_Run]) -> bool:
        """Whether most results that miss stay as bits that float32 has are changed."""
        missed = same = 0
        for run in panel:
            if not run.missed:
                continue
            values = run.given.values.items()
            moved = {n: _moved(x, i) for i, (n, x) in enumerate(values)}
            for other in self._ran(replace(run.given, values=moved)):
                results = other.evidence.base.outputs
                for name, made in comparisons(run.evidence, Probe.BASE).items():
                    there = made.missed[0]
                    kept = run.evidence.base.outputs[name] == results[name]
                    missed += int(there.sum())
                    same += int((there & kept).sum())
        return 2 * same > missed


def _named(text: str, evidence: Evidence, panel: Sequence[_Run]) -> str:
    """Return the format in words; which of 16 bits is said only if it errs that much.

    Of float32 data no other intermediates than float32's can be asked for.
    """
    if "bfloat16" not in text or evidence.case.data.dtype != "float32":
        return text
    off = [o for run in panel for o in _units_off(run.evidence)]
    coarser = FORMATS["bfloat16"].unit / FORMATS["float32"].unit
    return text if max(off, default=0.0) > coarser / 4 else "16-bit arithmetic"


def _units_off(evidence: Evidence) -> Iterator[float]:
    """Yield how far results miss, in units of the greatest expected of each output."""
    for name, made in comparisons(evidence, Probe.BASE).items():
        if evidence.acceptance is None or not bool(made.missed.any()):
            continue
        a = evidence.acceptance[name]
        size = a.reference.abs()
        unit = float(size[size.isfinite()].max()) * a.output.unit
        off = float(made.error[made.missed].max())
        yield off / unit if unit else math.inf


def valued(case: Case, own: Derived) -> Derived:
    """Return a case with its values; what was not filled anew keeps those of `own`."""
    values = {
        name: own.values[name]
        if spec == own.case.tensors.get(name)
        else logical_values(case, name, own.values[name].device)
        for name, spec in case.tensors.items()
    }
    return Derived(case, values)


def _cast(given: Derived, dtype: str) -> Derived:
    """Return a case with the numbers of its data's dtype held in a wider one."""
    old, wide = given.case.data.dtype, getattr(torch, dtype)
    narrow = [n for n, s in given.case.tensors.items() if s.dtype == old]
    specs = {n: replace(given.case.tensors[n], dtype=dtype) for n in narrow}
    case = replace(given.case, tensors={**given.case.tensors, **specs})
    values = {n: given.values[n].to(wide) for n in narrow}
    return Derived(case, {**given.values, **values})


def _moved(x: Tensor, seed: int) -> Tensor:
    """Return float32 numbers moved away from 0 by some units in the last place."""
    if x.dtype is not torch.float32:
        return x
    random = torch.Generator().manual_seed(seed)
    by = torch.randint(*_MOVED, x.shape, generator=random, dtype=torch.int32)
    ordinary = x.isfinite() & (x != 0)
    bits = x.contiguous().view(torch.int32)
    return torch.where(ordinary, bits + by.to(x.device), bits).view(torch.float32)


def _is_explained_by(
    claims: Declaration, narrow: bool, every: Sequence[Evidence]
) -> bool:
    """Whether all results lie in another acceptance, which is tight where they miss."""
    tight = False
    for evidence in every:
        held = _holds(evidence, claims, narrow)
        if held is None:
            return False
        tight = tight or held
    return tight


def _holds(evidence: Evidence, claims: Declaration, narrow: bool) -> bool | None:
    """Whether another acceptance of all that a case misses is tight somewhere there.

    None where it does not hold all of it.
    """
    assert evidence.problem is not None
    other = replace(evidence.problem, declaration=claims, attribution=narrow)
    accepted = accept(evidence.operator, other)
    tight = False
    for name, made in compare_all(evidence.base.outputs, accepted).items():
        own = comparisons(evidence, Probe.BASE)[name].missed
        if bool((made.missed & own).any()):
            return None
        size = accepted[name].reference.abs()
        greatest = float(size[size.isfinite()].max()) if bool(own.any()) else 0.0
        near = made.high - made.low <= 2 * _TIGHT * greatest
        tight = tight or bool((own & near).any())
    return tight
