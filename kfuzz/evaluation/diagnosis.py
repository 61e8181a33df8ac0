"""What a miss depends on: the probes that tell the contract classes apart."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from typing import Any, Final

import torch
from torch import Tensor

from kfuzz.contracts.binding import (
    Derived,
    as_contiguous,
    friendly_shapes,
    holds,
    moderated,
    recentred,
    sized,
    tiled,
    with_ordinary_values,
)
from kfuzz.contracts.classes import CLASSES
from kfuzz.contracts.evidence import (
    IF_CONTIGUOUS,
    Builds,
    Configurations,
    Diagnosis,
    Evidence,
    Explanation,
)
from kfuzz.contracts.language import Probe
from kfuzz.contracts.oracle import (
    accept,
    accumulates,
    compare_all,
    expected_metadata,
    narrower_declarations,
    other_algorithms,
)
from kfuzz.contracts.reading import comparison, comparisons, decided, miss_of
from kfuzz.contracts.suite import judge
from kfuzz.core.budget import SizeBudget
from kfuzz.core.declaration import Declaration
from kfuzz.core.recipe import Case, poison_of
from kfuzz.core.verdict import Failure, Kind, Verdict
from kfuzz.evaluation.calling import Caller, without_edge
from kfuzz.execution.calls.batches import Overlapping
from kfuzz.execution.calls.results import PLAIN, Options
from kfuzz.execution.device.backends import backend_of
from kfuzz.execution.interpreter.watch import interpreting
from kfuzz.execution.memory.poison import Poison
from kfuzz.execution.values.fills import logical_values
from kfuzz.numerics.acceptance import Acceptance, Problem
from kfuzz.numerics.formats import FORMATS, format_of, is_subnormal
from kfuzz.numerics.run import Run

# Which other arithmetic a kernel really has, where a miss might be that.
#
# The bound of a narrower format is a worst case: most wrong formulas lie inside it. So
# it names a cause only if the kernel is inside it on ordinary data too, is wrong there
# as well, and shows the narrow format besides: in float32 by results that do not follow
# what the format cannot hold, in 16 bits by a wider dtype that is right, or, where none
# is declared, by few units that it is off.

# Ordinary cases hold so many elements of a result at least, where the shapes allow it:
# one rounding may be exact by luck.
_TELLING: Final = 64
_SHAPES: Final = 2
# A bound says something where it is this part of the greatest expected magnitude.
_TIGHT: Final = 1 / 4
# Units in the last place by which float32 numbers are moved: far below the 11 bits of
# TF32 and float16, far above the rounding of float32.
_MOVED: Final = (16, 64)
# Elements that miss so by chance seldom.
_SEVERAL: Final = 8
# What the few roundings of ordinary data come to in a 16-bit result, in its units.
_FEW_UNITS: Final = 16.0
# Dtypes in which a kernel is tried that is wrong in a narrower one, best first.
_WIDER: Final = ("float32", "float16")
# Scales of ordinary data: constants such as eps show beside small numbers.
_SCALES: Final = (1.0, 2.0**-8)


_Run = tuple[Derived, Evidence]
"""A case of ordinary numbers, and what the kernel gave of it."""


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
        if _is_cut_off([evidence, *(ran for _, ran in panel)]):
            return "rounding toward zero", ""
        for text, claims, narrow in chosen:
            every = [evidence, *(ran for _, ran in panel)]
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
        if not kernel.operator.accepts(derived.case, kernel.declaration):
            return
        evidence = self.caller.judged(derived)
        if evidence is not None and evidence.acceptance:
            yield derived, evidence

    def _is_narrow(self, evidence: Evidence, panel: Sequence[_Run]) -> bool:
        """Whether a kernel shows that it keeps fewer bits than it declares."""
        dtype = evidence.case.data.dtype
        if dtype == "float32":
            return self._is_insensitive(panel)
        declared = self.caller.kernel.declaration.dtypes
        bits = FORMATS[dtype].precision
        wider = [d for d in _WIDER if d in declared and FORMATS[d].precision > bits]
        if not wider:
            off = [o for _, ran in panel if miss_of(ran) for o in _units_off(ran)]
            return bool(off) and max(off) <= _FEW_UNITS
        wide = [*self._panel(wider[0])]
        if not any(miss_of(ran) for _, ran in wide):  # the formula is right
            return any(decided(ran) for _, ran in wide)
        return wider[0] == "float32" and self._is_insensitive(wide)

    def _is_insensitive(self, panel: Sequence[_Run]) -> bool:
        """Whether most results that miss stay as bits that float32 has are changed."""
        missed = same = 0
        for given, ran in panel:
            if miss_of(ran) is None:
                continue
            values = given.values.items()
            moved = {n: _moved(x, i) for i, (n, x) in enumerate(values)}
            for _, other in self._ran(replace(given, values=moved)):
                for name, made in comparisons(ran, Probe.BASE).items():
                    there = made.missed[0]
                    kept = ran.base.outputs[name] == other.base.outputs[name]
                    missed += int(there.sum())
                    same += int((there & kept).sum())
        return 2 * same > missed


def _named(text: str, evidence: Evidence, panel: Sequence[_Run]) -> str:
    """Return the format in words; which of 16 bits is said only if it errs that much.

    Of float32 data no other intermediates than float32's can be asked for.
    """
    if "bfloat16" not in text or evidence.case.data.dtype != "float32":
        return text
    off = [o for _, ran in panel for o in _units_off(ran)]
    coarser = FORMATS["bfloat16"].unit / FORMATS["float32"].unit
    return text if max(off, default=0.0) > coarser / 4 else "16-bit arithmetic"


def _is_cut_off(every: Sequence[Evidence]) -> bool:
    """Whether all that misses is the exact value, cut off at the last of 16 bits."""
    missed = 0
    for evidence in every:
        for name, made in comparisons(evidence, Probe.BASE).items():
            assert evidence.acceptance is not None
            y, exact = evidence.base.outputs[name], evidence.acceptance[name].reference
            if not bool(made.missed.any()) or y.dtype.itemsize != torch.int16.itemsize:
                continue
            nearest = exact[0].to(y.dtype)
            beyond = nearest.double().abs() > exact[0].abs()
            cut = (nearest.view(torch.int16) - beyond.short()).view(y.dtype)
            if not bool((y == cut)[made.missed[0]].all()):
                return False
            missed += int(made.missed[0].sum())
    return missed >= _SEVERAL


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


# What other declarations would accept of a miss: asked of the oracle, then judged.

_RANKS: Final = {c.id: c.rank for c in CLASSES.values() if c.explained}


def judge_explained(
    evidence: Evidence,
    classes: Collection[str],
    arithmetic: Callable[[Evidence], tuple[str, str]] | None = None,
    *,
    asked: Collection[str] | None = None,
) -> tuple[Evidence, dict[str, Verdict], Failure | None]:
    """Judge a case, with an explanation of its miss where the verdict hangs on that.

    Args:
        evidence: of the case.
        classes: ids of the classes in force.
        arithmetic: returns the algorithm and the narrower format that a miss comes
            from, which takes further calls; None where none are made.
        asked: those of which it is asked whether they conform; all by default.

    Returns:
        The evidence, with the explanation if it was asked for; verdict per class; the
        failure.

    Raises:
        BindingError: if the operator's oracle or error model is malformed.
    """
    verdicts, failure = judge(evidence, classes, asked=asked)
    asking = [_RANKS[i] for i in classes if i in _RANKS]
    known = Explanation in evidence.found and arithmetic is None
    if known or not asking or miss_of(evidence) is None:
        return evidence, verdicts, failure
    if failure is not None and CLASSES[failure.contract].rank < min(asking):
        return evidence, verdicts, failure  # whatever accepts the miss
    if Explanation not in evidence.found:
        evidence = evidence.knowing(explanation(evidence))
    if arithmetic is not None and not evidence.of(Diagnosis).shape_bound:
        algorithm, narrower = arithmetic(evidence)
        found = evidence.of(Explanation)
        found = replace(found, algorithm=algorithm, narrower=narrower)
        evidence = evidence.knowing(found)
    return evidence, *judge(evidence, classes)


def explanation(evidence: Evidence) -> Explanation:
    """Return which other declarations accept what a case misses, but for arithmetic.

    Raises:
        BindingError: if the operator's oracle or error model is malformed.
    """
    problem, miss = evidence.problem, miss_of(evidence)
    if problem is None or miss is None:
        return Explanation()
    shape = evidence.of(Diagnosis).shape_bound
    return Explanation(
        flushes=not shape and flushes(evidence),
        breaks_chain=bool(evidence.operator.chain) and _breaks_chain(evidence, problem),
    )


def flushes(evidence: Evidence) -> bool:
    """Whether a kernel that flushes subnormal numbers may give what misses."""
    problem = evidence.problem
    if problem is None or evidence.declaration.subnormals != "preserve":
        return False
    claims = replace(evidence.declaration, subnormals="any")
    return _accepts(evidence, replace(problem, declaration=claims))


def _accepts(evidence: Evidence, other: Problem) -> bool:
    """Whether another problem's acceptance holds all that the case's own does not."""
    if not evidence.base.comparable or evidence.acceptance is None:
        return False
    wide = compare_all(evidence.base.outputs, accept(evidence.operator, other))
    for name, made in wide.items():
        own = comparison(evidence, name)
        if own is None or bool((made.missed & own.missed).any()):
            return False
    return True


def _breaks_chain(evidence: Evidence, problem: Problem) -> bool:
    """Whether the worst miss lies outside the unfused chain's acceptance too."""
    miss = miss_of(evidence)
    assert miss is not None
    claims = replace(evidence.declaration, intermediates="output")
    chain = accept(evidence.operator, replace(problem, declaration=claims))
    made = compare_all(evidence.base.outputs, chain)[miss.output]
    return bool(made.missed[(0, *miss.index)])


# Triton's interpreter takes seconds for shapes of more elements, all tensors together.
MOST_INTERPRETED: Final = 1 << 13

# Friendly shapes that a failure is gone at: the largest, and the smallest.
_ENOUGH: Final = 4
# Whole tiles of many kernels.
_TILES: Final = (16, 256)

MOST_CONFIGURATIONS: Final = 8
"""Configurations that are tried besides the one that missed."""


@dataclass(frozen=True)
class Diagnosing:
    """Runs derivations of a case that misses.

    Attributes:
        caller: calls the kernel.
        classes: ids of the contract classes in force.
        budget: limits on derived cases.
        sizes: whether they may be why; no where a case of powers of two fails alike.
    """

    caller: Caller
    classes: Collection[str]
    budget: SizeBudget
    sizes: bool = True

    def of(self, evidence: Evidence, derived: Derived) -> Evidence:
        """Return the evidence of a case that misses with what its miss depends on."""
        operator = self.caller.kernel.operator
        plain = as_contiguous(derived)
        contiguous = None if plain is None else self.passes(plain)
        gone = IF_CONTIGUOUS if contiguous else self._gone(derived)
        ordinary = self._passes_ordinary(derived.case, derived) if gone else None
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
        found = Diagnosis(gone, ordinary, contiguous, centred, subnormal, moderate)
        return evidence.knowing(found)

    def arithmetic(self, derived: Derived) -> Arithmetic:
        """Return what names the arithmetic that the miss of a case comes from."""
        return Arithmetic(self.caller, derived, self.budget)

    def passes(self, derived: Derived) -> bool | None:
        """Whether the kernel conforms on a derived case; None if undecided."""
        evidence = self.caller.judged(derived)
        if evidence is None or (miss_of(evidence) is None and not decided(evidence)):
            return None
        return miss_of(evidence) is None

    def _is_tame(self, derived: Derived) -> bool | None:
        """Whether NaN and infinities are where they belong; None if undecided.

        What is wrong there otherwise than by narrow arithmetic is wrong at any
        magnitude.
        """
        evidence = self.caller.judged(derived)
        if evidence is None:
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
        return self._passes_ordinary(derived.case, derived) is not False

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
        zeroed = _replaced(derived, lambda size, least: torch.zeros_like(size))
        # Magnitudes grow by the least normal number; the format holds the sums.
        normal = _replaced(derived, lambda size, least: size + least)
        if zeroed is None or normal is None:
            return None
        there = self.caller.apart()(without_edge(normal))
        missed = there is not None and miss_of(there) is not None
        # Results may be subnormal all the same, and flushed.
        if there is not None and missed and not flushes(there):
            return "persists"
        return "gone" if self.passes(zeroed) else None

    def _gone(self, derived: Derived) -> str:
        """Return at which shape the failure is gone, and at which back; "" if at none.

        It is gone where all friendly shapes pass, and one of them fails with a size
        that is no power of two: neither another rank nor the places of the values mend
        it then. A case whose own sizes are powers of two has to come back with the rest
        that these leave of a tile.
        """
        operator, case = self.caller.kernel.operator, derived.case
        passing: list[Case] = []
        tried = self._tried_shapes(case) if self.sizes else []
        for shape in (*tried[-1:], *tried[:-1]):
            room = holds(operator, case, shape)
            if not (room and self._passes_ordinary(shape, derived)):
                continue
            passes = self.passes(tiled(operator, derived, shape))
            if passes is False:
                return ""
            passing += [shape] if passes else []
            if len(passing) == _ENOUGH:
                break
        least = sorted(passing, key=lambda shape: shape.elements)[:1]
        pairs = (pair for shape in least for pair in self._odd(derived, shape))
        for whole, odd in pairs:
            if self._fails(derived, odd):
                name = next(n for n, s in whole.tensors.items() if s != odd.tensors[n])
                here, there = ([*c.tensors[name].shape] for c in (whole, odd))
                return f"at {name} {here}; fails at {name} {there}"
        return ""

    def _odd(self, derived: Derived, shape: Case) -> Iterator[tuple[Case, Case]]:
        """Yield what passes, and the same with one size that is no power of two."""
        operator, own = self.caller.kernel.operator, derived.case
        if own.at_powers:
            for axis, n in own.dims.items():
                for size in _TILES:
                    whole = sized(operator, own, {axis: size})
                    if n < size and self._fails(derived, whole) is False:
                        yield whole, sized(operator, own, {axis: size + n})
            return
        rests = sorted({1, *own.dims.values()} - {0})
        for axis, n in shape.dims.items():
            for rest in rests:
                if (n + rest) & (n + rest - 1):
                    yield shape, sized(operator, shape, {axis: n + rest})

    def _fails(self, derived: Derived, shape: Case) -> bool | None:
        """Whether the values of a case fail at a shape; None if undecided."""
        kernel = self.caller.kernel
        if not kernel.operator.accepts(shape, kernel.declaration):
            return None
        passes = self.passes(tiled(kernel.operator, derived, shape))
        return None if passes is None else not passes

    def _passes_ordinary(self, case: Case, own: Derived) -> bool | None:
        """Whether the kernel conforms on normal numbers, and a case's own indices."""
        operator, dtype = self.caller.kernel.operator, case.data.dtype
        usual = with_ordinary_values(operator, case, dtype, plain=False)
        return self.passes(valued(usual, own))

    def _tried_shapes(self, case: Case) -> list[Case]:
        """Return friendly shapes that are worth their time, the smallest first.

        In Triton's interpreter none is larger than the case, or than a little, but the
        smallest in which the case's values have room.
        """
        kernel = self.caller.kernel
        shapes = friendly_shapes(kernel.operator, case, kernel.declaration, self.budget)
        ordered = sorted(shapes, key=lambda shape: shape.elements)
        most = max(MOST_INTERPRETED, case.elements) if interpreting() else math.inf
        small = [shape for shape in ordered if shape.elements <= most]
        wide = [s for s in ordered if holds(kernel.operator, case, s)]
        return small if not wide or wide[0] in small else [*small, wide[0]]


def _replaced(
    given: Derived, magnitude: Callable[[Tensor, float], Tensor]
) -> Derived | None:
    """Return the case with other subnormal arguments; None if there are none."""
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


# The calls of one case after its base run, and the steps that make them.

Builder = Callable[[Case, Callable[[], None]], Builds]


@dataclass(frozen=True)
class CaseCalls:
    """Makes further calls of one case.

    Attributes:
        caller: calls the kernel.
        diagnosis: tells why a changed form of the case misses.
        derived: the case with its values.
        classes: ids of the contract classes in force.
        thorough: whether to leave less to chance, and to change every argument.
        distinguishes: whether to find out at length if a miss comes by chance.
        builds: tells whether what a case launches builds for its targets, calling what
            it is given now and then; None where that cannot be known.
    """

    caller: Caller
    diagnosis: Diagnosing
    derived: Derived
    classes: Collection[str]
    thorough: bool
    distinguishes: bool = True
    builds: Builder | None = None

    def asks(self, *probes: Probe) -> bool:
        """Whether the protocol of a class in force names one of these probes."""
        return not _case_calls_named(frozenset(self.classes)).isdisjoint(probes)

    @property
    def plain(self) -> Derived:
        """The case away from pages: placements other than its own ask other things."""
        return without_edge(self.derived)

    @property
    def poison(self) -> Poison:
        """What fresh memory holds, in the calls on changed data too."""
        return poison_of(self.derived.case)

    @property
    def on_gpu(self) -> bool:
        """Whether the kernel runs on a GPU."""
        return backend_of(self.caller.memory.device).has.asynchronous

    def call(
        self,
        wanted: Mapping[str, Acceptance] | None,
        given: Derived | None = None,
        *,
        elsewhere: bool = False,
        poison: Poison | None = None,
        options: Options = PLAIN,
        step: int = 0,
        instead: Callable[..., Any] | None = None,
        stays: bool = False,
    ) -> Run:
        """Call the kernel once more.

        Args:
            wanted: what is accepted of it.
            given: a part of the case or other data; the case itself by default.
            elsewhere: whether in other memory than usual.
            poison: what fresh memory holds, if not what it held.
            options: how the call is made.
            step: configurations from the case's to the one that runs.
            instead: called in place of the kernel: its results in another way.
            stays: whether arguments and results stay alive. The data of the base run,
                which was held, are overwritten unless other memory is used.
        """
        return self.caller.run(
            given or self.derived,
            expected_metadata(wanted or {}),
            poison or self.poison,
            arena=self.caller.memory.elsewhere() if elsewhere else None,
            options=options, step=step, instead=instead,
            after=self.caller.held[0] if stays and not elsewhere else None,
            hold=stays,
        )  # fmt: skip

    def overlapping(self, evidence: Evidence) -> Overlapping:
        """Return what calls on a case's shapes have in common."""
        assert evidence.acceptance is not None
        asked = self.caller.asked(self.plain, expected_metadata(evidence.acceptance))
        assert asked is not None  # the base run had destinations
        asked = replace(asked, around=self.poison)
        return Overlapping(asked, self.caller.memory.device, self.poison)


@cache
def _case_calls_named(classes: frozenset[str]) -> frozenset[Probe]:
    """Return the probes that the protocols of some classes name."""
    made = (CLASSES[name] for name in classes)
    return frozenset(p for each in made for p in (*each.on_miss, *each.sampled))


@dataclass(frozen=True)
class Step:
    """Some probes that are made together.

    Attributes:
        probes: which they are.
        extend: returns the evidence with what they left; the evidence itself where
            there is nothing to add.
        due: whether to make them, beside that a class in force asks for one.
        always: whether they are due whichever classes are in force.
    """

    probes: tuple[Probe, ...]
    extend: Callable[[Evidence, CaseCalls], Evidence]
    due: Callable[[Evidence, CaseCalls], bool] = lambda evidence, calls: True
    always: bool = False

    def __call__(self, evidence: Evidence, calls: CaseCalls) -> Evidence:
        """Return the evidence with what the probes left, if they are due."""
        asked = self.always or calls.asks(*self.probes)
        if not (asked and self.due(evidence, calls)):
            return evidence
        return self.extend(evidence, calls)
