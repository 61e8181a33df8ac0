"""What a miss depends on: the probes that tell the contract classes apart."""

from collections.abc import Callable, Collection, Iterable, Iterator, MutableMapping
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor

from kfuzz.contracts.derive import (
    Derived,
    as_contiguous,
    friendly_shapes,
    holds,
    moderated,
    ordinary_cases,
    recentred,
    tiled,
    with_ordinary_values,
)
from kfuzz.contracts.evidence import Configurations, Diagnosis, Evidence
from kfuzz.contracts.oracle import expected_metadata
from kfuzz.contracts.reading import comparison, decided, miss_of
from kfuzz.contracts.relation import compare_all
from kfuzz.core.budget import SizeBudget
from kfuzz.core.case_surroundings import poison_of
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import Kind
from kfuzz.evaluation.arithmetic import Arithmetic, valued
from kfuzz.evaluation.calling import Caller, without_edge
from kfuzz.evaluation.other_declarations import flushes
from kfuzz.execution.interpreter.watch import interpreting
from kfuzz.execution.values.fills import logical_values
from kfuzz.numerics.formats import format_of, is_subnormal

# The plain functional test: torch.allclose, rtol = atol.
FUNCTIONAL_TOLERANCE: Final = 1e-2

# Triton's interpreter takes seconds for shapes of more elements, all tensors together.
MOST_INTERPRETED: Final = 1 << 13

MOST_CONFIGURATIONS: Final = 8
"""Configurations that are tried besides the one that missed."""


@dataclass(frozen=True)
class Diagnosing:
    """Runs derivations of a case that misses.

    Attributes:
        caller: calls the kernel.
        classes: ids of the contract classes in force.
        budget: limits on derived cases.
        known: at which shapes the kernel passes the functional test, kept from one
            case of a kernel to the next.
    """

    caller: Caller
    classes: Collection[str]
    budget: SizeBudget
    known: MutableMapping[object, bool]

    def of(self, evidence: Evidence, derived: Derived) -> Evidence:
        """Return the evidence of a case that misses with what its miss depends on."""
        operator = self.caller.kernel.operator
        friendly = self._friendliness(derived)
        ordinary = None
        if friendly == "gone":
            ordinary = all(
                map(self._functional, ordinary_cases(operator, derived.case))
            )
        plain = as_contiguous(derived)
        contiguous = None if plain is None else self.passes(plain)
        miss = miss_of(evidence)
        centred = moderate = None
        if miss is not None and miss.kind is Kind.VALUE:
            centred = self._passes_centred(derived)
        elif miss is not None:
            tame = moderated(operator, derived)
            moderate = None if tame is None else self._is_tame(tame)
        if "C-CMP-02" in self.classes:
            evidence = self._with_configs(evidence, derived)
        subnormal = self._subnormality(derived)
        found = Diagnosis(friendly, ordinary, contiguous, centred, subnormal, moderate)
        return evidence.knowing(found)

    def arithmetic(self, derived: Derived) -> Arithmetic:
        """Return what names the arithmetic that the miss of a case comes from."""
        return Arithmetic(self.caller, derived, self.budget)

    def passes(self, derived: Derived) -> bool | None:
        """Whether the kernel conforms on a derived case; None if undecided."""
        evidence, unsupported = self.caller.evidence(without_edge(derived))
        if unsupported or evidence.acceptance is None or not evidence.base.comparable:
            return None
        if miss_of(evidence) is not None:
            return False
        return True if decided(evidence) else None

    def _is_tame(self, derived: Derived) -> bool | None:
        """Whether NaN and infinities are where they belong; None if undecided.

        What is wrong there otherwise than by narrow arithmetic is wrong at any
        magnitude.
        """
        evidence, unsupported = self.caller.evidence(without_edge(derived))
        if unsupported or evidence.acceptance is None or not evidence.base.comparable:
            return None
        miss = miss_of(evidence)
        if miss is None:
            return decided(evidence) > 0
        return miss.kind is Kind.VALUE and any(self.arithmetic(derived).of(evidence))

    def _passes_centred(self, derived: Derived) -> bool | None:
        """Whether mean or magnitude alone make the kernel miss."""
        operator = self.caller.kernel.operator
        centred = recentred(operator, derived) if operator.recentres else None
        if centred is None or not self.passes(centred):
            return None if centred is None else False
        dtype = derived.case.data.dtype
        usual = with_ordinary_values(operator, derived.case, dtype, plain=False)
        return self.passes(valued(usual, derived)) is not False

    def _with_configs(self, evidence: Evidence, derived: Derived) -> Evidence:
        """Return the evidence with what the kernel's other configurations come to."""
        assert evidence.acceptance is not None
        expected = expected_metadata(evidence.acceptance)
        found: dict[str, bool] = {}
        for step in range(1, min(evidence.base.configs, MOST_CONFIGURATIONS + 1)):
            made = self.caller.run(
                derived, expected, poison_of(evidence.case), step=step
            )
            # A configuration that declines the case is passed over for the next.
            if made.config in (evidence.base.config, "") or made.unreliable:
                continue
            found[made.config] = made.comparable and not any(
                bool(m.missed.any())
                for m in compare_all(made.outputs, evidence.acceptance).values()
            )
        return evidence.knowing(Configurations(found))

    def _subnormality(self, derived: Derived) -> str | None:
        """Return what `Diagnosis.subnormal` is."""
        zeroed, normal = _without_subnormals(derived), _normalised(derived)
        if zeroed is None or normal is None:
            return None
        there = self.caller.apart()(without_edge(normal))
        missed = there is not None and miss_of(there) is not None
        # Results may be subnormal all the same, and flushed.
        if there is not None and missed and not flushes(there):
            return "persists"
        return "gone" if self.passes(zeroed) else None

    def _friendliness(self, derived: Derived) -> str | None:
        """Return "gone", "persists" (at one shape at least), or None."""
        operator, known = self.caller.kernel.operator, False
        for shape in self._friendly_shapes(derived.case):
            if not holds(operator, derived.case, shape):
                continue
            passes = self.passes(tiled(operator, derived, shape))
            if passes is False:
                return "persists"
            known = known or passes is True
        return "gone" if known else None

    def _friendly_shapes(self, case: Case) -> Iterator[Case]:
        """Yield the shapes at which the kernel passes the functional test."""
        dtype = case.data.dtype
        for shape in self._tried_shapes(case):
            sizes = tuple(s.shape for s in shape.tensors.values())
            scalars = tuple(sorted(shape.scalars.items()))
            key = (dtype, sizes, scalars, self.caller.config)
            if key not in self.known:
                self.known[key] = self._functional(shape)
            if self.known[key]:
                yield shape

    def _tried_shapes(self, case: Case) -> Iterable[Case]:
        """Return friendly shapes that are worth their time.

        In Triton's interpreter none is larger than the case, or than a little, but the
        smallest in which the case's values have room.
        """
        kernel = self.caller.kernel
        shapes = friendly_shapes(kernel.operator, case, kernel.declaration, self.budget)
        if not interpreting():
            return shapes
        ordered = sorted(shapes, key=lambda shape: shape.elements)
        most = max(MOST_INTERPRETED, case.elements)
        small = [shape for shape in ordered if shape.elements <= most]
        wide = [s for s in ordered if holds(kernel.operator, case, s)]
        return small if not wide or wide[0] in small else [*small, wide[0]]

    def _functional(self, case: Case) -> bool:
        """Whether the kernel passes allclose on normal data of this shape."""
        device = self.caller.memory.device
        values = {name: logical_values(case, name, device) for name in case.tensors}
        # A fault would be attributed to the case that is diagnosed: no edges.
        evidence, unsupported = self.caller.evidence(
            without_edge(Derived(case, values))
        )
        if unsupported or not evidence.base.comparable or evidence.acceptance is None:
            return False
        for name, wanted in evidence.acceptance.items():
            made = comparison(evidence, name)
            if made is not None and made.unrelated is not None:
                if bool(made.missed.any()):  # no one answer to be close to
                    return False
                continue
            y = evidence.base.outputs[name].to(torch.float64)
            near = 0.0 if wanted.output.integral else FUNCTIONAL_TOLERANCE
            limit = near * (1 + wanted.reference[0].abs())
            close = (y - wanted.reference[0]).abs() <= limit
            # Normal data may lie outside a domain: negative variances.
            if not bool((close | (y.isnan() & wanted.reference[0].isnan())).all()):
                return False
        return True


def _without_subnormals(given: Derived) -> Derived | None:
    """Return the case with zeros for subnormal arguments; None if there are none."""
    return _replaced(given, lambda size, least: torch.zeros_like(size))


def _normalised(given: Derived) -> Derived | None:
    """Return the case with normal numbers for subnormal arguments.

    Magnitudes grow by the least normal number; the format holds the sums. None if
    there are none.
    """
    return _replaced(given, lambda size, least: size + least)


def _replaced(
    given: Derived, magnitude: Callable[[Tensor, float], Tensor]
) -> Derived | None:
    made, found = dict(given.values), False
    for name, values in given.values.items():
        if not values.is_floating_point():
            continue
        fmt, x = format_of(values.dtype), values.to(torch.float64)
        small = is_subnormal(x, fmt)
        if bool(small.any()):
            found = True
            other = torch.copysign(magnitude(x.abs(), fmt.min_normal), x)
            made[name] = torch.where(small, other, x).to(values.dtype)
    return replace(given, values=made) if found else None
