"""Evidence: what a case asks, what its probes left, and what is known of it besides.

Nothing here computes: `reading` draws conclusions from evidence, and `evaluation`
gathers it. Importing this imports no torch.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kfuzz.contracts.language import Changed, Probe
from kfuzz.core.declaration import Declaration
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import Kind, in_digits

if TYPE_CHECKING:
    from kfuzz.contracts.operator import Operator
    from kfuzz.contracts.oracle import NonFinite, OutOfBounds
    from kfuzz.numerics.acceptance import Acceptance, Problem
    from kfuzz.numerics.run import Run

T = TypeVar("T")

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


@dataclass(frozen=True, eq=False)
class Evidence:
    """One case as it is judged.

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
        out_of_bounds: the first index that is out of bounds, None if there is none.
        nonfinite: the first NaN or infinity of the data where these do not propagate,
            None if there is none.
        refused: what the oracle raised on a case outside its domain, None if nothing.
        others: acceptance of the probes that run on other data than the case's.
        found: what else is known, by type: `Diagnosis`, `Explanation` and what
            single probes found. A new probe brings a type of its own.
        concluded: what `reading` has made of it, so that it is made once.
    """

    case: Case
    operator: "Operator"
    declaration: Declaration
    problem: "Problem | None"
    acceptance: "Mapping[str, Acceptance] | None"
    runs: "Mapping[Probe, Run]" = field(default_factory=dict)
    explicit: frozenset[str] = frozenset()
    lacking: tuple[str, ...] = ()
    out_of_bounds: "OutOfBounds | None" = None
    nonfinite: "NonFinite | None" = None
    refused: Exception | None = None
    others: "Mapping[Probe, Mapping[str, Acceptance]]" = field(default_factory=dict)
    found: Mapping[type, Any] = field(default_factory=dict)
    concluded: dict[object, Any] = field(default_factory=dict, init=False, repr=False)

    @property
    def base(self) -> "Run":
        """The base run."""
        return self.runs[Probe.BASE]

    @property
    def outside(self) -> bool:
        """Whether no value is promised for an index or a number that the case holds."""
        policy = self.declaration.nonfinite
        beyond = self.nonfinite is not None and policy in UNPROMISED
        return self.beyond_bounds or beyond

    @property
    def refusable(self) -> bool:
        """Whether the data hold what the kernel declares to refuse."""
        return self.nonfinite is not None and self.declaration.nonfinite == "raise"

    @property
    def beyond_bounds(self) -> bool:
        """Whether an index is out of bounds and no value is promised for it."""
        policy = self.declaration.out_of_bounds
        return self.out_of_bounds is not None and policy in UNPROMISED

    def of(self, kind: type[T]) -> T:
        """Return what is known of one kind; where nothing is, its empty record."""
        made: T | None = self.found.get(kind)
        return kind() if made is None else made

    def knowing(self, *records: object) -> "Evidence":
        """Return the evidence with these records besides, each by its type."""
        return replace(self, found={**self.found, **{type(r): r for r in records}})

    def running(
        self,
        runs: "Mapping[Probe, Run]",
        others: "Mapping[Probe, Mapping[str, Acceptance]] | None" = None,
    ) -> "Evidence":
        """Return the evidence with more runs, and what is admitted of other data."""
        return replace(
            self,
            runs={**self.runs, **runs},
            others={**self.others, **(others or {})},
        )


def element(output: str, index: tuple[int, ...]) -> str:
    """Return the name of an element of a result, e.g. "y[0, 2]"."""
    return f"{output}[{', '.join(map(str, index))}]"


@dataclass(frozen=True)
class Difference:
    """The first element of a result in which two calls left other bits.

    Attributes:
        output: name of the result.
        index: logical index.
        one: what the first call left.
        other: what the other one left.
        elements: how many elements of the result differ.
    """

    output: str
    index: tuple[int, ...]
    one: float
    other: float
    elements: int


@dataclass(frozen=True)
class Miss:
    """The worst element of one output that lies outside its acceptance.

    Attributes:
        output: name of the output.
        kind: how it misses.
        index: logical index.
        got: value stored by the kernel.
        expected: reference value; None where a relation between the results, not
            one value, is what it misses.
        low: least allowed stored value; None likewise.
        high: greatest allowed stored value; None likewise.
        ratio: |error| / tolerance, None where the result must be exact.
        elements: number of missing elements of this output.
        of: number of elements of this output.
        promise: what the relation asks for, in words.
        near: as of `Failure`.
    """

    output: str
    kind: Kind
    index: tuple[int, ...]
    got: float
    expected: float | None
    low: float | None
    high: float | None
    ratio: float | None
    elements: int
    of: int
    promise: str = ""
    near: bool = False

    def describe(self) -> str:
        """Return one line: where, the actual value, the expected one, how many."""
        place = element(self.output, self.index)
        if self.expected is None or self.low is None or self.high is None:
            text = f"{place} = {self.got:.9g}, expected: {self.promise}"
        elif self.kind is Kind.VALUE:
            got, low, high = in_digits(9, self.got, self.low, self.high)
            exact = self.low == self.high
            wanted = f"expected {low}" if exact else f"allowed [{low}, {high}]"
            far = f", {self.ratio:.3g} x tolerance" if self.ratio else ""
            text = f"{place} = {got}, {wanted}{far}"
        else:
            # Beside what is not finite the interval says nothing.
            held = math.isfinite(self.expected) and self.low == self.high
            only = self.low if held else self.expected
            text = f"{place} = {self.got:.9g}, expected {only:.9g}"
        if self.elements > 1:
            text += f" ({self.elements} of {self.of} elements wrong)"
        return text

    @property
    def excess(self) -> float | None:
        """|error| over the distance from the reference to the allowed end.

        Above 1 for every numerical miss; None where the result must be exact.
        """
        got, expected = self.got, self.expected
        if expected is None or self.low is None or self.high is None:
            return None
        room = self.high - expected if got > expected else expected - self.low
        if not (math.isfinite(got) and math.isfinite(room) and room > 0):
            return None
        return abs(got - expected) / room


IF_CONTIGUOUS: Final = "with contiguous tensors"


@dataclass(frozen=True)
class Diagnosis:
    """What a miss depends on; None throughout where that was not probed.

    Attributes:
        gone: where the failure vanishes, and is back, in words: at every friendly
            shape, and beside one; or with contiguous tensors; "" if it does not.
        ordinary: whether the kernel conforms on normal data of the case's own shapes
            and layouts.
        contiguous: whether the kernel passes on the same values and shapes,
            contiguous; None if the case is contiguous.
        recentred: whether the kernel passes on the recentred values, and on normal
            ones; None where mean and magnitude are ordinary.
        moderate: whether NaN or infinities of finite inputs are gone with numbers of
            ordinary magnitude; None where they are.
        subnormal: "gone" if a miss vanishes without subnormal arguments and with
            normal numbers in their places, "persists" if normal numbers show it
            too, None if neither is known or no argument is subnormal.
    """

    gone: str = ""
    ordinary: bool | None = None
    contiguous: bool | None = None
    recentred: bool | None = None
    subnormal: str | None = None
    moderate: bool | None = None

    @property
    def shape_bound(self) -> bool:
        """Whether the shape or layout is at fault, not the arithmetic.

        The failure vanishes at friendly shapes, and at the case's own shape
        ordinary data fails too.
        """
        return bool(self.gone) and not self.ordinary


@dataclass(frozen=True)
class Explanation:
    """Which other declarations accept what misses.

    Attributes:
        algorithm: one that the operator lets a kernel declare and whose acceptance
            holds every result; "" if none does.
        narrower: the narrower arithmetic whose acceptance holds every miss; "" if none
            does.
        flushes: whether a kernel that flushes subnormal numbers may give what misses.
        breaks_chain: whether the worst miss lies outside the acceptance of the unfused
            chain too, in which each intermediate result is stored.
    """

    algorithm: str = ""
    narrower: str = ""
    flushes: bool = False
    breaks_chain: bool = False


class Configurations(dict[str, bool]):
    """Whether a case that misses conforms under each other configuration, by words."""


@dataclass(frozen=True)
class Rows:
    """What a kernel left on some rows of a case.

    Attributes:
        rows: which rows of the case, in the order in which they were given.
        axes: per output the axis that they lie along.
        run: what the call left.
    """

    rows: tuple[int, ...]
    axes: Mapping[str, int]
    run: "Run"


class Batches(tuple[Rows, ...]):
    """Calls on the whole case, twice, then on some of its rows; () if not probed."""

    __slots__ = ()


class Scaled(tuple[Changed, ...]):
    """What scaled arguments gave."""

    __slots__ = ()


class Permuted(tuple[Changed, ...]):
    """What other orders of the reduced dimension gave."""

    __slots__ = ()


class Shorter(str):
    """How the shorter calls differ from the case, in words; "" if there are none."""

    __slots__ = ()


@dataclass(frozen=True)
class Mismatch:
    """A launch that does not build for a GPU, or not within its limits.

    Attributes:
        target: the GPU.
        kernel: name of the Triton function.
        file: in which it is defined, without its folder.
        line: of its definition.
        why: what the compiler says, or the limit and what is needed.
        given: constants and options of the launch, in words.
    """

    target: str
    kernel: str
    file: str
    line: int
    why: str
    given: str


@dataclass(frozen=True)
class Builds:
    """What came of compiling a case's launches for GPUs that are not here.

    Attributes:
        reason: why some or all are not known to build, "" where all are known.
        built: how often a launch was compiled for a GPU, or found not to be.
        mismatches: the first of each GPU.
    """

    reason: str = ""
    built: int = 0
    mismatches: tuple[Mismatch, ...] = ()


@dataclass(frozen=True)
class OpCheck:
    """What opcheck says of an operator on one case.

    Attributes:
        mutated: argument that it writes to and its schema does not say so, or "".
        aliased: which bytes two of its tensors share though the schema does not say
            so, in words, or "".
        fake: how the result of its fake implementation differs, or "".
        notes: what could not be checked, one line each.
    """

    mutated: str = ""
    aliased: str = ""
    fake: str = ""
    notes: tuple[str, ...] = ()
