"""The evaluator: executes one kernel's probes on a case and has them judged.

It lives beside the kernel, in the child process; what it returns is small.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

import torch
from torch import Tensor

from kfuzz.contracts.binding import BoundKernel, Derived, sized
from kfuzz.contracts.classes import ATTRIBUTION, CLASSES
from kfuzz.contracts.classes.calls import is_refused
from kfuzz.contracts.evidence import Evidence
from kfuzz.contracts.gradients.bounds import attributed, in_force
from kfuzz.contracts.language import SECOND_CALL_SHARE, Probe
from kfuzz.contracts.operator import Operator, named_sizes
from kfuzz.contracts.oracle import expected_metadata, given
from kfuzz.contracts.reading import (
    beyond_core,
    compared,
    decided,
    given_optionals,
    notes,
    worst_ratio,
)
from kfuzz.contracts.suite import judge, mapped, suspected
from kfuzz.core.budget import Depth, SizeBudget
from kfuzz.core.declaration import ShapeClass
from kfuzz.core.dtypes import DTYPES
from kfuzz.core.errors import End, Ended, KernelEnded, message_of
from kfuzz.core.random_streams import Purpose, is_sampled
from kfuzz.core.recipe import NOWHERE, Case, TensorSpec, config_of, poison_of, settled
from kfuzz.core.verdict import CaseReport, Failure, Kind, Observed, Suspicion, Verdict
from kfuzz.evaluation.calling import Caller, Memory, unsupported_because, without_edge
from kfuzz.evaluation.calling import raised as raised_at
from kfuzz.evaluation.diagnosis import (
    MOST_INTERPRETED,
    Builder,
    CaseCalls,
    Diagnosing,
    judge_explained,
)
from kfuzz.evaluation.large import LargeJudge
from kfuzz.evaluation.probes import FURTHER
from kfuzz.evaluation.probes.calls import is_due, second_data, shortened
from kfuzz.evaluation.probes.repeats import judge_repeated
from kfuzz.execution.calls.results import Options
from kfuzz.execution.device.backends import backend_of, is_lost
from kfuzz.execution.device.surroundings import Company, surroundings_of
from kfuzz.execution.interpreter.watch import interpreting
from kfuzz.execution.memory.placement import is_sparse
from kfuzz.execution.processes.wire import is_child
from kfuzz.execution.values.fills import logical_values
from kfuzz.numerics.accumulation import as_integers
from kfuzz.numerics.run import Raised, Run

# Sizes that a kernel rejects: found by bisection, whatever the values are.
#
# What is raised for the size alone, of whatever type, is a limit, which a `shape_class`
# makes explicit. What is raised at all or at single sizes, or depends on values, is
# none.

# A kernel that takes no size above this, or only sizes from the second on, has a fault.
_LEAST_GREATEST: Final = 16
_LEAST_LEAST: Final = 3
# Divisors that blocks and vector loads ask for.
_DIVISORS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_NUMBER: Final = re.compile(r"0x[0-9a-f]+|\d+")
# Two kinds of values: what depends on them is no matter of size.
_FAMILIES: Final = ("randn", "zeros")


@dataclass(frozen=True)
class Limit:
    """A condition on sizes outside of which a kernel raises.

    Attributes:
        text: what is rejected, in words: "N above 65,536".
        keeps: the condition, as `shape_class` takes it: "N <= 65536".
        like: what the exceptions have in common.
    """

    text: str
    keeps: str
    like: tuple[str, str]

    def explains(self, raised: Raised, sizes: Mapping[str, int]) -> bool:
        """Whether a call that raised met this limit.

        Args:
            raised: what it raised.
            sizes: of the case, by their names in a shape class.
        """
        known = ShapeClass(self.keeps).names <= set(sizes)
        beyond = known and not ShapeClass(self.keeps).accepts(sizes)
        return beyond and _like(raised) == self.like


def limit_of(caller: Caller, case: Case, raised: Raised) -> Limit | None:
    """Return the limit of the sizes that a case is beyond; None if there is none.

    Args:
        caller: calls the kernel.
        case: for which it raised.
        raised: what it raised.
    """
    kernel, device = caller.kernel, caller.memory.device

    @cache
    def raises(family: str, *sizes: tuple[str, int]) -> bool | None:
        made = sized(kernel.operator, case, dict(sizes), family)
        if not kernel.operator.accepts(made, kernel.declaration):
            return None
        values = {name: logical_values(made, name, device) for name in made.tensors}
        evidence, unsupported = caller.evidence(without_edge(Derived(made, values)))
        found = evidence.base.raised
        if unsupported or caller.lost or (found is not None and found.memory):
            return None
        return found is not None

    if not all(raises(family) for family in _FAMILIES):
        return None
    for name, axes in _named_axes(kernel.operator, case).items():
        alone = [(axis, 1) for axis in axes[1:]]

        def at(n: int) -> bool | None:
            return raises(_FAMILIES[0], (axes[0], n), *alone)  # noqa: B023

        n = math.prod(case.dims[axis] for axis in axes)
        if found := _condition(name, n, at):
            text, keeps, first = found
            # Whatever the other sizes are, and of a product whichever is large.
            ones = [(axis, 1) for axis in case.lead.axes]
            ends = (axes[0], axes[-1])
            if all(raises(_FAMILIES[0], *ones, (end, first)) for end in ends):
                return Limit(text, keeps, _like(raised))
    return None


def _named_axes(operator: Operator, case: Case) -> dict[str, tuple[str, ...]]:
    """Return the axes whose product each expression of a shape class is."""
    named = {name for p in operator.tensors.values() for name in p.names}
    made: dict[str, tuple[str, ...]] = {a: (a,) for a in case.dims if a in named}
    axes, reduced = case.lead.axes, operator.reduced_axis(case)
    if axes and named.isdisjoint(axes):
        own = axes[-1 if reduced is None else reduced]
        made["N"] = (own,)
        if rest := tuple(axis for axis in axes if axis != own):
            made |= {"M": rest, "M * N": (own, *rest)}
    return made


def _condition(
    name: str, n: int, raises: Callable[[int], bool | None]
) -> tuple[str, str, int] | None:
    """Return what is rejected, the condition that keeps it out, and such a size.

    Args:
        name: of the size.
        n: at which the kernel raises.
        raises: whether it does at a size; None where that cannot be said.
    """

    def takes(*sizes: int) -> bool:
        return all(raises(s) is False for s in sizes)

    def rejects(*sizes: int) -> bool:
        return all(raises(s) for s in sizes)

    if not n or not rejects(n):
        return None
    # Its multiples are taken, if they are small; 0 where nothing small is.
    unit = next((d for d in _DIVISORS if takes(d, 2 * d, 3 * d)), 0)
    if unit and n % unit:
        others = (unit // 2, 3 * unit // 2, 5 * unit // 2, unit + 1, 2 * unit - 1)
        if rejects(*(s for s in others if s % unit)):
            text = f"{name} that is no multiple of {unit}"
            return text, f"{name} % {unit} == 0", unit + 1
        unit = 0
    step = max(unit, 1)
    powers = [step << k for k in range(11)]
    ordinary = reversed(powers) if unit else powers
    edge = next((s for s in ordinary if (s < n) == bool(unit) and takes(s)), 0)
    bad, least = n, _LEAST_GREATEST if unit else _LEAST_LEAST
    while edge and abs(bad - edge) > step:
        middle = (bad + edge) // 2 // step * step
        edge, bad = (middle, bad) if takes(middle) else (edge, middle)
    if edge < least:
        return None
    if unit:
        found = f"{name} above {edge:,}", f"{name} <= {edge}", bad
        beyond = [bad + (n - bad) // 3, (bad + n) // 2, n + step, 2 * n, 3 * n]
        within = [edge - step, edge // 2, edge // 2 + step, edge // 3]
    else:
        found = f"{name} below {edge:,}", f"{name} >= {edge}", bad
        beyond = [1, 2, edge // 2, edge - 1]
        within = [edge + 1, 2 * edge - 1, 5 * edge]
    sizes = ([max(s // step, 1) * step for s in some] for some in (within, beyond))
    return found if takes(*next(sizes)) and rejects(*next(sizes)) else None


def _like(raised: Raised) -> tuple[str, str]:
    """Return what exceptions of one cause have in common."""
    return raised.type, _NUMBER.sub("", raised.message)


# Trivial baselines: what computes nothing is judged in place of a kernel's results.
#
# A judgement that admits zeros, NaN, a copy of an input or the results of the case
# before has no power over the kernel. On one case that may be right: zeros may be
# expected, or no bound may say much of data so ill-conditioned. So a case tells only
# whether an baseline was refused, and of baselines those alone that differ from the
# kernel's own results by a factor of two, or in being finite, where these are decided.
# What the cases come to is for the run to say.

SHARE: Final = 1 / 32
"""The part of the conforming cases on which baselines are tried."""

MOST: Final = 32
"""Cases of one process after which no more are tried: they have shown what they can."""

ZEROS: Final = "zeros"
NANS: Final = "NaN"
COPY: Final = "a copy of an input"
STALE: Final = "the results of the case before"

# Results of more elements are not kept for the next case.
_MOST_KEPT: Final = 1 << 20
# Smaller than half of the larger one: no rounding explains it.
_FAR: Final = 0.5
# What judges values; where none of it is in force no baseline can be refused.
_JUDGES: Final = frozenset({"K-VAL-01"})

Outputs = Mapping[str, Tensor]


class TrivialBaselines:
    """Tries baselines on some of a kernel's cases, one after the other."""

    def __init__(self) -> None:
        self._before: Outputs = {}
        self._cases = 0

    def tried(
        self, evidence: Evidence, values: Outputs, classes: Collection[str]
    ) -> dict[str, bool]:
        """Return by kind whether each baseline was refused, {} on most cases."""
        before, mine = self._before, dict(evidence.base.outputs)
        if sum(y.numel() for y in mine.values()) <= _MOST_KEPT:
            self._before = mine
        judged = _JUDGES & set(classes)
        if not judged or self._cases >= MOST or not is_tried(evidence.case):
            return {}
        self._cases += 1
        told = {}
        for kind, outputs in _made(mine, values, before):
            if _differs(evidence, outputs):
                run = replace(evidence.base, outputs=outputs)
                other = replace(evidence, runs={Probe.BASE: run})
                told[kind] = judge(other, classes)[1] is not None
        return told


def is_tried(case: Case) -> bool:
    """Whether a case is among those on which baselines are tried."""
    return not case.pinned and is_sampled(case.seed, Purpose.BASELINES, SHARE)


def _made(
    mine: Outputs, values: Outputs, before: Outputs
) -> Iterator[tuple[str, Outputs]]:
    """Yield baselines of a case's results, each with its kind."""
    yield ZEROS, {n: torch.zeros_like(y) for n, y in mine.items()}
    if any(y.is_floating_point() for y in mine.values()):
        yield (
            NANS,
            {
                n: torch.full(y.shape, torch.nan, device=y.device).to(y.dtype)
                if y.is_floating_point()
                else torch.zeros_like(y)
                for n, y in mine.items()
            },
        )
    shapes = {x.shape: x for x in reversed(list(values.values()))}
    copies = {
        n: shapes[y.shape].to(y.dtype) for n, y in mine.items() if y.shape in shapes
    }
    if copies:
        yield COPY, {**mine, **copies}
    if before and all(_fits(before.get(n), y) for n, y in mine.items()):
        yield STALE, {n: _over(before[n], y) for n, y in mine.items()}


def _fits(old: Tensor | None, y: Tensor) -> bool:
    return old is not None and old.dtype == y.dtype and old.numel() > 0


def _over(old: Tensor, y: Tensor) -> Tensor:
    """Return old elements in the shape of a result, from the first one again."""
    places = torch.arange(y.numel(), device=y.device) % old.numel()
    words = as_integers(old.reshape(-1))  # float8 has no indexing
    return words[places].view(old.dtype).reshape(y.shape)


def _differs(evidence: Evidence, outputs: Outputs) -> bool:
    """Whether an baseline is far from the kernel's results where these are decided."""
    for name, accepted in (evidence.acceptance or {}).items():
        y, other = (
            z.to(torch.float64) for z in (evidence.base.outputs[name], outputs[name])
        )
        decided = ~(accepted.undecided | accepted.ambiguous)[0]
        far = (y - other).abs() > _FAR * torch.maximum(y.abs(), other.abs())
        far |= y.isnan() != other.isnan()
        far |= (y != other) & (y.isinf() | other.isinf()) & ~(y.isnan() & other.isnan())
        if bool((far & decided).any()):
            return True
    return False


# Cases of one exception of which no limit of a size was why, before none is looked for.
_TRIED_FOR_LIMITS: Final = 4
# Ends for want of what the machine lacks, or kfuzz: no fault of the kernel's.
_OF_THE_MACHINE: Final = frozenset({End.MEMORY, End.UNAVAILABLE})
# The classes that a second call bears on.
_SECOND_CALL: Final = frozenset(c.id for c in ATTRIBUTION if c.second_call)
# The classes that calls on changed data bear on: a memo of the shapes breaks them too.
_OF_CHANGED_DATA: Final = frozenset(c.id for c in ATTRIBUTION if c.changed_data)


@dataclass(frozen=True)
class Setting:
    """What stays the same over all cases of one kernel.

    Attributes:
        device: where the kernel runs.
        budget: limits on derived cases.
        classes: ids of the contract classes in force.
        fences: whether arguments may lie beside pages that fault: on the CPU and on
            GPUs, where kernels are native code and a fault ends no more than a child.
        probes: share of the cases that get the sampled probes while searching.
        distinguishes: whether to find out at length what a miss depends on, and if it
            comes by chance: it is one or another contract's violation.
    """

    device: torch.device
    budget: SizeBudget
    classes: frozenset[str]
    fences: bool = False
    probes: float = 1 / SECOND_CALL_SHARE
    distinguishes: bool = True


class Evaluator:
    """Judges cases of one kernel, one after the other.

    Attributes:
        kernel: the bound kernel.
        setting: device, budget and contract classes.
        on_run: called before every run of the kernel, so that a watchdog can
            tell a long judgement of many runs from one run that hangs.
        spent: whether this process can judge no more: on a GPU every call fails
            after a fault, or after the device-side assertion of a refused index.
        builds: tells whether what a case launches builds for its targets, calling what
            it is given now and then; None where the kernel has no importable home.
        captures: whether calls are captured in CUDA graphs: in a child, since what a
            capture that fails leaves behind ends with it.
    """

    has_limits = True
    """Whether sizes that a kernel rejects, and results in a wider type, are limits of
    its own, and no failures."""

    def __init__(self, kernel: BoundKernel, setting: Setting) -> None:
        self.kernel = kernel
        self.setting = setting
        self.on_run: Callable[[], None] = lambda: None
        self.spent = False
        self.builds: Builder | None = None
        self._backend = backend_of(setting.device)
        self.captures = self._backend.has.asynchronous and is_child()
        self._memory = Memory(setting.device)
        self._classes = setting.classes
        if kernel.operator.forward is not None:
            self._classes = in_force(setting.classes, frozenset(CLASSES))
        self.of_sizes = True
        self.sought: Kind | None = None
        self._baselines = TrivialBaselines()
        self._limits: list[Limit] = []
        self._unlimited: Counter[str] = Counter()

    def values(self, case: Case) -> dict[str, Tensor]:
        """Return the logical elements of every tensor argument."""
        device = self.setting.device
        return {name: logical_values(case, name, device) for name in case.tensors}

    def settled(self, case: Case) -> Case:
        """Return the case with nothing left open but its values."""
        return settled(case, self.kernel.declaration)

    def pin(self, case: Case) -> Case:
        """Return the case with every tensor's values made explicit.

        A large case stays a recipe.
        """
        if case.large:  # its values are gigabytes
            return replace(self.settled(case), edge=None)
        return self._pinned(case, self.values(case))

    def _pinned(self, case: Case, values: Mapping[str, Tensor]) -> Case:
        """Return the settled case with these values."""
        pinned = {}
        for name, raw in values.items():
            spec = case.tensors[name]
            data = raw.cpu().reshape(-1).view(torch.uint8).numpy().tobytes()
            pinned[name] = TensorSpec(
                spec.shape, spec.axes, spec.dtype, spec.strides, spec.offset,
                values=data, below=spec.below, domain=spec.domain,
            )  # fmt: skip
        operator, claims = self.kernel.operator, self.kernel.declaration
        whole = self.settled(case)
        # Where no page faults, what is drawn of pages is no part of a finding.
        beside = case.pinned or (self.setting.fences and whole.edge != NOWHERE)
        following = operator.following(case, values)
        return replace(
            whole,
            tensors=pinned,
            scalars={**whole.scalars, **following},
            edge=whole.edge if beside else None,
            delays=whole.drawn_delays if self._backend.has.asynchronous else None,
            destinations=given(operator, whole, values, claims, {}) or {},
        )

    def judge(self, case: Case, depth: Depth) -> CaseReport:
        """Run a case's probes and return what they teach.

        Raises:
            BindingError: if the operator's oracle or error model is malformed.
        """
        self.spent = False
        case = self.settled(case)
        caller = self.caller(case, stale=depth is Depth.FULL or self._is_due(case))
        try:
            report = self._judged(case, depth, caller)
        except KernelEnded as error:  # in a process of its own
            if error.ended.end in _OF_THE_MACHINE:
                return _out_of_memory(case, error.what, self.setting)
            return _ended(error.ended)
        except torch.OutOfMemoryError as error:
            if case.largest <= self.setting.budget.elements:
                raise
            return _out_of_memory(case, message_of(error), self.setting)
        except RuntimeError as error:
            if not is_lost(self.setting.device):
                raise
            # A run that other data or other memory asked for: not this case's fault.
            self.spent = True
            if caller.outside:  # there any run may lose it, as the first might have
                return CaseReport({})
            why = message_of(error).strip().partition("\n")[0]
            return CaseReport({}, error=f"a further run lost the device: {why}")
        finally:
            self.captures = caller.captures
            if case.largest > self.setting.budget.elements and not caller.lost:
                self._backend.give_back_memory()  # others share the device
        self.spent = caller.lost
        if caller.raised and not self.spent:
            self.spent = self._backend.ailment(self.setting.device) is not None
        if self.kernel.operator.forward is not None:
            report = attributed(report, self.setting.classes)
        if caller.stale and (around := surroundings_of(self.setting.device)):
            report = replace(report, notes=(*report.notes, *around.lacking))
        return report

    def caller(self, case: Case, *, stale: bool = False) -> Caller:
        """Return what calls the kernel for one case.

        Args:
            case: the case.
            stale: whether stale memory on a device is poisoned before each call.
        """
        caller = Caller(
            self.kernel,
            self._memory,
            config=config_of(case),
            stale=stale,
            captures=self.captures,
            fences=self.setting.fences,
            step=self.on_run,
        )
        caller.accepts_wider = self.has_limits
        return caller

    def _judged(self, case: Case, depth: Depth, caller: Caller) -> CaseReport:
        """Judge a case on a device that works."""
        classes = self._classes
        budget = self.setting.budget
        diagnosis = Diagnosing(caller, classes, budget, self.of_sizes)
        if case.large:
            return self._judge_large(case, caller, diagnosis)
        derived = Derived(case, self.values(case))
        again = self._is_called_again(case, depth)
        evidence, unsupported = caller.evidence(derived, hold=again)
        if unsupported is not None:
            lacks = evidence.base.raised is not None and bool(evidence.base.raised.gpu)
            return CaseReport({}, unsupported=unsupported, needs_gpu=lacks)
        raised = evidence.base.raised
        if raised is not None and raised.memory:
            text = raised.message or raised.type
            return _out_of_memory(case, text, self.setting)
        caller.outside = evidence.outside
        # Nothing on a lost device can be read, and nothing more can be run.
        if caller.lost:
            decides = classes if is_refused(evidence) else classes & {"K-LIV-01"}
            verdicts, failure = judge(evidence, decides)
            return CaseReport(verdicts, failure=failure, beside=evidence.base.beside)
        calls = CaseCalls(
            caller, diagnosis, derived, classes,
            thorough=depth is Depth.FULL or case.pinned,
            distinguishes=self.setting.distinguishes,
            builds=self.builds,
        )  # fmt: skip
        evidence, verdicts, failure = judge_repeated(
            evidence, calls, classes,
            repeat=depth is not Depth.BASE,
            diagnose=depth is Depth.FULL and self.setting.distinguishes,
        )  # fmt: skip
        if raised is not None and (failure is None or failure.kind is Kind.RAISES):
            limit = self._limit(evidence, caller, search=depth is not Depth.BASE)
            if limit is not None:
                declared = f'shape_class="{limit.keeps}"'
                return CaseReport(
                    {}, refusal=limit.text, limit=(limit.text, declared),
                    example=raised.message or raised.type,
                )  # fmt: skip
        # Only now: what shows in one call is reported alike whatever the share.
        # The first on cases whose base run was held, the others on those compared.
        every = self._is_compared(evidence, depth)
        showing = {c for c in classes if self.sought in CLASSES[c].later_kinds}
        further = calls if self.sought is None else replace(calls, classes=showing)
        for together in FURTHER if every else FURTHER[:1]:
            if failure is not None or caller.lost:
                break
            extended = evidence
            for step in together:
                extended = step(extended, further)
            # Of a lost device nothing can be read; what was judged stands.
            if extended is not evidence and not caller.lost:
                evidence, verdicts, failure = judge_explained(extended, classes)
        tried: dict[str, bool] = {}
        suspicion = None
        if not caller.lost:
            if failure is not None and depth is not Depth.BASE:
                failure = mapped(evidence, failure)
            if failure is None and depth is Depth.SEARCH and decided(evidence):
                tried = self._baselines.tried(evidence, derived.values, classes)
            if failure is None or failure.contract in _OF_CHANGED_DATA:
                suspicion = self._suspicion(evidence, calls)
        refusal, example = None, ""
        # What may be why a kernel declines a case.
        beyond = beyond_core(evidence)
        aspects = (*beyond, *given_optionals(evidence.case, evidence.operator))
        if raised is not None:
            judged = evidence.acceptance is not None
            refuses = failure is None and not evidence.outside
            if refuses:
                outside = "input outside the operator's domain"
                refusal = beyond[0] if judged else outside
                example = raised.message or raised.type
            aspects = aspects if refuses and judged else ()
        wider: tuple[str, ...] = ()
        if (wide := caller.wider) is not None:
            verdicts.pop("K-MET-01", None)
            declared = f'results={{"{wide.output}": "{wide.wider}"}} of its operator'
            wider = f"{wide.output} has a wider type than the data", declared
        return CaseReport(
            verdicts=verdicts,
            failure=failure,
            refusal=refusal,
            example=example,
            limit=wider,
            aspects=aspects,
            ratio=worst_ratio(evidence),
            notes=notes(evidence) if failure is None else (),
            alone=evidence.base.alone,
            beside=evidence.base.beside,
            baselines=tried,
            suspicion=suspicion,
            oracle_raised=raised_at(evidence.refused) if evidence.refused else "",
            compared=compared(evidence),
        )

    def _limit(
        self, evidence: Evidence, caller: Caller, *, search: bool
    ) -> Limit | None:
        """Return the limit of a size that is why the kernel raised, if one is.

        Args:
            evidence: of the case.
            caller: calls the kernel.
            search: whether limits not yet known are looked for.
        """
        raised, case = evidence.base.raised, evidence.case
        promised = "shape_class" in evidence.explicit or not self.has_limits
        judged = evidence.acceptance is not None and not evidence.outside
        if raised is None or promised or caller.lost or not judged:
            return None
        sizes = named_sizes(self.kernel.operator, case)
        known = next((n for n in self._limits if n.explains(raised, sizes)), None)
        if known is not None:
            return known
        if not search or self._unlimited[raised.type] >= _TRIED_FOR_LIMITS:
            return None
        found = limit_of(caller, case, raised)
        if found is None:
            self._unlimited[raised.type] += 1
        else:
            self._limits.append(found)
        return found

    def _suspicion(self, evidence: Evidence, calls: CaseCalls) -> Suspicion | None:
        """Return what a fresh process has to settle as a case of its own."""
        found, operator = suspected(evidence, calls.classes), evidence.operator
        if found is None:
            return None
        probe, failure = found
        case, derived = calls.derived.case, calls.derived
        if probe is Probe.SECOND:
            values = second_data(operator, case, derived.values)
            derived = replace(derived, values=values)
        elif part := shortened(operator, evidence.declaration, calls.plain):
            derived = part
        else:
            return None
        made = replace(derived.case, poison=case.poison, config=case.config)
        return Suspicion(self._pinned(made, derived.values), failure)

    def _judge_large(
        self, case: Case, caller: Caller, diagnosis: Diagnosing
    ) -> CaseReport:
        """Run a case of billions of elements once and judge it in slices."""
        made = LargeJudge(caller, case, diagnosis.passes)
        report = made.report(self._classes)
        caller.lost = caller.lost or made.lost
        return report

    def _is_due(self, case: Case) -> bool:
        """Whether a case is among those that get the sampled probes.

        They make a dozen calls: where Triton is interpreted one slow case would take
        half of a run, and its smaller ones show the same.
        """
        share = self.setting.probes
        slow = case.elements > MOST_INTERPRETED and interpreting() and not case.pinned
        return is_due(case, share) and (share >= 1 or not slow)

    def _is_called_again(self, case: Case, depth: Depth) -> bool:
        """Whether a case gets a second call if it does not fail without."""
        if depth is Depth.BASE or not _SECOND_CALL & self._classes:
            return False
        return depth is Depth.FULL or self._is_due(case)

    def _is_compared(self, evidence: Evidence, depth: Depth) -> bool:
        """Whether a case that conforms is compared with calls beside or apart."""
        due = depth is not Depth.BASE and (
            depth is Depth.FULL or self._is_due(evidence.case)
        )
        comparable = evidence.base.comparable and bool(evidence.acceptance)
        return due and comparable and decided(evidence) > 0


def _out_of_memory(case: Case, message: str, setting: Setting) -> CaseReport:
    """Return what is to be said of a kernel that ran out of memory."""
    text = f"out of memory: {message}"
    specs, device = case.tensors.values(), setting.device
    if case.largest > setting.budget.elements:  # others may have taken the memory
        return CaseReport({}, unsupported=text)
    if any(is_sparse(s, DTYPES[s.dtype].itemsize, device) for s in specs):
        # Memory for every index of such a view is more than any machine has.
        return CaseReport({}, unsupported=f"{text} (a view that spans gigabytes)")
    return CaseReport({}, error=text)


def setting_of(
    device: str,
    budget: SizeBudget,
    classes: Collection[str],
    *,
    fences: bool = False,
    probes: float = 1 / SECOND_CALL_SHARE,
) -> Setting:
    """Return a setting from plain values; fences only where they can be made."""
    place = torch.device(device)
    fences = fences and not backend_of(place).unfenced(place)
    return Setting(place, budget, frozenset(classes), fences, probes)


def _ended(ended: Ended) -> CaseReport:
    """Return the report of a call that ended the kernel's process.

    A kernel that goes past a limit, or sends what is no answer, does not return: it is
    reported as one that crashes.
    """
    hangs = ended.end in (End.HANG, End.CPU)
    failure = Failure(
        contract="K-LIV-01",
        kind=Kind.HANG if hangs else Kind.CRASH,
        detail=ended.detail,
        message=ended.text,
        trace=ended.output[-4000:],
    )
    return CaseReport({failure.contract: Verdict.VIOLATES}, failure=failure)


# Calls of a kernel whose results are told as they are, unjudged: what probes ask.


def observe(evaluator: Evaluator, case: Case, times: int) -> Observed:
    """Return what equal calls in equal memory give.

    Args:
        evaluator: of the kernel; it can judge no more once a call lost the device.
        case: the case.
        times: calls; on a GPU other work runs beside some of them.

    Raises:
        BindingError: if the operator's oracle or error model is malformed.
        BuildError: if something cannot be built for a call.
    """
    caller = evaluator.caller(case)
    derived = Derived(case, evaluator.values(case))
    accepted = caller.accepted(derived)
    if accepted is None:
        return Observed(problem="no value is promised for these numbers")
    expected = expected_metadata(accepted)
    first: dict[str, TensorSpec] = {}
    unlike = 0
    busy = backend_of(evaluator.setting.device).has.asynchronous
    for number in range(times):
        company = tuple(Company)[number % len(Company)] if busy else Company.NONE
        run = caller.run(
            derived, expected, poison_of(case), options=Options(company=company)
        )
        if run.unreliable and company is not Company.NONE:  # it cannot be had here
            run = caller.run(derived, expected, poison_of(case))
        evaluator.spent = caller.lost
        if why := unsupported_because(run):
            return Observed(problem=why)
        if not run.comparable:
            return Observed(calls=number + 1, problem=_problem(run))
        made = _told(run.outputs)
        first = first or made
        unlike += made != first
    return Observed(first, times, unlike)


def _told(outputs: Mapping[str, Tensor]) -> dict[str, TensorSpec]:
    """Return results with their values, by name."""
    told = {}
    for name, x in outputs.items():
        data = x.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        axes = tuple(f"o{i}" for i in range(x.dim()))
        dtype = str(x.dtype).removeprefix("torch.")
        told[name] = TensorSpec(tuple(x.shape), axes, dtype, values=data)
    return told


def _problem(run: Run) -> str:
    """Return why a run has no results, in one line."""
    if run.raised is not None:
        return f"the kernel raises {run.raised.type}: {run.raised.message}"
    return run.metadata.message if run.metadata is not None else "it has no results"
