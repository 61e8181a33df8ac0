"""What the judge sees of one case: evidence beside acceptance, nothing else."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np
import torch
from torch import Tensor

from kfuzz.contracts.changed import Changed
from kfuzz.contracts.core_domain import beyond_core
from kfuzz.contracts.derive import is_friendly
from kfuzz.contracts.evidence import Batch, Miss, same_bits
from kfuzz.contracts.language import Probe
from kfuzz.contracts.narrower import (
    accumulates,
    narrower_declarations,
    other_algorithms,
)
from kfuzz.contracts.nonfinite import NonFinite
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.oracle import accept
from kfuzz.contracts.out_of_bounds import HostileIndex
from kfuzz.contracts.relation import compare_all, promise
from kfuzz.core.declaration import Declaration
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import Kind
from kfuzz.numerics.acceptance import Acceptance, Problem
from kfuzz.numerics.comparator.compare import KIND_OF, Comparison, Outcome
from kfuzz.numerics.formats import FORMATS, is_subnormal
from kfuzz.numerics.run import Collected, OpCheck, Run

PARTLY: Final = (Probe.MIDDLE, Probe.ELEMENT, Probe.LAST_ARGUMENT)
"""Calls on data of which only a part has changed."""

OTHER_DATA: Final = frozenset(
    {
        *PARTLY,
        Probe.SECOND,
        Probe.SECOND_ALONE,
        Probe.THIRD,
        Probe.CHANGED_HALVED,
        Probe.SHORTER,
        Probe.SHORTER_AGAIN,
        Probe.SHORTER_REPEAT,
        Probe.ALONE,
        Probe.OVERLAPPED,
        Probe.REPLAYED,
    }
)
"""Probes that run on other data than the case's."""


UNPROMISED: Final = frozenset({"raise", "undefined"})
"""Policies for indices out of bounds under which no result is promised."""


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
        lacking: the optional tensors that the kernel takes and the case is without.
        friendly: "gone" if the failure vanishes at every friendly shape,
            "persists" if not, None if not probed or no shape is friendly.
        ordinary: whether the kernel passes the functional test at the case's own
            shapes and layouts; None if not probed.
        contiguous: whether the kernel passes on the same values and shapes,
            contiguous; None if not probed or the case is contiguous.
        recentred: whether the kernel passes on the recentred values; None if
            not probed.
        configs: whether the case conforms under each other configuration, by its
            words; empty if not probed.
        batches: the whole case twice, then some of its rows; empty if not probed.
        subnormal: "gone" if a miss vanishes without subnormal arguments and with
            normal numbers in their places, "persists" if normal numbers show it
            too, None if neither is known or no argument is subnormal.
        scaled: what scaled arguments gave.
        permuted: what other orders of the reduced dimension gave.
        shorter: how the shorter calls differ from the case, in words; "" if there are
            none.
        others: acceptance of the probes that run on other data than the case's.
        hostile: the first index that is out of bounds, None if there is none.
        nonfinite: the first NaN or infinity of the data where these are masked or
            refused, None if there is none.
        collected: what the kernel left beside a collective; None if not probed.
        opcheck: what torch's opcheck says of a user's operator; None if not probed.
    """

    case: Case
    operator: Operator
    declaration: Declaration
    problem: Problem | None
    acceptance: Mapping[str, Acceptance] | None
    runs: Mapping[Probe, Run]
    explicit: frozenset[str] = frozenset()
    lacking: tuple[str, ...] = ()
    friendly: str | None = None
    ordinary: bool | None = None
    contiguous: bool | None = None
    recentred: bool | None = None
    subnormal: str | None = None
    scaled: tuple[Changed, ...] = ()
    permuted: tuple[Changed, ...] = ()
    configs: Mapping[str, bool] = field(default_factory=dict)
    batches: tuple[Batch, ...] = ()
    shorter: str = ""
    others: Mapping[Probe, Mapping[str, Acceptance]] = field(default_factory=dict)
    hostile: HostileIndex | None = None
    nonfinite: NonFinite | None = None
    collected: Collected | None = None
    opcheck: OpCheck | None = None
    _memo: dict[Probe, dict[str, Comparison]] = field(
        default_factory=dict, repr=False, init=False
    )

    @property
    def outside(self) -> bool:
        """Whether no value is promised for an index or a number that the case holds."""
        return self.astray or self.refusable

    @property
    def refusable(self) -> bool:
        """Whether the data hold what the kernel declares to refuse."""
        return self.nonfinite is not None and self.declaration.nonfinite == "raise"

    @property
    def astray(self) -> bool:
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
        if probe not in self._memo:
            run, accepted = self.runs.get(probe), self.accepted(probe)
            made: dict[str, Comparison] = {}
            if run is not None and run.comparable and accepted is not None:
                made = compare_all(run.outputs, accepted)
            self._memo[probe] = made
        return self._memo[probe].get(output)

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
    def ratios(self) -> dict[str, float]:
        """Largest |error| / tolerance of the base run, by output."""
        found = {}
        for name in self.operator.outputs:
            made = self.comparison(name)
            if made is not None and made.ratio.numel():
                found[name] = float(made.ratio.max())
        return found

    @property
    def ratio(self) -> float:
        """Largest |error| / tolerance of the base run."""
        return max(self.ratios.values(), default=0.0)

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

    def spacings_off(self, miss: Miss) -> float:
        """Return how far a result lies from what is admitted.

        In distances between neighbours of its format at the greater magnitude of both,
        infinite where no finite number is held against another.
        """
        if miss.kind is not Kind.VALUE or miss.low is None or miss.high is None:
            return math.inf
        dtype = str(self.base.outputs[miss.output].dtype).removeprefix("torch.")
        far = max(miss.low - miss.got, miss.got - miss.high)
        greatest = max(abs(miss.got), abs(miss.low), abs(miss.high))
        spacing = greatest * 2.0 ** (1 - FORMATS[dtype].precision)
        return far / spacing if spacing else math.inf

    def _worst(self, name: str, made: Comparison, probe: Probe) -> Miss:
        outcomes = made.outcomes.flatten()
        severest = int(outcomes.max())
        # Among equals the largest ratio, then the largest error, then the first.
        score = torch.where(made.tolerance > 0, made.ratio, made.error).flatten()
        score = torch.where(outcomes == severest, score, torch.full_like(score, -1.0))
        at = int(score.argmax())
        index = np.unravel_index(at, tuple(made.outcomes.shape))
        place = tuple(int(i) for i in index[1:])
        kind, count = KIND_OF[Outcome(severest)], int(made.missed.sum())
        miss = self.miss_at(name, place, kind, count, probe)
        return replace(miss, ratio=miss.excess)

    def miss_at(
        self,
        output: str,
        index: tuple[int, ...],
        kind: Kind,
        elements: int,
        probe: Probe = Probe.BASE,
    ) -> Miss:
        """Return one element of a probe as a miss, without its ratio."""
        made, accepted = self.comparison(output, probe), self.accepted(probe)
        assert made is not None
        assert accepted is not None
        at = (0, *index)
        miss = Miss(
            output=output,
            kind=kind,
            index=index,
            got=float(self.runs[probe].outputs[output][index]),
            expected=float(accepted[output].reference[at]),
            low=float(made.low[at]),
            high=float(made.high[at]),
            ratio=None,
            elements=elements,
            of=made.outcomes.numel(),
        )
        if made.unrelated is None or not bool(made.unrelated[at]):
            return miss
        text = promise(self.operator)
        return replace(miss, expected=None, low=None, high=None, promise=text)

    def differing(self, one: Probe, other: Probe) -> dict[str, Tensor]:
        """Return, per output, where two comparable probes left other bits."""
        left, right = self.runs[one].outputs, self.runs[other].outputs
        return {n: ~same_bits(left[n], right[n]) for n in self.operator.outputs}

    @cached_property
    def inputs_finite(self) -> bool:
        """Whether no input element is NaN or infinite."""
        assert self.problem is not None
        if self.nonfinite is not None:  # the problem holds zeros instead
            return False
        tensors = self.problem.tensors.values()
        return all(bool(torch.isfinite(t).all()) for t in tensors)

    @cached_property
    def undeclared_algorithm(self) -> str | None:
        """The algorithm that a kernel may declare and whose acceptance holds all."""
        if self.problem is None:
            return None
        for text, claims in other_algorithms(self.operator, self.problem):
            other = replace(self.problem, declaration=claims)
            if self._explains(accept(self.operator, other)):
                return text
        return None

    @cached_property
    def narrower(self) -> str | None:
        """The narrower arithmetic whose acceptance holds every miss, or None."""
        if self.problem is None:
            return None
        sums = accumulates(self.operator, self.case)
        for text, claims in narrower_declarations(self.problem, sums=sums):
            narrowed = replace(self.problem, declaration=claims, attribution=True)
            if self._explains(accept(self.operator, narrowed)):
                return text
        return None

    @cached_property
    def flushes(self) -> bool:
        """Whether a kernel that flushes subnormal numbers may give what misses."""
        if self.problem is None or self.declaration.subnormals != "preserve":
            return False
        claims = replace(self.declaration, subnormals="any")
        flushing = replace(self.problem, declaration=claims)
        return self._explains(accept(self.operator, flushing))

    @cached_property
    def keeps_subnormals(self) -> bool:
        """Whether all that misses are subnormal results where flush is declared."""
        if self.declaration.subnormals != "flush" or self.acceptance is None:
            return False
        kept = False
        for name, accepted in self.acceptance.items():
            made = self.comparison(name)
            if made is None:
                return False
            y = self.base.outputs[name].to(torch.float64)
            small = is_subnormal(y, accepted.output)
            if bool((made.missed[0] & ~small).any()):
                return False
            kept = kept or bool(made.missed.any())
        return kept

    @cached_property
    def subnormals_matter(self) -> bool:
        """Whether an argument or an expected result is a subnormal number."""
        if self.problem is None or self.acceptance is None:
            return False
        formats = {n: FORMATS.get(s.dtype) for n, s in self.case.tensors.items()}
        met = [(x, formats[n]) for n, x in self.problem.tensors.items()]
        met += [(a.reference, a.output) for a in self.acceptance.values()]
        return any(
            bool(is_subnormal(x, f).any()) for x, f in met if f and not f.integral
        )

    def _explains(self, accepted: Mapping[str, Acceptance]) -> bool:
        """Whether an acceptance holds all that the case's own one does not."""
        if not self.base.comparable or self.acceptance is None:
            return False
        for name, wide in compare_all(self.base.outputs, accepted).items():
            made = self.comparison(name)
            if made is None or bool((wide.missed & made.missed).any()):
                return False
        return True

    @cached_property
    def breaks_chain(self) -> bool:
        """Whether the worst miss lies outside the unfused chain's acceptance too.

        In the chain each intermediate result is stored in the output's format.
        """
        if self.problem is None or self.miss is None:
            return False
        claims = replace(self.declaration, intermediates="output")
        chain = accept(self.operator, replace(self.problem, declaration=claims))
        made = compare_all(self.base.outputs, chain)[self.miss.output]
        return bool(made.missed[(0, *self.miss.index)])

    @property
    def shape_bound(self) -> bool:
        """Whether the shape or layout is at fault, not the arithmetic.

        The failure vanishes at friendly shapes, and at the case's own shape
        ordinary data fails too.
        """
        return self.friendly == "gone" and not self.ordinary

    @property
    def friendly_shape(self) -> bool:
        """Whether the case has a friendly shape, contiguous."""
        return is_friendly(self.case)

    @property
    def core(self) -> bool:
        """Whether raising is a violation here.

        It is in the core domain and in what is declared explicitly.
        """
        return not self.beyond_core

    @cached_property
    def beyond_core(self) -> tuple[str, ...]:
        """The aspects of the case that lie in the default breadth only."""
        return beyond_core(
            self.case, self.operator, self.explicit,
            finite=self.finite_recipe, lacking=self.lacking,
        )  # fmt: skip

    @cached_property
    def finite_recipe(self) -> bool:
        """Whether the inputs are finite; True where the oracle has none."""
        return self.problem is None or self.inputs_finite
