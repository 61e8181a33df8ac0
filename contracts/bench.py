"""The bench: executes one kernel's probes on a case and has them judged.

It lives beside the kernel, in the child process; what it returns is small.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import torch
from torch import Tensor

from kfuzz.contracts.batches import with_batches
from kfuzz.contracts.binding import BoundKernel
from kfuzz.contracts.configurations import described, with_configs
from kfuzz.contracts.derive import (
    Derived,
    as_contiguous,
    friendly_shapes,
    holds,
    ordinary_cases,
    recentred,
    tiled,
)
from kfuzz.contracts.destinations import given, layout_of
from kfuzz.contracts.hostile import HostileIndex, first_hostile
from kfuzz.contracts.judge import judge, judge_alone
from kfuzz.contracts.language import Probe
from kfuzz.contracts.left_open import config_of, edge_of, poison_of
from kfuzz.contracts.nonfinite import ASKING, NonFinite, first_nonfinite
from kfuzz.contracts.notes import notes
from kfuzz.contracts.oracle import accept, expected_metadata, pose
from kfuzz.contracts.overlapping import with_overlap
from kfuzz.contracts.permuting import with_orders
from kfuzz.contracts.relational import Apart
from kfuzz.contracts.repeating import is_told, with_repeats
from kfuzz.contracts.scaling import with_scaling
from kfuzz.contracts.second_call import is_due, with_second_call
from kfuzz.contracts.subnormals import normalised, without_subnormals
from kfuzz.contracts.suspicions import suspicions
from kfuzz.contracts.view import UNPROMISED, View
from kfuzz.core.budget import SizeBudget
from kfuzz.core.dtypes import DTYPES
from kfuzz.core.errors import BindingError
from kfuzz.core.recipe import Case, Destination, Scalar, TensorSpec, is_dtype
from kfuzz.core.verdict import CaseReport
from kfuzz.execution import pages
from kfuzz.execution.fills import logical_values
from kfuzz.execution.interpreter import interpreting
from kfuzz.execution.memory import Arena
from kfuzz.execution.overlap import Overlapping
from kfuzz.execution.poison import Poison
from kfuzz.execution.probes import Expected, Run, execute
from kfuzz.execution.randomness import SEED
from kfuzz.execution.windows import is_sparse
from kfuzz.numerics.acceptance import Acceptance, Problem

# The plain functional test: torch.allclose, rtol = atol.
FUNCTIONAL_TOLERANCE: Final = 1e-2
# Memory beside the usual is taken anew each time and kept for a while: a kernel
# that remembers addresses has not met it before.
_ELSEWHERES: Final = 4
# The classes that a second call bears on.
_SECOND_CALL: Final = frozenset({"K-MEM-04", "K-REF-01"})


class Depth(StrEnum):
    """How far a case is judged.

    BASE runs the base probe alone: enough to see a known symptom again.
    SEARCH runs again what misses or was seen to touch memory that it should not,
    also under the other poison, elsewhere, or with its programs reversed; a share
    of the other cases, and all pinned ones, gets a second call.
    FULL adds the probes that tell the contract classes apart, and the second call
    to every case that does not fail without.
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
        fences: whether arguments may lie beside pages that fault: on the CPU, where
            kernels are native code and a fault ends no more than a child.
    """

    device: torch.device
    budget: SizeBudget
    classes: frozenset[str]
    fences: bool = False


@dataclass(frozen=True)
class _Posed:
    """What a case asks of the kernel.

    Attributes:
        problem: the inputs as the oracle sees them.
        acceptance: what is admitted; None where values are not judged.
        hostile: the first index out of bounds, if any.
        nonfinite: the first NaN or infinity where these are masked or refused.
    """

    problem: Problem
    acceptance: dict[str, Acceptance] | None
    hostile: HostileIndex | None
    nonfinite: NonFinite | None


class Bench:
    """Judges cases of one kernel, one after the other.

    Attributes:
        kernel: the bound kernel.
        setting: device, budget and contract classes.
        on_run: called before every run of the kernel, so that a watchdog can
            tell a long judgement of many runs from one run that hangs.
        spent: whether this process can judge no more: on a GPU every call fails
            after a fault, or after the device-side assertion of a refused index.
    """

    def __init__(self, kernel: BoundKernel, setting: Setting) -> None:
        self.kernel = kernel
        self.setting = setting
        self.on_run: Callable[[], None] = lambda: None
        self.spent = False
        self._arena = Arena(setting.device)
        self._elsewhere: deque[Arena] = deque(maxlen=_ELSEWHERES)
        self._friendly: dict[object, bool] = {}
        self._config = 0

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
                values=data, below=spec.below,
            )  # fmt: skip
        operator, claims = self.kernel.operator, self.kernel.declaration
        whole = replace(case, layout=layout_of(case, claims) if claims.out else None)
        places = given(operator, whole, self.values(case), claims, {})
        return replace(
            whole,
            tensors=pinned,
            poison=str(poison_of(case)),
            edge=edge_of(case) if self.setting.fences else case.edge,
            config=config_of(case),
            destinations=places or {},
        )

    def judge(self, case: Case, depth: Depth) -> CaseReport:
        """Run a case's probes and return what they teach.

        Raises:
            BindingError: if the operator's oracle or error model is malformed.
        """
        claims = self.kernel.declaration
        layout = layout_of(case, claims) if claims.out else None
        settled = replace(case, edge=edge_of(case), layout=layout)
        derived = Derived(settled, self.values(case))
        self._config = config_of(case)  # of the cases derived from it too
        again = self._is_called_again(case, depth)
        view, unsupported = self._view(derived, hold=again)
        if unsupported is not None:
            return CaseReport({}, unsupported=unsupported)
        if view.base.raised is not None and view.base.raised.memory:
            raised = view.base.raised
            return _out_of_memory(case, raised.message or raised.type)
        self.spent = view.base.raised is not None and view.base.raised.lost
        if self.spent and not view.outside:  # nothing on the device can be read
            verdicts, failure = judge(view, self.setting.classes & {"K-LIV-01"})
            return CaseReport(verdicts, failure=failure)
        if depth is not Depth.BASE:
            view = self._with_repeats(view, derived)
        verdicts, failure = judge(view, self.setting.classes)
        if depth is Depth.FULL and view.miss is not None and not is_told(failure):
            view = self._with_diagnosis(view, derived)
            verdicts, failure = judge(view, self.setting.classes)
        # Only now: what shows in one call is charged alike whatever the share.
        if failure is None and view.base.held is not None and view.acceptance:
            view = self._with_second_call(view, derived)
            verdicts, failure = judge(view, self.setting.classes)
        if failure is None and self._is_compared(view, depth):
            view = self._with_other_calls(view, derived, depth)
            verdicts, failure = judge(view, self.setting.classes)
            if failure is None:
                view = self._with_changed_data(view, derived, depth)
                verdicts, failure = judge(view, self.setting.classes)
        refusal, example = None, ""
        if view.base.raised is not None and failure is None and not view.outside:
            refusal, example = _refusal(view), view.base.raised.message
        return CaseReport(
            verdicts=verdicts,
            failure=failure,
            refusal=refusal,
            example=example,
            ratio=view.ratio,
            friendly=view.friendly,
            notes=(*notes(view), *suspicions(view)) if failure is None else (),
        )

    def _is_called_again(self, case: Case, depth: Depth) -> bool:
        """Whether a case gets a second call if it does not fail without."""
        if depth is Depth.BASE or not _SECOND_CALL & self.setting.classes:
            return False
        return depth is Depth.FULL or is_due(case)

    def _is_compared(self, view: View, depth: Depth) -> bool:
        """Whether a case that conforms is compared with calls beside or apart."""
        if depth is Depth.BASE or not (depth is Depth.FULL or is_due(view.case)):
            return False
        return view.base.comparable and bool(view.acceptance) and view.decided > 0

    def _posed(self, derived: Derived) -> _Posed:
        """Return what a case asks, and what is admitted where values are judged."""
        operator, claims = self.kernel.operator, self.kernel.declaration
        problem = pose(operator, derived.case, derived.values, claims)
        hostile = first_hostile(operator, derived.case, problem)
        nonfinite = None
        if claims.nonfinite in ASKING:
            nonfinite = first_nonfinite(operator, derived.values)
        refusable = nonfinite is not None and claims.nonfinite == "raise"
        astray = hostile is not None and claims.out_of_bounds in UNPROMISED
        acceptance = None
        if not (astray or refusable):
            try:
                acceptance = accept(operator, problem)
            except BindingError:
                raise
            except Exception:  # outside the oracle's domain
                acceptance = None
        return _Posed(problem, acceptance, hostile, nonfinite)

    def _accepted(self, derived: Derived) -> dict[str, Acceptance] | None:
        """Return what is admitted for a case, None where values are not judged."""
        return self._posed(derived).acceptance

    def _view(
        self, derived: Derived, *, hold: bool = False, arena: Arena | None = None
    ) -> tuple[View, str | None]:
        """Return a view with the base run, or why the backend cannot judge it."""
        operator, claims = self.kernel.operator, self.kernel.declaration
        # Before the run: after a device-side assertion nothing can be read.
        posed = self._posed(derived)
        accepted = posed.acceptance
        expected = {} if accepted is None else expected_metadata(accepted)
        base = self._run(
            derived, expected, poison_of(derived.case), hold=hold, arena=arena
        )
        places = self._destinations(derived, expected) or {}
        view = View(
            case=replace(derived.case, destinations=places),
            operator=operator,
            declaration=claims,
            problem=posed.problem,
            acceptance=accepted,
            runs={Probe.BASE: base},
            explicit=self.kernel.explicit,
            hostile=posed.hostile,
            nonfinite=posed.nonfinite,
        )
        return view, _unsupported(base)

    def _run(
        self,
        derived: Derived,
        expected: Mapping[str, Expected],
        poison: Poison,
        *,
        arena: Arena | None = None,
        reverse: bool = False,
        last: tuple[int, int, int] | None = None,
        seed: int = SEED,
        hold: bool = False,
        after: Run | None = None,
        config: int | None = None,
    ) -> Run:
        claims = self.kernel.declaration
        config = self._config if config is None else config
        destinations = self._destinations(derived, expected)
        if destinations is None:
            return Run(poison=poison, unreliable="no shape is known for its outputs")
        self.on_run()
        run = execute(
            self.kernel.on,
            derived.case,
            derived.values,
            expected,
            arena=arena or self._arena,
            alignment=claims.alignment,
            around=poison_of(derived.case),
            fresh=poison,
            scalars=self._keywords(derived.case, config),
            inplace=claims.inplace,
            destinations=destinations,
            reverse=reverse,
            last=last,
            config=config,
            seed=seed,
            hold=hold,
            after=after,
            edge=derived.case.edge if self.setting.fences else None,
        )
        if not claims.configs:
            return run
        return replace(
            run, config=described(claims.config(config)), configs=len(claims.configs)
        )

    def _keywords(self, case: Case, config: int) -> dict[str, object]:
        """Return the scalars that the kernel takes, and those of a configuration."""
        named = self.kernel.arguments.scalars
        keywords = {name: as_argument(case.scalars[name]) for name in named}
        return {**keywords, **self.kernel.declaration.config(config)}

    def _destinations(
        self, derived: Derived, expected: Mapping[str, Expected]
    ) -> dict[str, Destination] | None:
        """Return the memory that the kernel is given; None where no shape is known."""
        operator, claims = self.kernel.operator, self.kernel.declaration
        return given(operator, derived.case, derived.values, claims, expected)

    def _with_repeats(self, view: View, derived: Derived) -> View:
        """Return the view with repeats of a base run that gives cause to them."""
        expected = {} if view.acceptance is None else expected_metadata(view.acceptance)
        mine = poison_of(derived.case)

        def repeat(
            *,
            other_poison: bool = False,
            elsewhere: bool = False,
            reverse: bool = False,
            last: tuple[int, int, int] | None = None,
        ) -> Run:
            poison = _other(mine) if other_poison else mine
            arena = self._other_memory() if elsewhere else None
            return self._run(
                derived, expected, poison, arena=arena, reverse=reverse, last=last
            )

        return with_repeats(view, repeat, self.setting.classes)

    def _with_second_call(self, view: View, derived: Derived) -> View:
        """Return the view of a conforming case with calls on other data."""
        assert view.acceptance is not None
        expected = expected_metadata(view.acceptance)
        poison = poison_of(derived.case)

        def call(values: Mapping[str, Tensor], *, after: Run | None, seed: int) -> Run:
            arena = self._other_memory() if after is None else None
            made = replace(derived, values=values)
            return self._run(
                made, expected, poison, arena=arena, seed=seed, hold=True, after=after
            )

        return with_second_call(view, derived, call, self._accepted)

    def _with_other_calls(self, view: View, derived: Derived, depth: Depth) -> View:
        """Return the view of a conforming case with other batches and calls at once."""
        classes, poison = self.setting.classes, poison_of(derived.case)
        # Other placements than the case's own would be another question.
        plain = _without_edge(derived)

        def run(part: Derived, wanted: Mapping[str, Acceptance], apart: bool) -> Run:
            arena = self._other_memory() if apart else None
            return self._run(part, expected_metadata(wanted), poison, arena=arena)

        if "C-ORD-02" in classes:
            view = with_batches(view, plain, self._accepted, run)
        if "C-ORD-03" in classes and not (view.base.programs or interpreting()):
            assert view.acceptance is not None
            expected = expected_metadata(view.acceptance)
            common = Overlapping(
                self.kernel.on, plain.case, expected, self.setting.device,
                alignment=view.declaration.alignment, around=poison, fresh=poison,
                scalars=self._keywords(plain.case, self._config),
                inplace=view.declaration.inplace,
                destinations=self._destinations(plain, expected),
            )  # fmt: skip
            self.on_run()
            thorough = depth is Depth.FULL or derived.case.pinned
            view = with_overlap(
                view, plain, common, self._accepted, run, thorough=thorough
            )
        return view

    def _with_changed_data(self, view: View, derived: Derived, depth: Depth) -> View:
        """Return the view of a conforming case with scaled and permuted data."""
        classes = self.setting.classes
        everything = depth is Depth.FULL or derived.case.pinned
        plain = _without_edge(derived)
        apart = Apart(self._judged_apart, self._blamed)
        if "C-PRC-04" in classes:
            view = with_scaling(view, plain, apart, everything=everything)
        if "C-ORD-01" in classes:
            view = with_orders(view, plain, apart)
        return view

    def _judged_apart(self) -> Callable[[Derived], View | None]:
        """Return what runs cases one after the other in memory that none has met."""
        arena = self._other_memory()

        def run(derived: Derived) -> View | None:
            view, unsupported = self._view(derived, arena=arena)
            return None if unsupported or not view.base.comparable else view

        return run

    def _blamed(self, derived: Derived) -> str | None:
        """Return the class that a case's miss is charged to; None if it has none."""
        view = self._judged_apart()(derived)
        if view is None or view.miss is None:
            return None
        view = self._with_repeats(view, derived)
        failure = judge_alone(view)
        if not is_told(failure):
            failure = judge_alone(self._with_diagnosis(view, derived))
        return None if failure is None else failure.contract

    def _other_memory(self) -> Arena:
        """Return memory at addresses that no recent placement had."""
        self._elsewhere.append(Arena(self.setting.device))
        return self._elsewhere[-1]

    def _with_diagnosis(self, view: View, derived: Derived) -> View:
        """Return the view with the probes that tell the classes apart."""
        operator = self.kernel.operator
        friendly = self._friendliness(derived)
        ordinary = None
        if friendly == "gone":
            ordinary = all(
                map(self._functional, ordinary_cases(operator, derived.case))
            )
        plain = as_contiguous(derived)
        contiguous = None if plain is None else self._passes(plain)
        centred = None
        if operator.recentres:
            moderate = recentred(operator, derived)
            centred = None if moderate is None else self._passes(moderate)
        if "C-CMP-02" in self.setting.classes:
            assert view.acceptance is not None
            expected, poison = expected_metadata(view.acceptance), poison_of(view.case)
            view = with_configs(
                view,
                lambda step: self._run(
                    derived, expected, poison, config=self._config + step
                ),
            )
        return replace(
            view,
            friendly=friendly,
            ordinary=ordinary,
            contiguous=contiguous,
            recentred=centred,
            subnormal=self._subnormality(derived),
        )

    def _subnormality(self, derived: Derived) -> str | None:
        """Return "gone" or "persists", what `View.subnormal` means by them, or None."""
        zeroed, normal = without_subnormals(derived), normalised(derived)
        if zeroed is None or normal is None:
            return None
        view = self._judged_apart()(_without_edge(normal))
        # Results may be subnormal all the same, and flushed.
        if view is not None and view.miss is not None and not view.flushes:
            return "persists"
        return "gone" if self._passes(zeroed) else None

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
        dtype = case.data.dtype
        for shape in friendly_shapes(operator, case, claims, self.setting.budget):
            sizes = tuple(s.shape for s in shape.tensors.values())
            scalars = tuple(sorted(shape.scalars.items()))
            key = (dtype, sizes, scalars, self._config)
            if key not in self._friendly:
                self._friendly[key] = self._functional(shape)
            if self._friendly[key]:
                yield shape

    def _functional(self, case: Case) -> bool:
        """Whether the kernel passes allclose on normal data of this shape."""
        # Where a fault would blame the case that is being diagnosed: no edges.
        plain = _without_edge(Derived(case, self.values(case)))
        view, unsupported = self._view(plain)
        if unsupported or not view.base.comparable or view.acceptance is None:
            return False
        for name, wanted in view.acceptance.items():
            made = view.comparison(name)
            if made is not None and made.unrelated is not None:
                if bool(made.missed.any()):  # no one answer to be close to
                    return False
                continue
            y = view.base.outputs[name].to(torch.float64)
            near = 0.0 if wanted.output.integral else FUNCTIONAL_TOLERANCE
            limit = near * (1 + wanted.reference[0].abs())
            close = (y - wanted.reference[0]).abs() <= limit
            # Normal data may lie outside a domain: negative variances.
            if not bool((close | (y.isnan() & wanted.reference[0].isnan())).all()):
                return False
        return True

    def _passes(self, derived: Derived) -> bool | None:
        """Whether the kernel conforms on a derived case; None if undecided."""
        view, unsupported = self._view(_without_edge(derived))
        if unsupported or view.acceptance is None or not view.base.comparable:
            return None
        if view.miss is not None:
            return False
        return True if view.decided else None


def _without_edge(derived: Derived) -> Derived:
    """Return a case away from pages that fault."""
    return replace(derived, case=replace(derived.case, edge=None))


def as_argument(value: Scalar) -> object:
    """Return a scalar as kernels take it: a dtype's name as the dtype."""
    return getattr(torch, str(value)) if is_dtype(value) else value


def _out_of_memory(case: Case, message: str) -> CaseReport:
    """Return what is to be said of a kernel that ran out of memory."""
    text = f"out of memory: {message}"
    specs = case.tensors.values()
    if any(is_sparse(s, DTYPES[s.dtype].itemsize) for s in specs):
        # Memory for every index of such a view is more than any machine has.
        return CaseReport({}, unsupported=f"{text} (a view that spans gigabytes)")
    return CaseReport({}, error=text)


def _other(poison: Poison) -> Poison:
    return Poison.NAN if poison is Poison.FINITE else Poison.FINITE


def _unsupported(run: Run) -> str | None:
    """Return why the backend, not the kernel, is to blame for this run."""
    if run.unreliable:
        return run.unreliable
    if run.raised is not None and run.raised.backend:
        what = "Triton's interpreter" if interpreting() else "Triton"
        return f"{what} cannot run it: {run.raised.message}"
    return None


def _refusal(view: View) -> str:
    """Return what the refused case has beyond the core domain, as one reason."""
    if view.acceptance is None:
        return "input outside the operator's domain"
    return view.beyond_core[0]


def setting_of(
    device: str,
    budget: SizeBudget,
    classes: Collection[str],
    *,
    fences: bool = False,
) -> Setting:
    """Return a setting from plain values; fences only where they can be made."""
    fences = fences and pages.available()
    return Setting(torch.device(device), budget, frozenset(classes), fences)
