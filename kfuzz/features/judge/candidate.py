"""What came back of a candidate's calls: kept beside a finding that is witnessed.

Inputs and results as bytes show the miss to whoever looks, also where it does not show
again.
"""

import math
import random
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from kfuzz.contracts.binding import Arguments, BoundKernel
from kfuzz.core.budget import Depth, SizeBudget
from kfuzz.core.declaration import Declaration
from kfuzz.core.errors import End, HarnessError, KfuzzError
from kfuzz.core.random_streams import Purpose, generator
from kfuzz.core.recipe import Case, poison_of
from kfuzz.core.verdict import VALUE_KINDS, CaseReport, Failure, Kind, Verdict
from kfuzz.evaluation.calling import Caller
from kfuzz.evaluation.evaluator import Evaluator, Setting
from kfuzz.evaluation.probes.calls import is_due
from kfuzz.execution.device.backends import BACKENDS
from kfuzz.execution.processes.child import Zygote
from kfuzz.features.judge.kernelbench.problem import SEED, results
from kfuzz.features.judge.kernelbench.reference import Reference, misses
from kfuzz.features.judge.kernelbench.values import OWN
from kfuzz.features.judge.outcome import ELSEWHERE, OTHER_VALUES, WATCHED, Coverage
from kfuzz.features.judge.sandbox.contain import Limits
from kfuzz.features.judge.sandbox.sandbox import Built, RemoteKernel, Sandbox
from kfuzz.features.judge.sandbox.wire import Entry, raw
from kfuzz.numerics.accumulation import identical, same_bits
from kfuzz.store.files import StoredTensor, dump

FILE: Final = "recorded.safetensors"
"""Beside `finding.json`: the results of the call that was wrong, by output."""

# Calls of one case whose results are kept, and elements of those that are.
_CALLS: Final = 32
_ELEMENTS: Final = 1 << 20


class Recording:
    """The results of the last calls on one case."""

    def __init__(self) -> None:
        self._calls: deque[tuple[Tensor, ...]] = deque(maxlen=_CALLS)

    def begin(self) -> None:
        """A case begins."""
        self._calls.clear()

    def take(self, returned: Any) -> None:
        """Keep a copy of what a call returned, if these are tensors of some size."""
        parts = (returned,) if isinstance(returned, Tensor) else returned
        if not isinstance(parts, tuple | list):
            return
        tensors = [x for x in parts if type(x) is Tensor and not x.is_meta]
        if len(tensors) < len(parts) or sum(x.numel() for x in tensors) > _ELEMENTS:
            return
        self._calls.append(tuple(x.detach().clone() for x in tensors))

    def showing(self, failure: Failure, outputs: Sequence[str]) -> bytes | None:
        """Return the file of the results that a failure is about; None if not kept."""
        place = failure.place or 0
        for tensors in reversed(self._calls):
            if len(tensors) == len(outputs) and _holds(tensors[place], failure):
                named = zip(outputs, tensors, strict=True)
                return dump({name: _stored(x) for name, x in named})
        return None


def _holds(result: Tensor, failure: Failure) -> bool:
    index, got = failure.index, failure.got
    if index is None or got is None or len(index) != result.dim():
        return False
    if any(i >= n for i, n in zip(index, result.shape, strict=True)):
        return False
    value = float(result[index])
    return value == got or (math.isnan(value) and math.isnan(got))


def _stored(result: Tensor) -> StoredTensor:
    data = raw(result).cpu().numpy().tobytes()
    name = str(result.dtype).removeprefix("torch.")
    return StoredTensor(name, tuple(result.shape), data)


# A candidate in a child of its own: built there, given the reference's weights.

BUILT: Final = "ModelNew"
"""What a candidate's file defines."""

EVALUATION: Final = 1
"""The configuration of a case in which the candidate's module is in evaluation mode."""

OTHER_WEIGHTS: Final = 2
"""The configuration of a case in which weights that are constant as built are drawn."""


def configured(case: Case) -> int:
    """Return in which configuration a case is judged; 0 for as it was built."""
    return case.config if case.config in (EVALUATION, OTHER_WEIGHTS) else 0


class Candidate:
    """A candidate in a contained child of its own, where it is built at once.

    Args:
        path: its file.
        reference: whose arguments and weights it is given.
        backend: name of the backend.
        limits: what the child may take.
        zygote: what children are forked from; one of its own by default.
        hidden: files and folders that it must not read, besides the reference's.
        sandbox: an empty one with these limits, in place of one made here; closed with
            the candidate.

    Raises:
        HarnessError: if the machine lacks what it takes to build it.
        KfuzzError: if it cannot be built, or its weights are not the reference's.

    Attributes:
        weights: how it came to the reference's weights, in words.
        same_names: whether its weights have the reference's names and sizes, all of
            them, and there are no others.
        stalls: calls so far that did not return in time, and did in a fresh child.
        recording: what its calls on the present case returned.
        sandbox: where it is built.
        kernel: it in that, which is called.
    """

    def __init__(
        self,
        path: Path,
        reference: Reference,
        *,
        backend: str,
        limits: Limits,
        zygote: Zygote | None = None,
        hidden: Sequence[Path] = (),
        sandbox: Sandbox | None = None,
    ) -> None:
        form = reference.form
        native = BACKENDS[backend].has.native
        device = str(form.device) if native else backend
        self._reference = reference
        self._weights = form.state()
        self._entry = self._entered(
            Entry(
                path, BUILT, args=form.init, seed=SEED, weights=self._weights,
                fixed=dict(form.fixed),
            )
        )  # fmt: skip
        compiled = (form.path.parent / "__pycache__").glob(f"{form.path.stem}.*.pyc")
        self.sandbox = sandbox or Sandbox(
            None, device=device, limits=limits, zygote=zygote,
            hidden=[form.path, *compiled, *hidden],
        )  # fmt: skip
        self.sandbox.enter(self._entry)
        self.kernel = RemoteKernel(self.sandbox, nesting=form.nesting)
        self.recording = Recording()
        self._config = 0
        self._late = 0
        self.stalls = 0
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _entered(self, entry: Entry) -> Entry:
        """Return what its children import and build, of what is usual."""
        return entry

    @property
    def late(self) -> bool:
        """Whether a result changed after its call had returned, since `begin`."""
        return self.kernel.late > self._late

    def _open(self) -> None:
        """Build it, and compare its weights with the reference's; see the class."""
        opened = self.sandbox.start()
        if opened.ended is not None:
            ended = opened.ended
            what = f"it cannot be built: it {ended.text}"
            of_memory = ended.end is End.MEMORY and ended.detail == "machine"
            if of_memory or ended.end is End.UNAVAILABLE:
                raise HarnessError(what)
            where = str(self._entry.path)
            raise KfuzzError(
                what,
                where=where,
                fix="".join(ended.output.strip().splitlines()[-1:])[:300],
            )
        if opened.raised is not None:
            raised = opened.raised
            raise KfuzzError(
                f"it cannot be built: {raised.type}: {raised.message}",
                where=str(self._entry.path),
            )
        built = opened.built
        self.weights = self._matched(built)
        self.same_names = set(built.state) == set(self._weights) == set(built.loaded)

    def __call__(self, *tensors: Tensor) -> Any:
        """Call it in its child; see `RemoteKernel`."""
        expected = self.sandbox.used + (not self.sandbox.alive)
        returned = self.kernel(*tensors)
        self.recording.take(returned)
        self.stalls += self.sandbox.used > expected
        return returned

    def begin(self, case: Case) -> None:
        """Forget what the last case showed, and be as the case wants it.

        Other weights are the reference's, which has to use them by now.
        """
        self._late = self.kernel.late
        self.kernel.perturbations.begin()
        self.recording.begin()
        config = configured(case)
        if config == self._config:
            return
        self._config, entry = config, self._entry
        if config == EVALUATION:
            entry = replace(entry, evaluation=True)
        elif config == OTHER_WEIGHTS:
            state = self._reference.form.state()
            entry = replace(entry, weights=state, constants_drawn=True)
        self.sandbox.enter(entry)

    def close(self) -> None:
        """End the child."""
        self.sandbox.close()

    def _matched(self, built: Built) -> str:
        """Say how it came to the reference's weights.

        Raises:
            KfuzzError: if some are nowhere in it.
        """
        wanted, loaded = self._weights, set(built.loaded)
        if not wanted:
            return "the reference has none"
        text = f"{len(loaded)} of {len(wanted)} loaded by name and shape"
        if len(loaded) == len(wanted):
            return text
        if lacking := [n for n in wanted if n not in {*loaded, *built.alike}]:
            raise KfuzzError(
                f"its weights are not the reference's: {', '.join(lacking)} can "
                "neither be loaded by name and shape nor be found among those that "
                "it makes under the same seed",
                where=str(self._entry.path),
                fix="name parameters and buffers as the reference does",
            )
        alike = len(wanted) - len(loaded)
        return f"{text}, {alike} alike, made under the same seed"


# A candidate held against a reference, case by case, in this process.
#
# What comes back of its child are bytes and metadata; they are judged here, with the
# evaluator that judges every kernel.

# Hundreds of calls of one child: what a candidate makes of its history.
#
# The first result for each input is judged as in any case, with what the call left of
# the arguments. A later one with the same bits is as right; one with other bits is
# judged from the bytes that came back, which are played to the evaluator in the
# candidate's place. Where the bits of each call vary, most results are only held to the
# bound, which is derived once.

MOST: Final = 1_500
"""Calls of a run: more than warm-ups, timings and checks of the usual benchmarks."""

HUNDREDS: Final = 640
"""Calls that are made though they take more than their share of the time."""

# Results of one input with other bits than the first that are judged in full, whatever
# the bound says.
_JUDGED: Final = 16

Call = Callable[..., Any]
Holds = Callable[[Any], bool]


@dataclass(frozen=True)
class Recorded:
    """What came back of one call, to be played to whoever judges it.

    Attributes:
        returned: the results, None where it raised.
        raised: the exception, None where it returned.
        left: the arguments that it changed, as it left them, None for each other one.
    """

    returned: Any = None
    raised: Exception | None = None
    left: tuple[Tensor | None, ...] = ()

    @classmethod
    def of(cls, call: Call, values: Sequence[Tensor]) -> "Recorded":
        """Call on copies of values and keep what comes back."""
        given = [x.clone() for x in values]
        try:
            returned = _copied(call(*given))
        except Exception as error:
            return cls(raised=error)
        pairs = zip(given, values, strict=True)
        left = tuple(None if identical(x, was) else x for x, was in pairs)
        return cls(returned=returned, left=left)

    def play(self, *tensors: Tensor) -> Any:
        """Give what came back, again."""
        if self.raised is not None:
            raise self.raised
        for x, left in zip(tensors, self.left, strict=False):
            if left is not None:
                x.copy_(left)
        return _copied(self.returned)

    def is_like(self, other: "Recorded", *, bits: bool) -> bool:
        """Whether both returned, and the same; without `bits` of any values."""
        if self.raised is not None or other.raised is not None:
            return False
        same = _same(self.left, other.left, bits=True)
        return same and _same(self.returned, other.returned, bits=bits)


def long_run(
    cases: Sequence[Case],
    *,
    values: Callable[[Case], Sequence[Tensor]],
    call: Call,
    judge: Callable[[Case, Recorded], CaseReport],
    bound: Callable[[Case], Holds],
    seed: int,
    calls: int,
    over: Callable[[int], bool],
) -> tuple[Case, CaseReport] | None:
    """Call on cases in a row; return the first that fails, and how.

    Args:
        cases: small ones.
        values: returns the tensors of one.
        call: calls the candidate.
        judge: judges what came back of a call on a case.
        bound: returns what tells whether the results of a case lie within their bound.
        seed: the order of the cases depends on it.
        calls: how many are made.
        over: whether there is no more time, given how many calls were made.
    """
    draw = random.Random(seed)
    given = [list(values(case)) for case in cases]
    firsts: dict[int, Recorded] = {}
    bounds: dict[int, Holds] = {}
    judged = dict.fromkeys(range(len(cases)), 0)
    for made_so_far in range(calls):
        if over(made_so_far):
            return None
        number = draw.randrange(len(cases))
        made = Recorded.of(call, given[number])
        first = firsts.get(number)
        if first is not None and first.is_like(made, bits=True):
            continue
        known = first if judged[number] >= _JUDGED else None
        if known is not None and known.is_like(made, bits=False):
            if number not in bounds:
                bounds[number] = bound(cases[number])
            if bounds[number](made.returned):
                continue
        judged[number] += 1
        report = judge(cases[number], made)
        if report.failure is not None:
            return cases[number], report
        firsts.setdefault(number, made)
    return None


def _copied(returned: Any) -> Any:
    if isinstance(returned, Tensor):
        return returned.clone()
    if isinstance(returned, tuple | list):
        return type(returned)(map(_copied, returned))
    return returned


def _same(one: Any, other: Any, *, bits: bool) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        alike = (one.shape, one.dtype, one.stride()) == (
            other.shape,
            other.dtype,
            other.stride(),
        )
        return alike and (not bits or bool(same_bits(one, other).all()))
    if isinstance(one, tuple | list) and type(one) is type(other):
        same = partial(_same, bits=bits)
        return len(one) == len(other) and all(map(same, one, other))
    return one is None and other is None


# Above this a case stays a recipe: it is neither written out nor reduced.
PINNED_ELEMENTS: Final = 1 << 20
ALIGNMENT: Final = 256
# What a reference that has run does not show, or may do.
_ITS_OWN: Final = frozenset(
    {
        Kind.CRASH, Kind.HANG, Kind.DEVICE_FAULT, Kind.RAISES, Kind.FOREIGN_OPERATOR,
    }
)  # fmt: skip
# What a shape can cause.
_BY_SHAPE: Final = frozenset({"K-VAL-01", "C-PRC-01", "C-PRC-02"})
SHAPES: Final = "C-CMP-03"
VALUES: Final = "K-VAL-01"
# What ends a call without a result, and how often it does before that counts.
ENDS: Final = frozenset({Kind.RAISES, Kind.CRASH})
_OFTEN: Final = 2
# What says nothing against it that work goes on after a call.
_CALM: Final = VALUE_KINDS | {
    Kind.UNWRITTEN, Kind.NONDETERMINISTIC, Kind.RACE, Kind.STALE_RESULT,
}  # fmt: skip
# Calls that stall before that counts as a hang.
_STALLS: Final = 2
# The share of a long run's calls that nothing watches.
_BARE: Final = 0.5
_CONFIGURED: Final = {
    EVALUATION: (
        "in evaluation mode, where the reference gives what it gives as it was built"
    ),
    OTHER_WEIGHTS: "with other numbers in weights that are all 0 or all 1 as built",
}
EXPLICIT: Final = frozenset({"dtypes", "layouts", "shape_class"})


# Stretches of rows that are judged of a shape too large for an oracle, and elements of
# one.
_STRETCHES: Final = 6
_STRETCH_ELEMENTS: Final = 1 << 18


class CandidateEvaluator(Evaluator):
    """An evaluator whose cases may hold the file's own values."""

    # What the benchmarked shape asks for is no limit.
    has_limits = False

    def __init__(
        self, kernel: BoundKernel, setting: Setting, reference: Reference
    ) -> None:
        super().__init__(kernel, setting)
        self._reference = reference

    def values(self, case: Case) -> dict[str, Tensor]:
        """Return the logical elements of every tensor argument."""
        return self._reference.values.of(case)

    def _judged(self, case: Case, depth: Depth, caller: Caller) -> CaseReport:
        """Judge a case; of one whose oracle would not fit rows."""
        if self._reference.fits(case.dims):
            return super()._judged(case, depth, caller)
        return self._by_rows(case)

    def _by_rows(self, case: Case) -> CaseReport:
        """Judge one call by stretches of rows; which, a kernel cannot know.

        Only where the reference shows that its rows do not depend on one another.
        """
        values, axes = self.values(case), next(iter(case.tensors.values())).axes
        row = axes[0] if axes else ""
        if not self._is_separable(case, row, values):
            return CaseReport({}, unsupported="rows of its result depend on others")
        whole = Recorded()
        try:
            with torch.no_grad():
                made = results(self.kernel.on(*values.values()))
        except Exception as error:
            made, whole = (), Recorded(raised=error)
        rows, report, open_ = case.dims[row], CaseReport({}), None
        count = max(1, min(rows, _STRETCH_ELEMENTS * rows // case.elements))
        chance = generator(case.seed, Purpose.ROWS)
        starts = [0, rows - count]
        starts += [chance.randrange(rows - count + 1) for _ in range(_STRETCHES - 2)]
        for low in dict.fromkeys(starts):
            high = low + count
            cut = tuple(
                y.narrow(0, low, count)
                if isinstance(y, Tensor) and y.dim() and y.shape[0] >= high
                else y
                for y in made
            )
            part = replace(whole, returned=cut if len(cut) > 1 else (*cut, None)[0])
            name, claims = self.kernel.name, self.kernel.declaration
            played = bound(part.play, self._reference, name, claims)
            judge = Evaluator(played, self.setting)
            report = judge.judge(_of_rows(case, row, values, low, high)[0], Depth.BASE)
            failure = report.failure
            if failure is not None and made:
                text = f"{failure.message}, in rows {low} to {high - 1} of {rows}"
                failure = replace(failure, message=text, index=None)
            if failure is not None:
                return replace(report, failure=failure)
            # What could not be judged in one stretch was not judged.
            undecided = report.verdicts.get("K-VAL-01") is not Verdict.CONFORMS
            if undecided or report.error or report.unsupported:
                open_ = open_ or report
        return open_ or report

    def _is_separable(self, case: Case, row: str, values: Mapping[str, Tensor]) -> bool:
        """Whether the reference gives rows alone what it gives them among others."""
        reference = self._reference
        if row not in reference.shapes.free or case.dims[row] < 4:
            return False
        _, many = _of_rows(case, row, values, 0, 3)
        part, one = _of_rows(case, row, values, 1, 2)
        try:
            made = results(reference(*many.values()))
            accepted = reference.accepted(part, one, self.kernel.declaration)
        except Exception:
            return False
        if any(not y.dim() or y.shape[0] != 3 for y in made):
            return False
        return not misses(accepted, [y[1:2] for y in made], reference)


def _of_rows(
    case: Case, row: str, values: Mapping[str, Tensor], low: int, high: int
) -> tuple[Case, dict[str, Tensor]]:
    """Return the case of some rows alone, and its values."""
    tensors, parts = {}, {}
    for name, spec in case.tensors.items():
        x = values[name]
        if row in spec.axes:
            x = x.narrow(spec.axes.index(row), low, high - low)
        parts[name] = x.contiguous()
        tensors[name] = replace(
            spec, shape=tuple(x.shape), strides=None, fill=None, plants=(),
            values=raw(x).cpu().numpy().tobytes(),
        )  # fmt: skip
    return replace(case, tensors=tensors), parts


class Judged:
    """A candidate and its reference, ready to judge cases.

    Attributes:
        reference: what it is held against.
        candidate: the candidate in its child.
        kernel: the candidate as a kernel that claims to compute the reference.
        evaluator: judges its cases, without regard to what the reference does.
        tried: on what it was tried in the search.
        ended: calls that raised where they had to return, or ended their process, by
            kind.
        distinguishes: as of `Setting`.
        benchmarked_only: whether findings keep the benchmarked shape.
    """

    def __init__(
        self,
        reference: Reference,
        candidate: Candidate,
        *,
        name: str,
        budget: SizeBudget,
        classes: Collection[str],
        claims: Declaration,
        distinguishes: bool = True,
    ) -> None:
        """Bind both to benches.

        Args:
            reference: what the candidate is held against.
            candidate: the candidate.
            name: the candidate's, for findings.
            budget: limits on derived cases.
            classes: ids of the contract classes in force.
            claims: what the candidate is held to.
            distinguishes: as of `Setting`.
        """
        self.reference = reference
        self.candidate = candidate
        self.tried = Coverage()
        setting = Setting(
            reference.form.device,
            budget,
            frozenset(classes),
            distinguishes=distinguishes,
        )
        self.kernel = bound(self._called, reference, name, claims)
        self.evaluator = CandidateEvaluator(self.kernel, setting, reference)
        itself = bound(reference, reference, name, claims)
        self._itself = CandidateEvaluator(itself, setting, reference)
        self._recorded = Recorded()
        played = bound(lambda *x: self._recorded.play(*x), reference, name, claims)
        self.distinguishes = distinguishes
        self._played = CandidateEvaluator(played, setting, reference)
        self.benchmarked_only = False
        # The explicit case from which smaller ones are made.
        self._origin: Case | None = None
        # Whether it is wrong at the benchmarked shape too.
        self._wrong_there = False
        self.ended: Counter[Kind] = Counter()

    def _called(self, *tensors: Tensor) -> Any:
        self.reference.values.require(tensors)
        return self.candidate(*tensors)

    def judge(self, case: Case, depth: str) -> CaseReport:
        """Run and judge one case.

        What the reference does too on the same case is no violation; nor is raising
        elsewhere than at the benchmarked shape on the file's own values.

        Raises:
            BindingError: if the reference's results cannot be judged.
        """
        if case.pinned and self._origin is None:
            self._origin = case
        chosen = Depth(depth)
        due = chosen is Depth.SEARCH and is_due(case) and not case.pinned
        if due and self.reference.is_benchmarked(case):
            chosen = Depth.FULL  # few cases are: all further calls are made
        report = self._judged(case, chosen)
        failure = report.failure
        if failure is None:
            return report
        if failure.kind is Kind.RAISES:
            why = ""
            if not self._has_to_take(case):
                at_home = self.reference.is_benchmarked(case)
                why = OTHER_VALUES if at_home else ELSEWHERE
            elif self._raises_for_being_watched(case):
                why = WATCHED
            if why:
                kept = {
                    c: v for c, v in report.verdicts.items() if c != failure.contract
                }
                return replace(
                    report, verdicts=kept, failure=None, refusal=why,
                    example=failure.message,
                )  # fmt: skip
        self._counts(failure)
        if self.reference.fits(case.dims) and self._does_so_too(
            case, Depth(depth), failure
        ):
            self.tried.beyond += 1
            return replace(
                report,
                verdicts={
                    c: Verdict.UNDER_SPECIFIED if v is Verdict.VIOLATES else v
                    for c, v in report.verdicts.items()
                },
                failure=None,
                notes=(f"the reference does so too: {failure.kind}",),
            )
        if case.config in _CONFIGURED:
            text = f"{failure.message}; {_CONFIGURED[case.config]}"
            return replace(report, failure=replace(failure, message=text))
        return self._attributed(case, report)

    def _raises_for_being_watched(self, case: Case) -> bool:
        """Whether the candidate raises where torch is watched, and returns elsewhere.

        Some of torch's own tools, such as torch.jit.trace, raise under any mode that
        watches. What raises at times does so whatever watches.
        """
        is_so = not self._returns(case, bare=False) and self._returns(case, bare=True)
        self.tried.raised_watched += is_so
        return is_so

    def _returns(self, case: Case, *, bare: bool) -> bool:
        """Whether the candidate returns in a fresh child, watched or not."""
        values = list(self.evaluator.values(case).values())
        around = self.candidate.kernel.perturbations
        before, around.bare_share = around.bare_share, float(bare)
        around.begin()  # with another seed than that under which it raised
        # What raised may have left its process in disorder.
        self.candidate.sandbox.fresh()
        try:
            return Recorded.of(self._called, values).raised is None
        finally:
            around.bare_share = before

    def history(
        self, seed: int, *, calls: int, over: Callable[[int], bool]
    ) -> tuple[Case, CaseReport] | None:
        """Call one child hundreds of times; return the first case that fails, and how.

        Args:
            seed: the values and their order depend on it.
            calls: how many.
            over: whether there is no more time, given how many calls were made.
        """
        own = [self.reference.case(OWN, seed + i) for i in range(2)]
        cases = [c for each in own for c in (each, *self.smaller(each)[:2])]
        cases = [c for c in cases if self.reference.fits(c.dims)]
        cases = [c for c in cases if c.largest <= PINNED_ELEMENTS]
        if not cases:
            return None
        self.reference.use_drawn(drawn=False)
        self.candidate.begin(cases[0])
        returned = set[int]()  # what it has taken before, it has to take

        def judge(case: Case, recorded: Recorded) -> CaseReport:
            self._recorded = recorded
            bare = self.candidate.kernel.perturbations.last.bare
            report = self._played.judge(case, Depth.BASE)
            failure = report.failure
            if (
                failure is not None
                and failure.kind is Kind.INPUT_MODIFIED
                and self._does_so_too(case, Depth.BASE, failure)
            ):
                self._recorded = replace(recorded, left=())
                report = self._played.judge(case, Depth.BASE)
                failure = report.failure
            if recorded.raised is None:
                returned.add(id(case))
            elif failure is not None and failure.kind is Kind.RAISES:
                refuses = id(case) not in returned and not self._has_to_take(case)
                if refuses or (not bare and self._raises_for_being_watched(case)):
                    return replace(report, failure=None)
            if failure is not None and not self._counts(failure):
                return replace(report, failure=None)  # once may be the machine's doing
            return report

        around = self.candidate.kernel.perturbations

        def call(*tensors: Tensor) -> Any:
            around.begin()  # other seeds for the same inputs
            return self._called(*tensors)

        around.bare_share = _BARE
        try:
            return long_run(
                cases,
                values=lambda case: list(self.evaluator.values(case).values()),
                call=call,
                judge=judge,
                bound=self._bound,
                seed=seed,
                calls=calls,
                over=over,
            )
        finally:
            around.bare_share = 0.0

    def _bound(self, case: Case) -> Holds:
        """Return what tells whether results of a case lie within their bound."""
        values = self.evaluator.values(case)
        accepted = self.reference.accepted(case, values, self.kernel.declaration)

        def holds(returned: Any) -> bool:
            return not misses(accepted, results(returned), self.reference)

        return holds

    def _counts(self, failure: Failure) -> bool:
        """Count a call that ended without a result; return whether it did so often."""
        if failure.kind not in ENDS:
            return True
        self.ended[failure.kind] += 1
        return self.ends_often(failure.kind)

    def ends_often(self, kind: Kind) -> bool:
        """Whether calls have ended so more than once."""
        return self.ended[kind] >= _OFTEN

    def pin(self, case: Case) -> Case:
        """Return the case with its values explicit; one that is too large as it is."""
        config = configured(case)
        if case.largest > PINNED_ELEMENTS:
            return replace(case, poison=str(poison_of(case)), config=config)
        self._origin = replace(self.evaluator.pin(case), config=config)
        return self._origin

    def accepts(self, case: Case) -> bool:
        """Whether a smaller form of a case is one that the file could have given.

        What only the file can make stays as it is.
        """
        if self.benchmarked_only and not self.reference.is_benchmarked(case):
            return False
        inputs = self.reference.values.inputs
        for name, spec in case.tensors.items():
            if not inputs.is_fixed(name):
                continue
            origin = self._origin and self._origin.tensors[name]
            same = origin and (spec.shape, spec.values) == (origin.shape, origin.values)
            if not same:
                return False
        return not case.pinned or not inputs.outside(self.evaluator.values(case))

    def smaller(self, case: Case) -> list[Case]:
        """Return a large case's values at smaller shapes, the smallest first."""
        limits = (4, 16, 64, 256, 1024, 4096)
        made = self._sized(case, [partial(min, limit) for limit in limits])
        return [c for c in made if c.largest <= PINNED_ELEMENTS]

    def larger(self, case: Case) -> list[Case]:
        """Return a case's values at shapes a little larger, which no one benchmarks."""
        ways: list[Callable[[int], int]] = [lambda n: n + 1, lambda n: n + n // 2]
        made = self._sized(case, [*ways, lambda n: 2 * n])
        return [c for c in made if c != case and self.reference.fits(c.dims)]

    def _sized(self, case: Case, ways: Sequence[Callable[[int], int]]) -> list[Case]:
        """Return a case with the sizes that may vary changed, in each of some ways."""
        if self.benchmarked_only:
            return []
        operator, claims = self.kernel.operator, self.kernel.declaration
        if any(spec.plants for spec in case.tensors.values()):
            return []
        free, made = self.reference.shapes.free, list[Case]()
        for way in ways:
            sizes = {a: way(n) if a in free else n for a, n in case.dims.items()}
            sizes = operator.settled(sizes, case)
            tensors = {
                name: replace(
                    spec, shape=tuple(sizes[axis] for axis in spec.axes), strides=None
                )
                for name, spec in case.tensors.items()
            }
            sized = replace(case, tensors=tensors)
            if sized not in made and operator.accepts(sized, claims):
                made.append(sized)
        return made

    def _judged(self, case: Case, depth: Depth) -> CaseReport:
        self.reference.use_drawn(drawn=configured(case) == OTHER_WEIGHTS)
        self.candidate.begin(case)
        stalls = self.candidate.stalls
        report = self.evaluator.judge(case, depth)
        if self.candidate.stalls > stalls and report.failure is None:
            return self._stalled()
        calm = report.failure is None or report.failure.kind in _CALM
        if self.candidate.late and calm:
            failure = Failure(
                "C-ORD-03", Kind.OVERLAP_DEPENDENT,
                "the result changes after the call has returned and its stream is "
                "idle: work goes on elsewhere",
                output=self.reference.outputs[0], detail="late",
            )  # fmt: skip
            return CaseReport({"C-ORD-03": Verdict.VIOLATES}, failure=failure)
        return report

    def _stalled(self) -> CaseReport:
        """Return the report of a call that returned in a fresh child alone.

        Once may be the machine's doing; a second time earlier calls are why.
        """
        what = "a call does not return in time after other calls, and does in a fresh "
        what += "process"
        if self.candidate.stalls < _STALLS:
            return CaseReport({}, notes=(what,))
        return CaseReport(
            {"K-LIV-01": Verdict.VIOLATES}, failure=Failure("K-LIV-01", Kind.HANG, what)
        )

    def _has_to_take(self, case: Case) -> bool:
        """Whether raising on a case is a violation."""
        at_home = self.reference.is_benchmarked(case)
        if at_home and case.pinned:  # a finding, made explicit: it was checked before
            return self.is_ordinary(case)
        return at_home and self.reference.is_own(case)

    @property
    def takes_other_weights(self) -> bool:
        """Whether weights that are constant as built can be drawn, in both alike."""
        neutral = set(self.reference.form.neutral())
        if not neutral or not self.candidate.same_names:
            return False
        try:
            self.reference.use_drawn(drawn=True)
        except KfuzzError:  # it is not built with other numbers
            return False
        changed = neutral - set(self.reference.form.neutral())
        self.reference.use_drawn(drawn=False)
        return bool(changed)

    def is_ordinary(self, case: Case) -> bool:
        """Whether a case holds neither NaN nor infinities."""
        values = self.evaluator.values(case).values()
        floats = (x for x in values if x.dtype.is_floating_point)
        return all(bool(torch.isfinite(x).all()) for x in floats)

    def _does_so_too(self, case: Case, depth: Depth, failure: Failure) -> bool:
        """Whether the reference fails the same way on the same case."""
        if failure.kind in _ITS_OWN or failure.detail == "late":
            return False
        # What shows in one call is asked in one.
        own = self._itself.judge(
            case, Depth.BASE if failure.kind in VALUE_KINDS else depth
        ).failure
        if own is None:
            return False
        return own.kind is failure.kind or {own.kind, failure.kind} <= VALUE_KINDS

    def _attributed(self, case: Case, report: CaseReport) -> CaseReport:
        """Return the report of a wrong value under C-CMP-03 where the shape is why."""
        failure = report.failure
        assert failure is not None
        shown = failure.contract in _BY_SHAPE or failure.contract == SHAPES
        if not shown or failure.kind not in VALUE_KINDS:
            return report
        self._wrong_there |= self.reference.is_benchmarked(case)
        if failure.contract == SHAPES:
            return _of_values(report) if self._wrong_there else report
        if self._wrong_there or not self.tried.passed:
            return report
        moved = replace(
            failure,
            contract=SHAPES,
            # What the miss looks like says nothing where the shape is why.
            message=f"{failure.message.partition('; as ')[0]}; at another shape "
            "than the benchmarked one, which was right on other data",
        )
        verdicts = dict(report.verdicts)
        verdicts.pop(failure.contract, None)
        verdicts[SHAPES] = Verdict.VIOLATES
        return replace(report, verdicts=verdicts, failure=moved)


def _of_values(report: CaseReport) -> CaseReport:
    """Return the report of a wrong value that other shapes do not excuse.

    A candidate that is wrong at the benchmarked shape is wrong where it counts, though
    shapes that are friendly in general hide it.
    """
    failure = report.failure
    assert failure is not None
    verdicts = {c: v for c, v in report.verdicts.items() if c != SHAPES}
    moved = replace(
        failure, contract=VALUES, message=failure.message.partition("; passes at")[0]
    )
    verdicts[VALUES] = Verdict.VIOLATES
    return replace(report, verdicts=verdicts, failure=moved)


def claims_of(reference: Reference, **stated: Any) -> Declaration:
    """Return what a candidate is held to: what the form gives is what it has to take.

    Its arguments are contiguous, aligned as torch's allocator aligns, and of the
    file's dtypes.

    Raises:
        BindingError: if a declaration is unknown or impossible.
    """
    return reference.operator.defaults.declare(
        "the candidate", **{"layouts": "contiguous", "alignment": ALIGNMENT, **stated}
    )


def bound(
    function: Callable[..., Any], reference: Reference, name: str, claims: Declaration
) -> BoundKernel:
    """Return a function as a kernel that claims to compute a reference."""
    return BoundKernel(
        function,
        name=name,
        operator=reference.operator,
        declaration=claims,
        explicit=EXPLICIT,
        arguments=Arguments(reference.names, (), (), reference.names),
    )
