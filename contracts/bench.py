"""The bench: executes one kernel's probes on a case and has them judged.

It lives beside the kernel, in the child process; what it returns is small.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import torch
from torch import Tensor

from kfuzz.contracts.binding import BoundKernel
from kfuzz.contracts.derive import (
    Derived,
    as_contiguous,
    friendly_shapes,
    holds,
    ordinary_cases,
    recentred,
    tiled,
)
from kfuzz.contracts.judge import judge
from kfuzz.contracts.language import Probe
from kfuzz.contracts.oracle import accept, expected_metadata, pose
from kfuzz.contracts.view import View
from kfuzz.core.budget import SizeBudget
from kfuzz.core.errors import BindingError
from kfuzz.core.recipe import Case, TensorSpec
from kfuzz.core.verdict import CaseReport
from kfuzz.execution.fills import logical_values
from kfuzz.execution.memory import Arena
from kfuzz.execution.poison import Poison
from kfuzz.execution.probes import Expected, Run, execute
from kfuzz.numerics.acceptance import Acceptance
from kfuzz.numerics.compare import compare

# The plain functional test: torch.allclose, rtol = atol.
FUNCTIONAL_TOLERANCE: Final = 1e-2


class Depth(StrEnum):
    """How far a case is judged.

    BASE runs the base probe alone: enough to see a known symptom again.
    SEARCH runs a miss again, also under the other poison.
    FULL adds the probes that tell the contract classes apart.
    """

    BASE = "base"
    SEARCH = "search"
    FULL = "full"


@dataclass(frozen=True)
class Setting:
    """What stays the same over all cases of one kernel.

    Attributes:
        device: where the kernel runs.
        budget: limits on derived cases.
        classes: ids of the contract classes in force.
    """

    device: torch.device
    budget: SizeBudget
    classes: frozenset[str]


class Bench:
    """Judges cases of one kernel, one after the other.

    Attributes:
        kernel: the bound kernel.
        setting: device, budget and contract classes.
        on_run: called before every run of the kernel, so that a watchdog can
            tell a long judgement of many runs from one run that hangs.
    """

    def __init__(self, kernel: BoundKernel, setting: Setting) -> None:
        self.kernel = kernel
        self.setting = setting
        self.on_run: Callable[[], None] = lambda: None
        self._arena = Arena(setting.device)
        self._friendly: dict[object, bool] = {}

    def values(self, case: Case) -> dict[str, Tensor]:
        """Return the logical elements of every tensor argument."""
        device = self.setting.device
        return {name: logical_values(case, name, device) for name in case.tensors}

    def pin(self, case: Case) -> Case:
        """Return the case with every tensor's values made explicit."""
        pinned = {}
        for name, raw in self.values(case).items():
            spec = case.tensors[name]
            data = raw.cpu().reshape(-1).view(torch.uint8).numpy().tobytes()
            pinned[name] = TensorSpec(
                spec.shape, spec.axes, spec.dtype, spec.strides, spec.offset,
                values=data,
            )  # fmt: skip
        return Case(pinned, case.scalars, poison=str(_poison_of(case)))

    def judge(self, case: Case, depth: Depth) -> CaseReport:
        """Run a case's probes and return what they teach.

        Raises:
            BindingError: if the operator's oracle or error model is malformed.
        """
        derived = Derived(case, self.values(case))
        view, unsupported = self._view(derived)
        if unsupported is not None:
            return CaseReport({}, unsupported=unsupported)
        if view.base.raised is not None and view.base.raised.memory:
            return CaseReport({}, error=f"out of memory: {view.base.raised.message}")
        if view.miss is not None and depth is not Depth.BASE:
            view = self._with_repeats(view, derived)
            if depth is Depth.FULL:
                view = self._with_diagnosis(view, derived)
        verdicts, failure = judge(view, self.setting.classes)
        refusal, example = None, ""
        if view.base.raised is not None and failure is None:
            refusal, example = _refusal(view), view.base.raised.message
        return CaseReport(
            verdicts=verdicts,
            failure=failure,
            refusal=refusal,
            example=example,
            ratio=view.ratio,
            friendly=view.friendly,
        )

    def _view(self, derived: Derived) -> tuple[View, str | None]:
        """Return a view with the base run, or why the backend cannot judge it."""
        operator, claims = self.kernel.operator, self.kernel.declaration
        problem = pose(operator, derived.case, derived.values, claims)
        acceptance: dict[str, Acceptance] | None
        try:
            acceptance = accept(operator, problem)
        except BindingError:
            raise
        except Exception:  # outside the oracle's domain: values are not judged
            acceptance = None
        expected = {} if acceptance is None else expected_metadata(acceptance)
        base = self._run(derived, expected, _poison_of(derived.case))
        view = View(
            case=derived.case,
            operator=operator,
            declaration=claims,
            problem=problem,
            acceptance=acceptance,
            runs={Probe.BASE: base},
            explicit=self.kernel.explicit,
        )
        return view, _unsupported(base)

    def _run(
        self, derived: Derived, expected: Mapping[str, Expected], poison: Poison
    ) -> Run:
        claims, arguments = self.kernel.declaration, self.kernel.arguments
        self.on_run()
        return execute(
            self.kernel.function,
            derived.case,
            derived.values,
            expected,
            arena=self._arena,
            alignment=claims.alignment,
            around=_poison_of(derived.case),
            fresh=poison,
            scalars={n: derived.case.scalars[n] for n in arguments.scalars},
            inplace=claims.inplace,
        )

    def _with_repeats(self, view: View, derived: Derived) -> View:
        """Return the view with the probes that show whether a miss is stale."""
        assert view.acceptance is not None
        expected = expected_metadata(view.acceptance)
        mine = _poison_of(derived.case)
        runs = dict(view.runs)
        runs[Probe.REPEAT] = self._run(derived, expected, mine)
        runs[Probe.OTHER_POISON] = self._run(derived, expected, _other(mine))
        runs[Probe.OTHER_REPEAT] = self._run(derived, expected, _other(mine))
        return replace(view, runs=runs)

    def _with_diagnosis(self, view: View, derived: Derived) -> View:
        """Return the view with the probes that tell the classes apart."""
        operator = self.kernel.operator
        friendly = self._friendliness(derived)
        ordinary = None
        if friendly == "gone":
            ordinary = all(map(self._functional, ordinary_cases(derived.case)))
        plain = as_contiguous(derived)
        contiguous = None if plain is None else self._passes(plain)
        centred = None
        if operator.recentres:
            moderate = recentred(operator, derived)
            centred = None if moderate is None else self._passes(moderate)
        return replace(
            view,
            friendly=friendly,
            ordinary=ordinary,
            contiguous=contiguous,
            recentred=centred,
        )

    def _friendliness(self, derived: Derived) -> str | None:
        """Return "gone", "persists" (at one shape at least), or None."""
        operator, known = self.kernel.operator, False
        for shape in self._friendly_shapes(derived.case):
            if not holds(operator, derived.case, shape):
                continue
            passes = self._passes(tiled(operator, derived, shape))
            if passes is False:
                return "persists"
            known = known or passes is True
        return "gone" if known else None

    def _friendly_shapes(self, case: Case) -> Iterator[Case]:
        """Yield the shapes at which the kernel passes the functional test."""
        operator, claims = self.kernel.operator, self.kernel.declaration
        dtype = next(iter(case.tensors.values())).dtype
        for shape in friendly_shapes(operator, case, claims, self.setting.budget):
            sizes = tuple(s.shape for s in shape.tensors.values())
            key = (dtype, sizes, tuple(sorted(shape.scalars.items())))
            if key not in self._friendly:
                self._friendly[key] = self._functional(shape)
            if self._friendly[key]:
                yield shape

    def _functional(self, case: Case) -> bool:
        """Whether the kernel passes allclose on normal data of this shape."""
        view, unsupported = self._view(Derived(case, self.values(case)))
        if unsupported or not view.base.comparable or view.acceptance is None:
            return False
        for name, wanted in view.acceptance.items():
            y = view.base.outputs[name].to(torch.float64)
            limit = FUNCTIONAL_TOLERANCE * (1 + wanted.reference[0].abs())
            if not bool(((y - wanted.reference[0]).abs() <= limit).all()):
                return False
        return True

    def _passes(self, derived: Derived) -> bool | None:
        """Whether the kernel conforms on a derived case; None if undecided."""
        view, unsupported = self._view(derived)
        if unsupported or view.acceptance is None or not view.base.comparable:
            return None
        for name, wanted in view.acceptance.items():
            made = compare(view.base.outputs[name].unsqueeze(0), wanted)
            if bool(made.missed.any()):
                return False
        return True if view.decided else None


def _poison_of(case: Case) -> Poison:
    """Return the poison of a case: pinned, or alternating with the seed."""
    if case.poison is not None:
        return Poison(case.poison)
    fills = (s.fill for s in case.tensors.values() if s.fill is not None)
    first = next(fills, None)
    odd = first is not None and first.seed % 2 == 1
    return Poison.FINITE if odd else Poison.NAN


def _other(poison: Poison) -> Poison:
    return Poison.NAN if poison is Poison.FINITE else Poison.FINITE


def _unsupported(run: Run) -> str | None:
    """Return why the backend, not the kernel, is to blame for this run."""
    if run.unreliable:
        return run.unreliable
    if run.raised is not None and run.raised.backend:
        return f"Triton's interpreter cannot run it: {run.raised.message}"
    return None


def _refusal(view: View) -> str:
    """Return what the refused case has beyond the core domain, as one reason."""
    if view.acceptance is None:
        return "input outside the operator's domain"
    return view.beyond_core[0]


def setting_of(device: str, budget: SizeBudget, classes: Collection[str]) -> Setting:
    """Return a setting from plain values."""
    return Setting(torch.device(device), budget, frozenset(classes))
