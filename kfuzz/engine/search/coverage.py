"""What of a kernel's declared input a search has exercised, and what it rejected."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Final

from kfuzz.contracts.binding import BoundKernel
from kfuzz.core.burst import Burst
from kfuzz.core.recipe import Case, TensorSpec
from kfuzz.core.verdict import CaseReport
from kfuzz.engine.search.strata import families_of, stratum_of
from kfuzz.strategies.layouts import build, layout_name, layout_options
from kfuzz.strategies.value_choice import allowed_families, data_options, kept_to

DUE: Final = 20.0
"""How often something should have come, by the odds of drawing, before its absence is
told: chance alone leaves it out once in 5e8 kernels."""

LEAST: Final = 50
"""Draws or cases after which the share of those rejected says something."""

# Odds are estimates: half of what they come to is held to be sure.
_SURE: Final = 0.5
# Of so many cases the layouts that their shapes admit are worked out.
_WORKED_OUT: Final = 512


@dataclass
class Coverage:
    """Counts what one kernel's search exercised.

    A case counts if the kernel answered it, be it by a refusal.

    Attributes:
        begun: draws of cases in rounds that explore.
        drawn: of these those that gave a case.
        cases: cases judged by themselves.
        refused: of these those that the kernel refused.
        unjudged: of these those that could not be judged here.
        baselines: by kind, on how many cases it was tried and on how many refused.
    """

    begun: int = 0
    drawn: int = 0
    cases: int = 0
    refused: int = 0
    unjudged: int = 0
    baselines: dict[str, tuple[int, int]] = field(default_factory=dict)
    _dtypes: Counter[str] = field(default_factory=Counter)
    _layouts: Counter[str] = field(default_factory=Counter)
    _families: Counter[str] = field(default_factory=Counter)
    _first: list[TensorSpec] = field(default_factory=list)

    def take(self, kernel: BoundKernel, case: Case, report: CaseReport) -> None:
        """Count one case and what it showed."""
        self.cases += 1
        if len(self._first) < _WORKED_OUT:
            self._first.append(case.data)
        for kind, refused in report.baselines.items():
            tried, times = self.baselines.get(kind, (0, 0))
            self.baselines[kind] = tried + 1, times + refused
        self.refused += report.refusal is not None
        if report.error is not None or report.unsupported is not None:
            self.unjudged += 1
        else:
            self._exercise(kernel, case, stratum_of(case).family)

    def take_batch(self, kernel: BoundKernel, batch: Burst) -> None:
        """Count what the members of a burst exercised that passed."""
        for family in families_of(batch):
            self._exercise(kernel, batch.case, family)

    def missing(self, kernel: BoundKernel) -> dict[str, list[str]]:
        """Return what should have come `DUE` times by now and never did, by trait."""
        due = {
            "dtype": (self._due_dtypes(kernel), self._dtypes),
            "layout": (self._due_layouts(kernel), self._layouts),
            "family": (self._due_families(kernel), self._families),
        }
        found = {
            trait: [
                name
                for name, expected in odds.items()
                if _SURE * expected >= DUE and not met[name]
            ]
            for trait, (odds, met) in due.items()
        }
        return {trait: names for trait, names in found.items() if names}

    def _exercise(self, kernel: BoundKernel, case: Case, family: str) -> None:
        self._dtypes[kernel.operator.dtype_of(case)] += 1
        self._layouts[layout_name(case.data)] += 1
        self._families[family] += 1

    def _due_dtypes(self, kernel: BoundKernel) -> dict[str, float]:
        """Return how often each declared dtype should have come."""
        passed = kernel.arguments.tensors
        tensors = kernel.operator.tensors
        free = (tensors[n] for n in passed if n in tensors)
        if not any(p.kind == "float" and not p.dtype for p in free):
            return {}  # no argument has a declared one
        declared = kernel.declaration.dtypes
        return dict.fromkeys(declared, self.cases / len(declared))

    def _due_layouts(self, kernel: BoundKernel) -> dict[str, float]:
        """Return how often each layout should have come in the first cases."""
        claims, expected = kernel.declaration, defaultdict[str, float](float)
        name = self._data_name(kernel)
        parameter = kernel.operator.tensors.get(name)
        apart = name in claims.inplace or (
            parameter is not None and not parameter.repeats
        )
        for spec in self._first:
            seed = spec.fill.seed if spec.fill else 0
            options = layout_options(spec.shape, claims, inplace=apart)
            for kind, times in Counter(options).items():
                strides, offset = build(kind, spec.shape, seed, spec.dtype, claims)
                made = TensorSpec(
                    spec.shape, spec.axes, spec.dtype, strides, offset, fill=spec.fill
                )
                expected[layout_name(made)] += times / len(options)
        return expected

    def _due_families(self, kernel: BoundKernel) -> dict[str, float]:
        """Return how often each family should have come in the first argument."""
        name = self._data_name(kernel)
        parameter = kernel.operator.tensors.get(name)
        if parameter is None or parameter.role != "data":
            return {}  # weights and masks are mostly tame
        allowed = kept_to(parameter.domain, allowed_families(kernel.declaration))
        options = data_options(allowed, None, False, kernel.operator.subtracts_mean)
        times = Counter(options)
        return {f: self.cases * n / len(options) for f, n in times.items()}

    @staticmethod
    def _data_name(kernel: BoundKernel) -> str:
        """Return the argument whose layout and family count, "" if there is none."""
        tensors = kernel.operator.tensors
        passed = (n for n in kernel.arguments.tensors if n in tensors)
        return next((n for n in passed if tensors[n].kind == "float"), "")
