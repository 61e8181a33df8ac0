"""What the judge sees of one case: evidence beside acceptance, nothing else."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np
import torch
from torch import Tensor

from kfuzz.contracts.hostile import HostileIndex
from kfuzz.contracts.language import Operator, Probe
from kfuzz.contracts.oracle import accept
from kfuzz.core.declaration import Declaration
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import Kind
from kfuzz.execution.probes import Run
from kfuzz.numerics.acceptance import Acceptance, Problem
from kfuzz.numerics.accumulation import Accumulation
from kfuzz.numerics.compare import KIND_OF, Comparison, Outcome, compare
from kfuzz.numerics.formats import FORMATS

OTHER_DATA: Final = frozenset({Probe.SECOND, Probe.SECOND_ALONE, Probe.THIRD})
"""Probes that run on other data than the case's."""


UNPROMISED: Final = frozenset({"raise", "undefined"})
"""Policies for indices out of bounds under which no result is promised."""


@dataclass(frozen=True)
class Miss:
    """The worst element of one output that lies outside its acceptance.

    Attributes:
        output: name of the output.
        kind: how it misses.
        index: logical index.
        got: value stored by the kernel.
        expected: reference value.
        low: least admissible stored value.
        high: greatest admissible stored value.
        ratio: |error| / tolerance, None where the result must be exact.
        elements: number of missing elements of this output.
        of: number of elements of this output.
    """

    output: str
    kind: Kind
    index: tuple[int, ...]
    got: float
    expected: float
    low: float
    high: float
    ratio: float | None
    elements: int
    of: int

    def describe(self) -> str:
        """Return one line: where, what was got, what was admissible."""
        place = f"{self.output}[{', '.join(map(str, self.index))}]"
        if self.kind is Kind.VALUE:
            wanted = f"admissible {self.low:.9g} to {self.high:.9g}"
            if self.low == self.high:
                wanted = f"exactly {self.low:.9g}"
            far = f", {self.ratio:.3g} x tolerance" if self.ratio else ""
            text = f"{place} = {self.got:.9g}, {wanted}{far}"
        else:
            text = f"{place} = {self.got:.9g}, expected {self.expected:.9g}"
        if self.elements > 1:
            text += f" ({self.elements} of {self.of} elements)"
        return text


@dataclass(frozen=True)
class View:
    """One case as judged.

    Attributes:
        case: the recipe.
        operator: what was to be computed.
        declaration: what the kernel claims.
        problem: the oracle's inputs; None where the oracle raised.
        acceptance: per output; None where the oracle raised, or an index is out
            of bounds and nothing is promised for it.
        runs: what each executed probe left.
        explicit: names of the claims that the author wrote down.
        friendly: "gone" if the failure vanishes at every friendly shape,
            "persists" if not, None if not probed or no shape is friendly.
        ordinary: whether the kernel passes the functional test at the case's own
            shapes and layouts; None if not probed.
        contiguous: whether the kernel passes on the same values and shapes,
            contiguous; None if not probed or the case is contiguous.
        recentred: whether the kernel passes on the recentred values; None if
            not probed.
        others: acceptance of the probes that run on other data than the case's.
        hostile: the first index that is out of bounds, None if there is none.
    """

    case: Case
    operator: Operator
    declaration: Declaration
    problem: Problem | None
    acceptance: Mapping[str, Acceptance] | None
    runs: Mapping[Probe, Run]
    explicit: frozenset[str] = frozenset()
    friendly: str | None = None
    ordinary: bool | None = None
    contiguous: bool | None = None
    recentred: bool | None = None
    others: Mapping[Probe, Mapping[str, Acceptance]] = field(default_factory=dict)
    hostile: HostileIndex | None = None
    _memo: dict[object, object] = field(default_factory=dict, repr=False, init=False)

    @property
    def outside(self) -> bool:
        """Whether an index is out of bounds and no value is promised for it."""
        policy = self.declaration.out_of_bounds
        return self.hostile is not None and policy in UNPROMISED

    @property
    def base(self) -> Run:
        """The base run."""
        return self.runs[Probe.BASE]

    def accepted(self, probe: Probe) -> Mapping[str, Acceptance] | None:
        """Return what is admitted for the data of a probe; None where undefined."""
        return self.others.get(probe) if probe in OTHER_DATA else self.acceptance

    def comparison(self, output: str, probe: Probe = Probe.BASE) -> Comparison | None:
        """Return the comparison of one output of one probe, None if impossible."""
        key = (output, probe)
        if key not in self._memo:
            run, accepted = self.runs.get(probe), self.accepted(probe)
            made: Comparison | None = None
            if run is not None and run.comparable and accepted is not None:
                y = run.outputs[output].unsqueeze(0)
                made = compare(y, accepted[output])
            self._memo[key] = made
        found = self._memo[key]
        assert found is None or isinstance(found, Comparison)
        return found

    @cached_property
    def decided(self) -> int:
        """Output elements of the base run that could be judged."""
        return self._count(lambda o: o != Outcome.UNDECIDED)

    @cached_property
    def undecided(self) -> int:
        """Output elements of the base run that could not be judged."""
        return self._count(lambda o: o == Outcome.UNDECIDED)

    def _count(self, test: "object") -> int:
        total = 0
        for name in self.operator.outputs:
            made = self.comparison(name)
            if made is not None:
                assert callable(test)
                total += int(test(made.outcomes).sum())
        return total

    @cached_property
    def ratio(self) -> float:
        """Largest |error| / tolerance of the base run."""
        found = 0.0
        for name in self.operator.outputs:
            made = self.comparison(name)
            if made is not None and made.ratio.numel():
                found = max(found, float(made.ratio.max()))
        return found

    @cached_property
    def miss(self) -> Miss | None:
        """The worst miss of the base run over all outputs, None if none."""
        return self.miss_of(Probe.BASE)

    def miss_of(self, probe: Probe) -> Miss | None:
        """Return the worst miss of the first output that misses; None if none."""
        for name in self.operator.outputs:
            made = self.comparison(name, probe)
            if made is not None and bool(made.missed.any()):
                return self._worst(name, made, probe)
        return None

    def _worst(self, name: str, made: Comparison, probe: Probe) -> Miss:
        accepted = self.accepted(probe)
        assert accepted is not None
        outcomes = made.outcomes.flatten()
        severest = int(outcomes.max())
        # Among equals the largest ratio, then the largest error, then the first.
        score = torch.where(made.tolerance > 0, made.ratio, made.error).flatten()
        score = torch.where(outcomes == severest, score, torch.full_like(score, -1.0))
        at = int(score.argmax())
        got = float(self.runs[probe].outputs[name].flatten()[at])
        expected = float(accepted[name].reference.flatten()[at])
        low, high = float(made.low.flatten()[at]), float(made.high.flatten()[at])
        index = np.unravel_index(at, tuple(made.outcomes.shape))
        return Miss(
            output=name,
            kind=KIND_OF[Outcome(severest)],
            index=tuple(int(i) for i in index[1:]),
            got=got,
            expected=expected,
            low=low,
            high=high,
            ratio=_excess(got, expected, low, high),
            elements=int(made.missed.sum()),
            of=made.outcomes.numel(),
        )

    def miss_at(
        self, output: str, index: tuple[int, ...], kind: Kind, elements: int
    ) -> Miss:
        """Return one element of the base run as a miss."""
        made = self.comparison(output)
        assert made is not None
        assert self.acceptance is not None
        at = (0, *index)
        return Miss(
            output=output,
            kind=kind,
            index=index,
            got=float(self.base.outputs[output][index]),
            expected=float(self.acceptance[output].reference[at]),
            low=float(made.low[at]),
            high=float(made.high[at]),
            ratio=None,
            elements=elements,
            of=made.outcomes.numel(),
        )

    def differing(self, one: Probe, other: Probe) -> dict[str, Tensor]:
        """Return, per output, where two comparable probes left other bits."""
        left, right = self.runs[one].outputs, self.runs[other].outputs
        return {n: ~same_bits(left[n], right[n]) for n in self.operator.outputs}

    @cached_property
    def inputs_finite(self) -> bool:
        """Whether no input element is NaN or infinite."""
        assert self.problem is not None
        tensors = self.problem.tensors.values()
        return all(bool(torch.isfinite(t).all()) for t in tensors)

    @cached_property
    def narrower(self) -> str | None:
        """The narrower arithmetic whose acceptance holds every miss, or None."""
        if self.problem is None:
            return None
        for text, claims in narrower_declarations(self.problem):
            narrowed = replace(self.problem, declaration=claims, attribution=True)
            accepted = accept(self.operator, narrowed)
            if all(self._explains(name, accepted[name]) for name in accepted):
                return text
        return None

    def _explains(self, output: str, acceptance: Acceptance) -> bool:
        made = self.comparison(output)
        if made is None:
            return False
        y = self.base.outputs[output].unsqueeze(0)
        return not bool((compare(y, acceptance).missed & made.missed).any())

    @property
    def shape_bound(self) -> bool:
        """Whether the shape or layout is at fault, not the arithmetic.

        The failure vanishes at friendly shapes, and at the case's own shape
        ordinary data fails too.
        """
        return self.friendly == "gone" and not self.ordinary

    @property
    def friendly_shape(self) -> bool:
        """Whether all sizes are powers of two from 16 up, contiguous."""
        return all(
            s.is_contiguous and all(n >= 16 and n & (n - 1) == 0 for n in s.shape)
            for s in self.case.tensors.values()
        )

    @property
    def core(self) -> bool:
        """Whether raising is a violation here.

        It is in the core domain and in what is declared explicitly.
        """
        return not self.beyond_core

    @cached_property
    def beyond_core(self) -> tuple[str, ...]:
        """The aspects of the case that lie in the default breadth only."""
        aspects = []
        specs = self.case.tensors.values()
        data = [s for s in specs if s.numel or s.shape]
        if any(0 in s.shape for s in specs) and "shape_class" not in self.explicit:
            aspects.append("zero-size input")
        if "layouts" not in self.explicit:
            if any(not s.is_contiguous for s in data):
                aspects.append("non-contiguous input")
            if any(s.offset for s in specs):
                aspects.append("storage offset")
        dtype = self.case.data.dtype
        if "dtypes" not in self.explicit and dtype != "float32":
            aspects.append(f"dtype {dtype}")
        aspects += self._unusual_ranks()
        if self.operator.dim is not None and "dims" not in self.explicit:
            axis = self.operator.reduced_axis(self.case)
            if axis != -1:
                aspects.append("dim other than the last")
        if not self.finite_recipe and "nonfinite" not in self.explicit:
            aspects.append("non-finite input")
        return tuple(aspects)

    def _unusual_ranks(self) -> list[str]:
        """Return the ranks other than 2, of indices other than 1, that vary."""
        found = []
        for name, spec in self.case.tensors.items():
            parameter, rank = self.operator.tensors[name], len(spec.shape)
            if parameter.variadic and rank != (1 if spec.below else 2):
                found.append(f"rank {rank}" + (f" of {name}" if spec.below else ""))
        return found[:1]

    @cached_property
    def finite_recipe(self) -> bool:
        """Whether the inputs are finite; True where the oracle has none."""
        return self.problem is None or self.inputs_finite


def _excess(got: float, expected: float, low: float, high: float) -> float | None:
    """Return |error| over the distance from the reference to the admissible end.

    Above 1 for every numerical miss; None where the result must be exact.
    """
    room = high - expected if got > expected else expected - low
    if not (math.isfinite(got) and math.isfinite(room) and room > 0):
        return None
    return abs(got - expected) / room


def same_bits(a: Tensor, b: Tensor) -> Tensor:
    """Return where two tensors of one dtype hold the same bits (NaN = NaN)."""
    ints = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    kind = ints[a.element_size()]
    x, y = a.contiguous(), b.contiguous()
    equal = x.view(kind) == y.view(kind)
    return equal | (torch.isnan(x) & torch.isnan(y))


def narrower_declarations(problem: Problem) -> list[tuple[str, Declaration]]:
    """Return the arithmetics next narrower than the declared one, widest first.

    Each comes with its description. For 16-bit data the candidates are an
    accumulator, intermediates, or both in the data's own format; for float32
    data TF32 operands, then the 16-bit formats.
    """
    claims = problem.declaration
    held = Accumulation.declared(claims).held_bits(problem.format)
    data = problem.format.name
    candidates = ("tf32", "float16", "bfloat16")
    names = [n for n in candidates if data in ("float32", n)]
    out: list[tuple[str, Declaration]] = []
    rounds = claims.intermediates == "float32" and problem.output.precision < 24
    for name in names:
        if FORMATS[name].precision < held:
            narrow = replace(claims, accumulator=name)
            out.append((f"a {name} accumulator", narrow))
            if rounds:
                both = replace(narrow, intermediates="output")
                out.append((f"a {name} accumulator and intermediates", both))
    if rounds:
        coarse = replace(claims, intermediates="output")
        out.insert(0, (f"{problem.output.name} intermediates", coarse))
    return out
