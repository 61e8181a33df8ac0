"""The contract language: contracts in eight parts, and classes of them."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from kfuzz.core.declaration import Declaration
from kfuzz.core.verdict import Failure, Kind

if TYPE_CHECKING:
    from kfuzz.contracts.evidence import Evidence, Miss
    from kfuzz.contracts.operator import Operator


class Probe(StrEnum):
    """One way of executing a case; GLOSSARY.md says what each runs.

    The first runs always; the others where a contract asks for them.
    """

    BASE = "base"
    REPEAT = "repeat"
    OTHER_POISON = "other_poison"
    OTHER_REPEAT = "other_repeat"
    ELSEWHERE = "elsewhere"
    REVERSED = "reversed"
    ONE_LAST = "one_last"
    OTHER_LAST = "other_last"
    OUTDATED = "outdated"
    SECOND = "second"
    SECOND_ALONE = "second_alone"
    THIRD = "third"
    MIDDLE = "middle"
    ELEMENT = "element"
    LAST_ARGUMENT = "last_argument"
    CHANGED_HALVED = "changed_halved"
    SHORTER = "shorter"
    SHORTER_AGAIN = "shorter_again"
    SHORTER_REPEAT = "shorter_repeat"
    AGAIN = "again"
    AGAIN_REPEAT = "again_repeat"
    AFTERWARDS = "afterwards"
    FRIENDLY = "friendly"
    CONTIGUOUS = "contiguous"
    ORDINARY = "ordinary"
    RECENTRED = "recentred"
    OTHER_CONFIG = "other_config"
    BACK_TO_BACK = "back_to_back"
    BESIDE_HELD = "beside_held"
    BESIDE_COPIES = "beside_copies"
    SLICED = "sliced"
    OVERLAPPED = "overlapped"
    ALONE = "alone"
    COLD = "cold"
    WARM = "warm"
    REPLAYED = "replayed"
    REPLAYED_OWN = "replayed_own"
    WITHOUT_SUBNORMALS = "without_subnormals"
    NORMALISED = "normalised"
    SCALED = "scaled"
    SCALED_REPEAT = "scaled_repeat"
    UNSCALED = "unscaled"
    UNSCALED_REPEAT = "unscaled_repeat"
    PERMUTED = "permuted"
    OPCHECK = "opcheck"
    BUILD = "build"
    ONE_WANTED = "one_wanted"
    TWO_RESULTS = "two_results"
    LATER_BACKWARD = "later_backward"
    SECOND_BACKWARD = "second_backward"
    RESULT_OVERWRITTEN = "result_overwritten"


SECOND_CALL_SHARE: Final = 16
"""One case in so many gets a second call while searching. A kernel that keeps what
it should not shows it at nearly every case, so a hundred cases nearly surely hold
one that does, and the search slows down by less than a fifth."""


class Structure(StrEnum):
    """What form a tolerance has."""

    INTERVAL = "interval"
    INVARIANT = "invariant"
    EXACT = "exact"
    COMPOSITE = "composite"


@dataclass(frozen=True)
class Tolerance:
    """How far a result may lie from the oracle's.

    Attributes:
        structure: its form.
        bound: the bound, as a formula in text.
        derivation: where it comes from, in words.
    """

    structure: Structure
    bound: str
    derivation: str


@dataclass(frozen=True)
class Protocol:
    """How evidence is gathered.

    Attributes:
        probes: probes run on every case.
        on_miss: probes run besides when the base run misses.
        sampled: probes run besides on a share of the cases, or where the base run
            gives cause to; the text says which.
        confirmation: "reproduces": three runs in fresh children; "witnessed": two of
            at most twenty, for what follows from chance.
        by_chance: the kinds of a class that are witnessed where the rest reproduce.
        text: the procedure, in words.
    """

    probes: tuple[Probe, ...]
    on_miss: tuple[Probe, ...]
    confirmation: str
    text: str
    sampled: tuple[Probe, ...] = ()
    by_chance: tuple[Kind, ...] = ()


@dataclass(frozen=True)
class ViolationSignature:
    """How a violation shows.

    Attributes:
        kinds: the kinds of failure that this contract reports.
        text: what distinguishes it from its neighbours, in words.
    """

    kinds: tuple[Kind, ...]
    text: str


@dataclass(frozen=True)
class Contract:
    """One promise about one operator: the eight parts, in this order.

    Attributes:
        identifier: class id, slash, operator: "C-PRC-01/matmul".
        scope: which kernels it binds.
        precondition: on which cases it binds.
        postcondition: what then holds.
        tolerance: how far results may lie from the oracle's.
        oracle: what the reference is.
        protocol: how evidence is gathered.
        signature: how a violation shows.
    """

    identifier: str
    scope: str
    precondition: str
    postcondition: str
    tolerance: Tolerance
    oracle: str
    protocol: Protocol
    signature: ViolationSignature


@dataclass(frozen=True)
class Batch:
    """What a prefilter counts of a batch of items of one structure.

    Attributes:
        passed: items in which nothing was seen.
        decided: those of them of which an element could be judged.
        finite: those of these whose arguments are finite.
        friendly: whether their shapes are friendly ones.
    """

    passed: int
    decided: int
    finite: int
    friendly: bool


@dataclass(frozen=True)
class ContractClass:
    """A reusable kind of promise, with all that is known about it.

    Attributes:
        id: e.g. "C-EXC-01" (Kernel Contracts) or "K-MEM-02" (kfuzz's own).
        rank: its place in the order in which a failure is attributed, from the first
            to claim it; no two classes have the same.
        level: the conformance level that first demands it, 1 to 3.
        title: the promise in one line.
        scope: which kernels it binds.
        postcondition: what then holds.
        procedure: how evidence is gathered, in words.
        symptom: what tells a violation from its neighbours', in words.
        judge: returns the failure that a case's evidence shows, or None.
        decides: whether a case without failure bears on this promise.
        precondition: on which cases it binds.
        tolerance: fixed tolerance; None where the operator's error model is it.
        on_miss: probes run besides when the base run misses.
        sampled: probes run besides on a share of the cases, or where the base run
            gives cause to; `procedure` says which.
        kinds: the kinds of failure that it reports; none means any wrong value.
        later_kinds: those of them that the base run alone does not show.
        by_chance: those of them that are `witnessed` where the rest `reproduces`.
        unseen: what a stand-alone script cannot see of a failure, by kind.
        applies: whether it binds an operator under a declaration.
        beyond_scope: whether kernels that it does not bind are reported too; they
            cannot conform.
        in_batch: how many of the items of a batch that a prefilter passes conform;
            None where no prefilter tells.
        core: whether its level is granted only where it is calibrated.
        of_values: whether a wrong value keeps it from being judged; not so what is
            judged on bytes and metadata alone.
        by_occasion: whether it is judged by probes that only some cases or some
            kernels have: elsewhere it says nothing.
        of_some_kernels: whether some kernels that it binds never give occasion to it;
            a level demands nothing of these.
        on_request: whether only a run that asks for it judges it: no witness shows it.
        beyond_bounds: whether it is judged where an index is out of bounds, or a
            number not finite, and nothing is promised for it.
        of_gradients: whether gradients' faults are reported under it, not K-GRD-01.
        provisional: whether further probes may attribute its failure to another class.
        of_candidates: whether it can be judged of a candidate that nobody vouches for:
            not so what asks for several calls at once, or for what happens inside the
            child.
        by_repeats: whether repeats alone tell its failure, whatever the shape.
        second_call: whether a second call bears on it.
        changed_data: whether calls on changed data bear on it.
        explained: whether it is told by what other declarations accept.
    """

    id: str
    rank: int
    level: int
    title: str
    scope: str
    postcondition: str
    procedure: str
    symptom: str
    judge: Callable[["Evidence"], Failure | None]
    decides: Callable[["Evidence"], bool]
    precondition: str = "Every case of the operator's domain and the declared one."
    tolerance: Tolerance | None = None
    on_miss: tuple[Probe, ...] = ()
    sampled: tuple[Probe, ...] = ()
    kinds: tuple[Kind, ...] = ()
    later_kinds: tuple[Kind, ...] = ()
    by_chance: tuple[Kind, ...] = ()
    unseen: Mapping[Kind, str] = field(default_factory=dict)
    applies: Callable[["Operator", Declaration], bool] = lambda operator, claims: True
    beyond_scope: bool = False
    in_batch: Callable[[Batch], int] | None = None
    core: bool = False
    of_values: bool = True
    by_occasion: bool = False
    of_some_kernels: bool = False
    on_request: bool = False
    beyond_bounds: bool = False
    of_gradients: bool = False
    provisional: bool = False
    of_candidates: bool = True
    by_repeats: bool = False
    second_call: bool = False
    changed_data: bool = False
    explained: bool = False

    @property
    def compares(self) -> bool:
        """Whether a case that decides it has values compared with the oracle's."""
        return self.of_values and not self.beyond_bounds and not self.by_occasion

    def binds(self, operator: "Operator", claims: Declaration) -> bool:
        """Whether it binds an operator under a declaration.

        Of gradients those do that are about memory and liveness, and K-GRD-01, which
        stands for all others.
        """
        if operator.forward is not None and not self.of_gradients:
            return False
        return self.applies(operator, claims)

    def bind(self, operator: "Operator") -> Contract:
        """Return the contract that this class makes about an operator."""
        return self.stated(
            operator.name_in_contracts,
            domain=f" Domain of {operator.name}: {operator.domain_text()}",
            tolerance=operator.tolerance,
            oracle=operator.oracle_text(),
        )

    def stated(
        self, operator: str, *, tolerance: Tolerance, oracle: str, domain: str = ""
    ) -> Contract:
        """Return the contract about an operator in words.

        Args:
            operator: its name in identifiers.
            tolerance: of its error model.
            oracle: what the reference is.
            domain: said after the precondition.
        """
        return Contract(
            identifier=f"{self.id}/{operator}",
            scope=self.scope,
            precondition=self.precondition + domain,
            postcondition=self.postcondition,
            tolerance=self.tolerance or tolerance,
            oracle=oracle,
            protocol=Protocol(
                probes=(Probe.BASE,),
                on_miss=self.on_miss,
                sampled=self.sampled,
                by_chance=self.by_chance,
                confirmation="reproduces",
                text=self.procedure,
            ),
            signature=ViolationSignature(self.kinds, self.symptom),
        )


# What running a conforming case in a changed form showed, and how that is said.
#
# Scripts read the words again (`read_scaling` and others): a finding holds the case
# itself, not its changed form. Nothing here imports torch.

ORDERS: Final = ("reversed", "with its halves swapped")
"""Orders in which the reduced dimension of a case is tried."""

BITWISE: Final = "bitwise"
"""Detail of a failure whose results are admitted but differ bit by bit."""

_SCALING: Final = re.compile(r" with ([\w, ]+) times 2\^(-?\d+)")
_SHIFT: Final = re.compile(r"but not 2\^(-?\d+) times")
_ORDER: Final = re.compile(rf" with (\w+) of ([\w, ]+) ({'|'.join(ORDERS)})")


@dataclass(frozen=True)
class Scaling:
    """Arguments that are multiplied by a power of two.

    Attributes:
        arguments: their names.
        exponent: of the power, not 0.
        degree: by how many times as much the exponent of the results changes.
    """

    arguments: tuple[str, ...]
    exponent: int
    degree: int

    def __str__(self) -> str:
        """Return for example "a times 2^12"."""
        return f"{', '.join(self.arguments)} times 2^{self.exponent}"


@dataclass(frozen=True)
class Order:
    """Another order of a dimension, the same in every argument that has it.

    Attributes:
        axis: the dimension's name.
        arguments: the names of the arguments that have it.
        order: one of `ORDERS`.
    """

    axis: str
    arguments: tuple[str, ...]
    order: str

    def __str__(self) -> str:
        """Return for example "K of a, b reversed"."""
        return f"{self.axis} of {', '.join(self.arguments)} {self.order}"

    def places(self, n: int) -> list[int]:
        """Return which of n elements comes where."""
        every = list(range(n))
        if self.order == ORDERS[0]:
            return every[::-1]
        return every[n // 2 :] + every[: n // 2]


@dataclass(frozen=True)
class Changed:
    """One changed form of a conforming case, run.

    Attributes:
        change: what was changed.
        miss: the worst element that is not admitted there, where no class that is
            more specific than K-VAL-01 would claim it; None if all are admitted.
        shift: where the miss is admitted and has other bits than the case's own
            result times a power of two, the exponent of that power.
    """

    change: Scaling | Order
    miss: "Miss | None" = None
    shift: int | None = None


def read_scaling(message: str) -> tuple[tuple[str, ...], int] | None:
    """Return the scaled arguments and the exponent that a failure's message names."""
    found = _SCALING.search(message)
    return (tuple(found[1].split(", ")), int(found[2])) if found else None


def read_shift(message: str) -> int | None:
    """Return by which power of two a result had to grow, where that was asked for."""
    found = _SHIFT.search(message)
    return int(found[1]) if found else None


def read_order(message: str) -> Order | None:
    """Return the order that a failure's message names."""
    found = _ORDER.search(message)
    return Order(found[1], tuple(found[2].split(", ")), found[3]) if found else None
