"""What the judge of every operator must admit and must refuse, as one harness.

A test module describes its operators as `Subject`s and calls the checks below for
each of them and each dtype.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final

import torch
from torch import Tensor

from kfuzz.contracts.operator import Operator
from kfuzz.contracts.oracle import accept, compare_all, pose
from kfuzz.core.dtypes import specials
from kfuzz.core.recipe import Case, Fill, Plant, Scalar, TensorSpec, is_dtype
from kfuzz.core.value_families import FAMILIES
from kfuzz.execution.values.fills import logical_values
from kfuzz.numerics.acceptance import FINITE, Acceptance, Problem, classes_of
from kfuzz.numerics.compare import Comparison, Outcome, compare
from kfuzz.numerics.formats import round_to
from kfuzz.strategies.parameters import IndexParameter

CPU: Final = torch.device("cpu")
DTYPES: Final = ("float32", "float16", "bfloat16")
ORDINARY: Final = ("randn", "uniform01", "offset")
# What the arguments after the first hold, in turn.
OTHERS: Final = ("randn", "exact_int", "minnormal", "expspread")
# What masks and integer data hold, by seed.
TRUTHS: Final = ("bool_random", "bool_alternating", "bool_mostly_true", "bool_tail")
CODES: Final = ("int_uniform", "int_small", "int_ends", "int_zeros")
# What index arguments hold, by seed.
INDICES: Final = ("index_uniform", "index_equal", "index_sorted", "index_edges")
Algorithm = Callable[..., Any]


@dataclass(frozen=True)
class Setup:
    """Sizes of the tensor arguments, in order, and the scalars."""

    shapes: tuple[tuple[int, ...], ...]
    scalars: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Subject:
    """One operator with what tests know about it.

    Attributes:
        operator: what is judged.
        honest: a correct implementation.
        correct: further ones, of every form that the declaration admits.
        setups: sizes at which they run on every family.
        ordinary: a size at which impostors are tried.
        half: the whole computation in 16 bits, where a declaration admits that.
        of_units: further correct ones for operands of 16 bits, as matrix units have.
        of_blas: whether the oracle's own BLAS may skip 0 * Inf where nothing is summed.
        has_ends: whether what lies beyond an end of the admitted range is a number.
        families: families on which impostors are tried.
        right: impostors that are no impostors here: "zeros", "uniform", "identity",
            "stale" or "shuffled".
        claims: what the correct algorithms declare besides the defaults.
        positive: arguments that hold no negative number.
        dtypes: data types of the tests.
        decided: share of the elements that must be decided.
        nans: whether NaN is among the results.
        infinities: whether infinities are.
    """

    operator: Operator
    honest: Algorithm
    setups: tuple[Setup, ...]
    ordinary: Setup
    correct: Mapping[str, Algorithm] = field(default_factory=dict)
    half: Algorithm | None = None
    of_units: Mapping[str, Algorithm] = field(default_factory=dict)
    of_blas: bool = False
    has_ends: bool = True
    families: tuple[str, ...] = ORDINARY
    right: frozenset[str] = frozenset()
    claims: tuple[tuple[str, Any], ...] = ()
    positive: frozenset[str] = frozenset()
    dtypes: tuple[str, ...] = DTYPES
    decided: float = 0.85
    nans: bool = True
    infinities: bool = True


@dataclass(frozen=True, eq=False)
class Posed:
    """A case with its values, and what is admitted for them."""

    case: Case
    values: Mapping[str, Tensor]
    problem: Problem
    accepted: Mapping[str, Acceptance]

    def run(self, algorithm: Algorithm) -> dict[str, Tensor]:
        """Return an algorithm's results by output name."""
        scalars = {
            n: getattr(torch, str(v)) if is_dtype(v) else v
            for n, v in self.problem.scalars.items()
        }
        made = algorithm(*self.values.values(), **scalars)
        results = made if isinstance(made, tuple) else (made,)
        return dict(zip(self.accepted, results, strict=True))

    def compare(self, results: Mapping[str, Tensor]) -> dict[str, Comparison]:
        """Return the comparison of every output."""
        return compare_all(results, self.accepted)

    def judge(self, algorithm: Algorithm) -> Comparison:
        """Return the comparison of the only output of an algorithm."""
        (made,) = self.compare(self.run(algorithm)).values()
        return made

    def refuses(self, results: Mapping[str, Tensor]) -> bool:
        """Whether an element of some output misses."""
        return any(bool(c.missed.any()) for c in self.compare(results).values())

    def __str__(self) -> str:
        """Return the case in one line."""
        fills = [s.fill.family for s in self.case.tensors.values() if s.fill]
        shapes = [s.shape for s in self.case.tensors.values()]
        plants = [s.plants for s in self.case.tensors.values() if s.plants]
        return f"{fills} {shapes} {dict(self.case.scalars)} {plants}"


def case_of(
    subject: Subject,
    dtype: str,
    family: str,
    setup: Setup,
    *,
    seed: int = 1,
    other: str = "randn",
    plants: tuple[Plant, ...] = (),
) -> Case:
    """Return a case whose first floating tensor has the family, the others `other`.

    Indices, masks and integers have one of their own families, as the seed says.
    """
    operator, tensors = subject.operator, {}
    first = next(n for n, p in operator.tensors.items() if p.kind == "float")
    for i, (name, shape) in enumerate(
        zip(operator.tensors, setup.shapes, strict=False)
    ):
        parameter = operator.tensors[name]
        leading = len(shape) - len(parameter.names)
        axes = (*(f"d{j}" for j in range(leading)), *parameter.names)
        if isinstance(parameter, IndexParameter):
            fill = Fill(INDICES[seed % len(INDICES)], seed * 101 + i)
            tensors[name] = TensorSpec(
                shape, axes, "int64", fill=fill, below=parameter.below
            )
            continue
        if parameter.kind != "float":
            own = TRUTHS if parameter.kind == "bool" else CODES
            fill = Fill(own[seed % len(own)], seed * 101 + i)
            tensors[name] = TensorSpec(shape, axes, parameter.dtype, fill=fill)
            continue
        axis = -1
        if operator.dim is not None and len(shape) == len(setup.shapes[0]):
            dim = int(setup.scalars.get(operator.dim, -1))
            axis = dim if dim < 0 else dim - len(shape)
        elif isinstance(operator.reduced, str) and operator.reduced in axes:
            axis = axes.index(operator.reduced) - len(axes)
        chosen = family if name == first else other
        if name in subject.positive:
            chosen = "uniform01"
        fill = Fill(chosen, seed * 101 + i, axis)
        held = parameter.dtype or dtype
        tensors[name] = TensorSpec(shape, axes, held, fill=fill)
    tensors[first] = replace(tensors[first], plants=plants)
    return Case(tensors, dict(setup.scalars))


def pose_case(subject: Subject, case: Case, **claims: Any) -> Posed:
    """Return a case with values, problem and acceptances."""
    values = {name: logical_values(case, name, CPU) for name in case.tensors}
    declaration = replace(
        subject.operator.defaults, **{**dict(subject.claims), **claims}
    )
    problem = pose(subject.operator, case, values, declaration)
    return Posed(case, values, problem, accept(subject.operator, problem))


def _cases(subject: Subject, dtype: str) -> Iterator[Case]:
    """Yield every family at every third setup, then every special value planted."""
    turns = min(3, len(subject.setups))
    for i, setup in enumerate(subject.setups):
        for j, family in enumerate(f for f in FAMILIES if f != "transpose_of"):
            if (i + j) % turns:
                continue
            other = OTHERS[(i // 2 + j) % len(OTHERS)]
            yield case_of(subject, dtype, family, setup, seed=i + j, other=other)
    setup = next(s for s in subject.setups if 0 not in s.shapes[0] and s.shapes[0])
    parameters = list(subject.operator.tensors.values())
    first = next(i for i, p in enumerate(parameters) if p.kind == "float")
    held = parameters[first].dtype or dtype
    for family in ("randn", "exact_int"):
        for j, bits in enumerate(specials(held, finite=False)):
            at = tuple((j * 7 + 3) % n for n in setup.shapes[first])
            yield case_of(
                subject, dtype, family, setup, seed=j, plants=(Plant(at, bits),)
            )


@cache
def posed(subject: Subject, dtype: str) -> tuple[Posed, ...]:
    """Return the cases of a subject; they are made once."""
    return tuple(pose_case(subject, case) for case in _cases(subject, dtype))


# --- what must be admitted ----------------------------------------------------


def check_correct(subject: Subject, dtype: str) -> None:
    """Every correct algorithm is admitted on every family; most is decided."""
    decided = total = 0
    for case in posed(subject, dtype):
        for label, algorithm in {"honest": subject.honest, **subject.correct}.items():
            for output, made in case.compare(case.run(algorithm)).items():
                where = made.missed.nonzero()[:3].tolist()
                assert not made.missed.any(), f"{label}: {output}{where} of {case}"
                decided += int((made.outcomes == Outcome.OK).sum())
                total += made.outcomes.numel()
    assert decided > 500
    assert decided > subject.decided * total


def check_reference(subject: Subject, dtype: str) -> None:
    """The reference is what the operator's oracle gives in float64."""
    for case in posed(subject, dtype):
        exact = case.problem.tensors.values()
        # An oracle without special care: overflow of float64 is no reference.
        made = subject.operator.oracle(*(t[0] for t in exact), **case.problem.scalars)
        results = made if isinstance(made, tuple) else (made,)
        for wanted, acceptance in zip(results, case.accepted.values(), strict=True):
            oracle, got = wanted.unsqueeze(0).double(), acceptance.reference
            judged = ~acceptance.undecided & ~acceptance.ambiguous
            judged &= (got.abs() < 2.0**900) | ~torch.isfinite(got)
            assert torch.equal(oracle.isnan() & judged, got.isnan() & judged), str(case)
            special = judged & (oracle.isinf() | got.isinf())
            assert torch.equal(oracle[special], got[special]), str(case)
            both = torch.isfinite(oracle) & torch.isfinite(got) & judged
            # Cancelling sums agree to float64's own rounding of their terms.
            scale = torch.maximum(acceptance.high - acceptance.low, oracle.abs())
            near = (oracle - got).abs() <= 1e-10 * scale
            assert bool(near[both].all()), str(case)


# --- what must be refused -----------------------------------------------------


def check_constant_impostors(subject: Subject, dtype: str) -> None:
    """Zeros, NaN, a uniform value, a copy, old memory and shuffled rows fail."""
    for family in subject.families:
        case = pose_case(subject, case_of(subject, dtype, family, subject.ordinary))
        honest = case.run(subject.honest)
        assert not case.refuses(honest), str(case)
        first = next(iter(case.values.values()))
        size = first.shape[-1]
        before = case_of(subject, dtype, "randn", subject.ordinary, seed=77)
        impostors = {
            "zeros": {n: torch.zeros_like(y) for n, y in honest.items()},
            "uniform": {n: torch.full_like(y, 1 / size) for n, y in honest.items()},
            "identity": {n: _first_of(first, y) for n, y in honest.items()},
            "stale": pose_case(subject, before).run(subject.honest),
            "shuffled": {n: y.flatten().roll(1).view_as(y) for n, y in honest.items()},
        }
        for label, results in impostors.items():
            refused = case.refuses(results)
            assert refused or label in subject.right, f"{label} on {case}"
        for name, y in honest.items():
            if y.is_floating_point():
                undefined = {**honest, name: torch.full_like(y, float("nan"))}
                assert case.refuses(undefined), f"NaN in {name} on {case}"


def _first_of(x: Tensor, y: Tensor) -> Tensor:
    repeats = -(-y.numel() // max(1, x.numel()))
    return x.flatten().repeat(repeats)[: y.numel()].reshape(y.shape).to(y.dtype)


def check_one_value_beyond(subject: Subject, dtype: str) -> None:
    """One element beyond either end by one value of the format is one miss."""
    tried = 0
    for case in posed(subject, dtype):
        for acceptance in case.accepted.values():
            y = round_to(acceptance.reference, acceptance.output)
            made = compare(y, acceptance)
            assert not made.missed.any(), str(case)
            tried += _beyond(case, acceptance, y, made)
    assert tried > 25


def _beyond(case: Posed, a: Acceptance, y: Tensor, made: Comparison) -> int:
    judged = (a.classes == FINITE) & ~a.ambiguous & ~a.undecided
    tried = 0
    for end, mode, towards in (
        (made.high, "ru", float("inf")), (made.low, "rd", float("-inf")),
    ):  # fmt: skip
        bound = torch.full_like(end, towards)
        beyond = round_to(torch.nextafter(end, bound), a.output, mode)
        # Zero is admitted for what may be flushed.
        usable = judged & torch.isfinite(beyond) & torch.isfinite(end)
        usable &= (beyond != 0) | (not a.flush)
        if not bool(usable.any()):
            continue
        at = tuple(usable.nonzero()[0].tolist())
        wrong, inside = y.clone(), y.clone()
        wrong[at] = beyond[at]
        if y[at] != end[at]:  # the sign of a zero may count
            inside[at] = end[at]
        found = compare(wrong, a)
        assert found.missed.nonzero().tolist() == [list(at)], str(case)
        assert int(found.outcomes[at]) == Outcome.VALUE
        assert not compare(inside, a).missed.any(), str(case)
        if a.output.has_inf:
            wrong[at] = float("nan")
            found = compare(wrong, a)
            assert int(found.outcomes[at]) == Outcome.NAN_UNEXPECTED, str(case)
        tried += 1
    return tried


def check_missing_specials(subject: Subject, dtype: str) -> None:
    """One NaN missing, and one infinity of the wrong sign, is one miss."""
    nans = infinities = 0
    for case in posed(subject, dtype):
        for a in case.accepted.values():
            y = round_to(a.reference, a.output)
            judged = ~a.ambiguous & ~a.undecided
            judged &= a.classes == classes_of(a.reference)
            for at in (judged & torch.isnan(y)).nonzero()[:1].tolist():
                for value in (0.0, float("inf"), float("-inf"), 1.0):
                    _refuse_one(case, a, y, at, value)
                nans += 1
            for at in (judged & torch.isinf(a.reference)).nonzero()[:1].tolist():
                opposite = -float(y[tuple(at)])
                for value in (opposite, 0.0, a.output.max_finite):
                    _refuse_one(case, a, y, at, value)
                infinities += 1
    assert (nans > 0) == subject.nans
    assert (infinities > 0) == subject.infinities


def _refuse_one(
    case: Posed, a: Acceptance, y: Tensor, at: list[int], value: float
) -> None:
    wrong = y.clone()
    wrong[tuple(at)] = value
    made = compare(wrong, a)
    assert made.missed.nonzero().tolist() == [at], str(case)


# --- the same tests for every table -------------------------------------------


def is_refused(
    subject: Subject,
    dtype: str,
    wrong: Algorithm,
    family: str,
    setup: Setup,
    **claims: Any,
) -> bool:
    """Whether an algorithm is refused on a family with some seed."""
    made = (case_of(subject, dtype, family, setup, seed=seed) for seed in range(1, 5))
    posed_cases = (pose_case(subject, case, **claims) for case in made)
    return any(case.refuses(case.run(wrong)) for case in posed_cases)
