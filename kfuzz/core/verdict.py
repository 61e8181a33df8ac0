"""Verdicts, kinds of failure and signatures: the closed vocabularies of a judgement."""

import base64
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import ClassVar, Final

from kfuzz.core.recipe import Case, TensorSpec

# Names of results: "y"; of a list "parts[]" of tensors "parts[0]", "parts[1]", ….
#
# Lists may hold lists: "state[0][1]". Python takes these names for expressions too.

LIST: Final = "[]"
"""What follows the name of an output that is a list of tensors."""


class OtherForm(Exception):
    """Results are not nested as they should be.

    Attributes:
        what: how they are.
        name: the list concerned; "" for all of them.
    """

    def __init__(self, what: str, name: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.name = name


def output_of(name: str) -> str:
    """Return the name of the output that a result belongs to, without brackets."""
    return name.partition("[")[0]


def path_of(name: str) -> list[int]:
    """Return at which places of a list, and of the lists in it, a result is."""
    return [int(place) for place in re.findall(r"\[([0-9]+)\]", name)]


def outputs_of(names: Collection[str]) -> list[str]:
    """Return the outputs that results belong to, as operators declare them."""
    return list(dict.fromkeys(output_of(n) + LIST * ("[" in n) for n in names))


def named(returned: object, outputs: Sequence[str]) -> dict[str, object]:
    """Return what a reference returned by name.

    Args:
        returned: one result, or a tuple of several.
        outputs: as the operator declares them: "y", "parts[]".

    Raises:
        OtherForm: if it is not one result for each output.
        ValueError: if a list is empty: how many results there are says none of them.
    """
    items = _items(returned, outputs)
    if len(items) != len(outputs):
        what = f"{len(items)} result{'s' * (len(items) != 1)}"
        raise OtherForm(f"{what} for the outputs {', '.join(outputs)}")
    made: dict[str, object] = {}
    for output, item in zip(outputs, items, strict=True):
        is_list = output.endswith(LIST)
        if is_list and not isinstance(item, tuple | list):
            raise OtherForm(f"{described(item)} for the list {output}")
        made.update(_leaves(output_of(output), item) if is_list else [(output, item)])
    return made


def in_place(returned: object, names: Collection[str]) -> dict[str, object]:
    """Return what a kernel returned by the names of the results that it should have.

    Raises:
        OtherForm: if it is nested otherwise; with the output, "" for all of them.
    """
    outputs = outputs_of(names)
    items = _items(returned, outputs)
    if len(outputs) == 1 != len(items):
        items = (returned,)
    if len(items) != len(outputs) or not isinstance(items, tuple | list):
        what = f"returns {described(returned)}, expected {len(outputs)} tensors"
        raise OtherForm(what)
    made: dict[str, object] = {}
    for output, item in zip(outputs, items, strict=True):
        paths = [n for n in names if output_of(n) == output_of(output)]
        made.update(_fitted(output_of(output), item, paths))
    return made


def described(value: object) -> str:
    """Return of which type a result is, and how long."""
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return type(value).__name__


def _items(returned: object, outputs: Sequence[str]) -> Sequence[object]:
    """Return what was returned in a row, a list that is the only output as one."""
    alone = len(outputs) == 1 and outputs[0].endswith(LIST)
    several = isinstance(returned, tuple | list) and not alone
    return returned if several else (returned,)  # type: ignore[return-value]


def _leaves(name: str, value: object) -> Iterator[tuple[str, object]]:
    """Yield what a list holds."""
    if not isinstance(value, tuple | list):
        yield name, value
        return
    if not value:
        raise ValueError(f"{name} is an empty list")
    for i, item in enumerate(value):
        yield from _leaves(f"{name}[{i}]", item)


def _fitted(
    name: str, value: object, names: Collection[str]
) -> Iterator[tuple[str, object]]:
    """Yield what a result holds that should have these names.

    Raises:
        OtherForm: if it does not.
    """
    if name in names:  # the only one
        yield name, value
        return
    items: dict[str, list[str]] = {}
    for each in names:
        items.setdefault(each[: each.index("]", len(name)) + 1], []).append(each)
    if not isinstance(value, tuple | list) or len(value) != len(items):
        wanted = f"{len(items)} tensor{'s' * (len(items) != 1)}"
        raise OtherForm(f"{name} is {described(value)}, expected {wanted}", name)
    for (item, within), part in zip(items.items(), value, strict=True):
        yield from _fitted(item, part, within)


# |error| / tolerance over an output, coarse enough to be stored with a finding.

MAX_CELLS: Final = 64
"""Cells along one side at most; a longer side has several elements in a cell."""

NEAR: Final = 16
"""Elements along one side, at most, that are kept around the worst one."""

UNDECIDED: Final = 0
EXACT: Final = 1
WITHIN: Final = 128
"""The code of a ratio of 1; greater codes miss."""
UNBOUNDED: Final = 255
"""A miss without a ratio: of class (NaN, infinity), or where nothing but one value
is admitted."""
GREATEST: Final = UNBOUNDED - 1
"""The code of the greatest ratio, 2^31, and of all beyond."""
STEPS: Final = 4
"""Codes for a doubling of the ratio: neighbours differ by 19 %."""


def in_digits(digits: int, got: float, *others: float) -> list[str]:
    """Return numbers in so many digits, in all of them where `got` looks like another.

    Integers of 64 bits differ in what is cut.
    """
    texts = [f"{v:.{digits}g}" for v in (got, *others)]
    pairs = zip(texts[1:], others, strict=True)
    if any(text == texts[0] and v != got for text, v in pairs):
        return [f"{v:.17g}" for v in (got, *others)]
    return texts


@dataclass(frozen=True)
class ErrorMap:
    """How far each part of one output lies from its reference.

    The output is seen as a matrix: its last axis across, all others down. A cell
    shows the worst of its elements.

    Attributes:
        output: name of the output.
        shape: its shape.
        rows: cells down.
        columns: cells across.
        cells: a code for each cell in C order, one byte each, in base64: 0 where
            nothing could be decided, 1 where the error is 0, 255 for a miss that has no
            ratio, else 128 + 4 log2(|error| / tolerance), above 128 for a miss and at
            most 128 for what is admitted.
        worst: row and column of the worst element; () where the rest was not kept.
        actual: the elements around it, at most `NEAR` by `NEAR` in C order, in nine
            digits, or as many as differ.
        expected: the reference values there.
        near: their codes, as those in `cells`.
    """

    UNSAID: ClassVar = ("worst", "actual", "expected", "near")

    output: str
    shape: tuple[int, ...]
    rows: int
    columns: int
    cells: str
    worst: tuple[int, ...] = ()
    actual: tuple[float, ...] = ()
    expected: tuple[float, ...] = ()
    near: str = ""

    @property
    def matrix(self) -> tuple[int, int]:
        """Rows and columns of the output."""
        if not self.shape:
            return 1, 1
        return math.prod(self.shape[:-1]), self.shape[-1]

    @property
    def block(self) -> tuple[int, int]:
        """Elements down and across in one cell; those at the ends may have fewer."""
        rows, columns = self.matrix
        return block_of(rows), block_of(columns)

    @property
    def codes(self) -> bytes:
        """The codes, row by row."""
        return _codes(self.cells)

    @property
    def near_codes(self) -> bytes:
        """Those of the elements around the worst one."""
        return _codes(self.near)

    @property
    def around(self) -> tuple[range, range]:
        """Rows and columns of the elements that are kept around the worst one."""
        if not self.worst:
            return range(0), range(0)
        (rows, columns), (row, column) = self.matrix, self.worst
        return around(rows, row), around(columns, column)

    def problem(self) -> str | None:
        """Return why this map is impossible, or None."""
        if min(self.shape, default=1) < 1:
            return f"a map of an output of shape {self.shape}"
        cells = tuple(-(-n // block_of(n)) for n in self.matrix)
        if (self.rows, self.columns) != cells:
            return f"{self.rows} x {self.columns} cells for an output of {self.shape}"
        try:
            codes, near = _codes(self.cells), _codes(self.near)
        except ValueError:
            return "cells are not base64"
        if len(codes) != self.rows * self.columns:
            return f"{len(codes)} codes for {self.rows} x {self.columns} cells"
        fits = all(0 <= i < n for i, n in zip(self.worst, self.matrix, strict=False))
        if len(self.worst) not in (0, 2) or not fits:
            return f"a worst element {self.worst} of {self.matrix}"
        kept = len(near), len(self.actual), len(self.expected)
        wanted = math.prod(map(len, self.around))
        if set(kept) != {wanted}:
            return f"{kept} codes and numbers around the worst element, not {wanted}"
        return None


def block_of(elements: int) -> int:
    """Return how many elements of a side lie in one cell."""
    return max(-(-elements // MAX_CELLS), 1)


def around(elements: int, worst: int) -> range:
    """Return which elements of a side are kept, the worst one in their middle."""
    first = max(min(worst - NEAR // 2, elements - NEAR), 0)
    return range(first, min(first + NEAR, elements))


def _codes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def ratio_of(code: int) -> float:
    """Return |error| / tolerance of a code; NaN where it has none."""
    if code in (UNDECIDED, UNBOUNDED):
        return math.nan
    return 0.0 if code == EXACT else 2.0 ** ((code - WITHIN) / STEPS)


class Verdict(StrEnum):
    """What is known about a contract; never folded into one another."""

    VIOLATES = "violates"
    ERROR = "error"
    CONFORMS = "conforms"
    UNDER_SPECIFIED = "under_specified"
    NOT_APPLICABLE = "not_applicable"


@dataclass(frozen=True)
class Compared:
    """What of a kernel's results was compared with the oracle's.

    Attributes:
        results: whether a number of a result was judged, by its name; empty where no
            class that compares is asked for.
        decided: whether a class that is asked for was decided, if one compares, by it.
    """

    results: dict[str, bool] = field(default_factory=dict)
    decided: bool = False

    @property
    def lacking(self) -> str:
        """Which results have no number that was judged, "" if none, or nothing was.

        Other results do not stand for them, nor does NaN that stays NaN.
        """
        names = [name for name, judged in self.results.items() if not judged]
        if not names or not (self.decided or len(names) < len(self.results)):
            return ""
        return f"no element of {', '.join(names)} could be judged"


@dataclass(frozen=True)
class Tried:
    """How much a kernel was tried, in all or in one class of sizes.

    Attributes:
        cases: cases that decided a contract, items of batches included.
        structures: kinds of arguments among them, distinguished by their shapes,
            strides, dtypes and scalars.
        once: of these those that were drawn only once.
        seconds: what drawing and judging took, these cases and others, by all workers.
        above: of a class, so many elements no case's largest tensor has, but more.
        most: of a class, the most elements that the largest tensor of its cases has;
            None for the last one, which has no limit.
        lacks: why a class has no case; "" where it has one.
        dtype: of the data of these cases; "" for all.
        worst: greatest |error| / tolerance, failing cases included; infinity for a
            failure that has none.
    """

    UNSAID: ClassVar = ("seconds", "above", "most", "lacks", "dtype", "worst")
    # Fewer leave a share of failing cases of 3 % open (at 95 %, the rule of three).
    LEAST_CASES: ClassVar[int] = 100
    # A fault mostly lies in a few of the shapes and layouts that there are.
    LEAST_STRUCTURES: ClassVar[int] = 20

    cases: int = 0
    structures: int = 0
    once: int = 0
    seconds: float = 0.0
    above: int = 0
    most: int | None = None
    lacks: str = ""
    dtype: str = ""
    worst: float = 0.0

    @property
    def few_cases(self) -> bool:
        """Whether there were too few cases."""
        return self.cases < self.LEAST_CASES

    @property
    def few_structures(self) -> bool:
        """Whether there were too few structures, and more to be had.

        Where each was drawn again a new one is not to be expected (Good, Biometrika 40,
        1953): a kernel may be declared for one shape.
        """
        return self.structures < self.LEAST_STRUCTURES and self.once > 0

    @property
    def evidence(self) -> str:
        """Whether the word `conforms` rests on "enough", or on "thin" evidence."""
        return "thin" if self.few_cases or self.few_structures else "enough"


ILLEGAL_ADDRESS: Final = "illegal_address"
"""The detail of a device fault that reading or writing unmapped memory is."""


class Kind(StrEnum):
    """How a failure shows; part of the signature and kept by the reducer.

    `raises` carries the exception's type in `Failure.detail`, `foreign_operator` the
    operator's name, `does_not_build` the GPU's, `unchecked_launch` the runtime's name
    of the error.
    """

    HANG = "hang"
    CRASH = "crash"
    DEVICE_FAULT = "device_fault"
    UNCHECKED_LAUNCH = "unchecked_launch"
    RAISES = "raises"
    READ_OUTSIDE = "read_outside"
    WRITE_OUTSIDE = "write_outside"
    WRONG_TYPE = "wrong_type"
    WRONG_SHAPE = "wrong_shape"
    WRONG_DTYPE = "wrong_dtype"
    WRONG_DEVICE = "wrong_device"
    FALSE_SCHEMA = "false_schema"
    FALSE_FAKE = "false_fake"
    INPUT_MODIFIED = "input_modified"
    ALIASES_INPUT = "aliases_input"
    ALIASES_OUTPUT = "aliases_output"
    RACE = "race"
    NONDETERMINISTIC = "nondeterministic"
    STALE_RESULT = "stale_result"
    SEED_DEPENDENT = "seed_dependent"
    BATCH_DEPENDENT = "batch_dependent"
    OVERLAP_DEPENDENT = "overlap_dependent"
    TUNING_DEPENDENT = "tuning_dependent"
    SCALE_DEPENDENT = "scale_dependent"
    ORDER_DEPENDENT = "order_dependent"
    UNWRITTEN = "unwritten"
    FOREIGN_OPERATOR = "foreign_operator"
    DOES_NOT_BUILD = "does_not_build"
    INDEX_ACCEPTED = "index_accepted"
    NONFINITE_ACCEPTED = "nonfinite_accepted"
    NAN_MISSING = "nan_missing"
    NAN_UNEXPECTED = "nan_unexpected"
    INF_MISSING = "inf_missing"
    INF_UNEXPECTED = "inf_unexpected"
    INF_SIGN = "inf_sign"
    VALUE = "value"


MASK_KINDS: Final = frozenset(
    {
        Kind.NAN_MISSING,
        Kind.NAN_UNEXPECTED,
        Kind.INF_MISSING,
        Kind.INF_UNEXPECTED,
        Kind.INF_SIGN,
    }
)
"""How NaN or infinities in a result are wrong."""
VALUE_KINDS: Final = MASK_KINDS | {Kind.VALUE}
"""How a result is wrong whose metadata are right."""


class State(StrEnum):
    """Where a finding stands in its life.

    `witnessed` is what was recorded once, inputs and results, and need not show again.
    """

    NEW = "new"
    CONFIRMED = "confirmed"
    WITNESSED = "witnessed"
    FLAKY = "flaky"
    UNREPRODUCED = "unreproduced"
    KNOWN = "known"
    FIXED = "fixed"
    REGRESSED = "regressed"


ATTRIBUTED: Final = frozenset(
    {State.CONFIRMED, State.WITNESSED, State.REGRESSED, State.KNOWN}
)
"""States of findings that are reported as violations."""
FAILING: Final = ATTRIBUTED - {State.KNOWN}
"""Those of them that fail a run, whether or not known ones are to."""
FAILS_RUN: Final = FAILING | {State.NEW}
"""Those with which a run is no success: there was no time to confirm new ones."""
UNCONFIRMED: Final = frozenset({State.NEW, State.FLAKY, State.UNREPRODUCED})
"""States of findings that were seen and not confirmed."""


class ReplayOutcome(StrEnum):
    """What became of a replayed finding."""

    FIXED = "FIXED"
    FAILS = "FAILS"
    FLAKY = "FLAKY"
    ERROR = "ERROR"


class Feature(StrEnum):
    """What a failing input needs: the closed list that buckets are made of."""

    FLOAT64 = "float64"
    FLOAT32 = "float32"
    SIXTEEN_BIT = "16-bit"
    EIGHT_BIT = "8-bit"
    NON_CONTIGUOUS = "non-contiguous"
    MISALIGNED = "misaligned"
    TAIL = "tail"
    ZERO_SIZE = "zero-size"
    BEYOND_TILE = "beyond-tile"
    NAN = "nan"
    INF = "inf"
    SUBNORMAL = "subnormal"
    MAGNITUDE = "magnitude"


_SUMMARIES: Final = {
    Kind.HANG: "does not return",
    Kind.CRASH: "crashes with {detail}",
    Kind.DEVICE_FAULT: "device fault {detail}",
    Kind.UNCHECKED_LAUNCH: "unreported launch failure {detail}",
    Kind.RAISES: "raises {detail}",
    Kind.READ_OUTSIDE: "out-of-bounds read of {output}",
    Kind.WRITE_OUTSIDE: "out-of-bounds write to {output}",
    Kind.WRONG_TYPE: "wrong type of {output}",
    Kind.WRONG_SHAPE: "wrong shape of {output}",
    Kind.WRONG_DTYPE: "wrong dtype of {output}",
    Kind.WRONG_DEVICE: "wrong device of {output}",
    Kind.FALSE_SCHEMA: "false operator schema",
    Kind.FALSE_FAKE: "false fake implementation",
    Kind.INPUT_MODIFIED: "modified input {output}",
    Kind.ALIASES_INPUT: "result shares memory with an input",
    Kind.ALIASES_OUTPUT: "result shares memory with another result",
    Kind.RACE: "data race in {output}",
    Kind.NONDETERMINISTIC: "nondeterministic value in {output}",
    Kind.STALE_RESULT: "stale value in {output}",
    Kind.SEED_DEPENDENT: "value in {output} depends on the random seed",
    Kind.BATCH_DEPENDENT: "value in {output} depends on the batch",
    Kind.OVERLAP_DEPENDENT: "wrong result of overlapping calls",
    Kind.TUNING_DEPENDENT: "wrong value in {output} around autotuning",
    Kind.SCALE_DEPENDENT: "wrong value in {output} after scaling the input",
    Kind.ORDER_DEPENDENT: "wrong value in {output} after reordering the input",
    Kind.UNWRITTEN: "uninitialized memory in {output}",
    Kind.FOREIGN_OPERATOR: "computed by torch's own {detail}",
    Kind.DOES_NOT_BUILD: "does not build for {detail}",
    Kind.INDEX_ACCEPTED: "out-of-bounds index accepted",
    Kind.NONFINITE_ACCEPTED: "NaN or infinity accepted",
    Kind.NAN_MISSING: "missing NaN in {output}",
    Kind.NAN_UNEXPECTED: "unexpected NaN in {output}",
    Kind.INF_MISSING: "missing infinity in {output}",
    Kind.INF_UNEXPECTED: "unexpected infinity in {output}",
    Kind.INF_SIGN: "infinity of the wrong sign in {output}",
    Kind.VALUE: "wrong value in {output}",
}


@dataclass(frozen=True)
class Signature:
    """What a finding is an instance of; the reducer keeps it.

    Attributes:
        kernel: the kernel's bound name.
        contract: the contract class, e.g. "C-EXC-01".
        kind: how it fails.
        output: the output concerned, "" where none is.
        detail: for `raises` the exception's type name, for `crash` the signal, for
            `device_fault` the fault, such as "illegal_address", for
            `foreign_operator` the operator's name, for `scale_dependent` "bitwise"
            where the results are accepted.
    """

    kernel: str
    contract: str
    kind: Kind
    output: str = ""
    detail: str = ""

    @property
    def summary(self) -> str:
        """How it fails in a few words: "wrong value in y"."""
        words = _SUMMARIES[self.kind]
        for name, text in (("output", self.output), ("detail", self.detail)):
            if not text:
                words = re.sub(rf"( (in|of|to|with))? {{{name}}}", "", words)
            words = words.replace(f"{{{name}}}", text)
        return words

    @property
    def symptom(self) -> tuple[str, Kind, str, str]:
        """The part that shows without attribution: all but the contract."""
        return self.kernel, self.kind, self.output, self.detail


@dataclass(frozen=True)
class Access:
    """One place in a kernel that touches memory it should not, on one case.

    Attributes:
        access: "load", "store" or "atomic"; "access" where that is unknown.
        argument: parameter whose memory is concerned, "" for another memory.
        memory: that memory in words, e.g. "x" or "its own float32[4, 4]".
        where: "before" or "after" its elements, "slack" between them,
            "unwritten" (an element that nothing wrote before), "race" (an
            element that another program accesses too, and one of them writes),
            "elsewhere" (no memory that the launch was given), or "hint" (a promise to
            the compiler, in `access`, that does not hold, of the value in `offset`).
        distance: elements to the nearest legal one: 1 is one past the end; 0
            where it is an element itself.
        offset: elements from the first element to the one touched, signed.
        count: elements touched there, over all programs.
        program: program id of the first such access; None outside a launch.
        other: program id of the other party of a race, else None.
        line: source of the access, "file.py:41"; "" if unknown.
        other_access: what the other party of a race did, "" where there is none.
        other_line: where in the source, "" if unknown.
    """

    access: str
    argument: str
    memory: str
    where: str
    distance: int = 0
    offset: int = 0
    count: int = 1
    program: tuple[int, int, int] | None = None
    other: tuple[int, int, int] | None = None
    line: str = ""
    other_access: str = ""
    other_line: str = ""


@dataclass(frozen=True)
class Allocation:
    """Memory that a kernel allocated itself.

    Attributes:
        memory: what it is, in words, e.g. "its own float32[4, 4]".
        elements: its size.
        itemsize: bytes per element.
    """

    memory: str
    elements: int
    itemsize: int


@dataclass(frozen=True)
class Failure:
    """One violated promise on one case.

    Attributes:
        contract: the contract class that the failure breaks.
        kind: how it shows.
        message: one line for people.
        output: name of the output concerned, "" where none is.
        detail: exception type, signal or operator name, part of the signature.
        index: logical index of the worst element, where there is one.
        got: the kernel's value there.
        expected: the reference value there.
        low: least allowed value there, after rounding.
        high: greatest allowed value there, after rounding.
        ratio: |error| / tolerance there; None where the tolerance is 0.
        elements: how many output elements fail.
        trace: the kernel's traceback or a child's last output, if any.
        accesses: the memory accesses at fault, where they are known.
        place: position of the output among several results, None otherwise.
        errors: how far all of that output lies from the reference, where some of it
            misses and it was asked for.
        cause: what distinguishes the class from its neighbours, part of the message:
            "passes at power-of-two shapes"; "" where nothing more is known.
        near: whether every element lies within four times the derived bound: so far may
            a right kernel be that takes none of the operator's forms.
    """

    UNSAID: ClassVar = ("errors", "near")

    contract: str
    kind: Kind
    message: str
    output: str = ""
    detail: str = ""
    index: tuple[int, ...] | None = None
    got: float | None = None
    expected: float | None = None
    low: float | None = None
    high: float | None = None
    ratio: float | None = None
    elements: int = 0
    trace: str = ""
    accesses: tuple[Access, ...] = ()
    place: int | None = None
    errors: ErrorMap | None = None
    cause: str = ""
    near: bool = False

    def signature(self, kernel: str) -> Signature:
        """Return the signature of this failure for the named kernel.

        Of a list all results count as one.
        """
        output = output_of(self.output)
        return Signature(kernel, self.contract, self.kind, output, self.detail)


@dataclass(frozen=True)
class Suspicion:
    """A wrong result of a call after others, which one call in a fresh process settles.

    Attributes:
        case: that call's, with all values explicit.
        failure: what is reported if the case by itself conforms.
    """

    case: Case
    failure: Failure


@dataclass(frozen=True)
class CaseReport:
    """What one judged case taught, sent from the child to the campaign.

    Attributes:
        verdicts: per contract class; classes that say nothing here are absent.
        failure: the violated promise, attributed; None if there is none.
        refusal: why the kernel declined the case, None if it did not.
        example: the exception's first line where the case was declined by raising.
        limit: what a limit of the kernel is why of, in words, and the declaration that
            makes it explicit; () where none is.
        aspects: where the kernel took or declined the case, what of it is beyond the
            core domain, and its optional tensors, in words.
        unsupported: why this backend cannot judge the case, None if it can.
        needs_gpu: whether that is because the call needs a GPU and there is none.
        error: what failed in kfuzz or the machine, None if nothing did.
        ratio: largest |error| / tolerance over all outputs, 0 where exact.
        notes: what is suspicious about the case and violates nothing, one line
            each.
        alone: why Triton's interpreter ran programs one after the other, if it did.
        beside: the kernel's own allocation that the case asks to lie beside a page
            that faults, if it was made.
        baselines: of what was judged in place of the kernel's results, by kind, whether
            it was refused; empty on most cases.
        suspicion: a later call that misses, by itself or for what came before, which
            the case's own process cannot tell; None if there is none.
        oracle_raised: what the oracle raised on the case, so that no value is judged;
            "" if it did not.
        compared: of each result with numbers, whether one of them could be judged.
    """

    UNSAID: ClassVar = ("suspicion",)

    verdicts: dict[str, Verdict]
    failure: Failure | None = None
    refusal: str | None = None
    example: str = ""
    limit: tuple[str, ...] = ()
    aspects: tuple[str, ...] = ()
    unsupported: str | None = None
    needs_gpu: bool = False
    error: str | None = None
    ratio: float = 0.0
    notes: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()
    beside: Allocation | None = None
    baselines: dict[str, bool] = field(default_factory=dict)
    suspicion: Suspicion | None = None
    oracle_raised: str = ""
    compared: dict[str, bool] = field(default_factory=dict)

    def confirmed(self) -> "CaseReport":
        """Return the report with what was suspected as its failure."""
        assert self.suspicion is not None
        failure = self.suspicion.failure
        verdicts = {failure.contract: Verdict.VIOLATES}
        return replace(
            self, verdicts=verdicts, failure=failure, notes=(), suspicion=None
        )

    def shows(self, signature: Signature) -> bool:
        """Whether the case fails with a signature's symptom."""
        failure = self.failure
        if failure is None:
            return False
        return failure.signature(signature.kernel).symptom == signature.symptom


@dataclass(frozen=True)
class Observed:
    """What equal calls of a kernel gave, unjudged.

    Attributes:
        outputs: the first call's results by name, with their values.
        calls: calls made; 0 where what came says nothing of the kernel.
        unlike: how many of them gave other bits than the first.
        problem: why there are no results, "" where there are.
    """

    outputs: Mapping[str, TensorSpec] = field(default_factory=dict)
    calls: int = 0
    unlike: int = 0
    problem: str = ""


class Role(StrEnum):
    """What an implementation is there to show."""

    CONFORMING = "conforming"
    VIOLATING = "violating"
    IMPOSTOR = "impostor"


class Soundness(StrEnum):
    """What is known about a contract's power to tell kernels apart."""

    SOUND = "sound"
    UNSOUND = "unsound"
    UNCALIBRATED = "uncalibrated"


@dataclass(frozen=True)
class Graded:
    """One contract on one kernel that it binds.

    Attributes:
        verdict: over all cases; `not_applicable` where no case came to bear on it.
        decided: cases that decided it.
        undecided: cases that could not.
        calibration: what witnesses say about the contract itself.
    """

    verdict: Verdict
    decided: int = 0
    undecided: int = 0
    calibration: Soundness = Soundness.UNCALIBRATED
