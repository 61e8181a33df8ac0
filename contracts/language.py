"""The contract language: contracts in eight parts, and classes of them."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from kfuzz.core.declaration import Declaration
from kfuzz.core.verdict import Failure, Kind

if TYPE_CHECKING:
    from kfuzz.contracts.operator import Operator
    from kfuzz.contracts.view import View


class Probe(StrEnum):
    """One way of executing a case.

    The first runs always; the others where a contract asks for them.

    Attributes:
        BASE: the case in its memory, under its poison.
        REPEAT: the same again.
        OTHER_POISON: under the other poison.
        OTHER_REPEAT: the same again.
        ELSEWHERE: in other memory.
        REVERSED: with the programs of each launch in reverse order.
        ONE_LAST: with one party of a race as the last program.
        OTHER_LAST: with the other party.
        SECOND: other data, written over the first, while the first call's results
            are alive.
        SECOND_ALONE: that data in other memory.
        THIRD: yet other data, after the second.
        MIDDLE: the first data with their middle in reverse order, after the others.
        ELEMENT: with another element in the middle of each argument.
        LAST_ARGUMENT: with other data in the last argument alone.
        CHANGED_HALVED: that changed data halved, which no call has had.
        SHORTER: the first data with one dimension shorter, right after the first data.
        SHORTER_AGAIN: the same again, right after the second data.
        SHORTER_REPEAT: the same again, right after the first data.
        AGAIN: the first data, after the others, under another random seed.
        AGAIN_REPEAT: the same again.
        AFTERWARDS: the first data, after the others, under the first seed.
        FRIENDLY: tiled to friendly shapes.
        CONTIGUOUS: the same values in contiguous tensors.
        ORDINARY: normal data at the case's own shape.
        RECENTRED: the data shifted to moderate values.
        OTHER_CONFIG: under the kernel's other configurations.
        BACK_TO_BACK: the case once more, in its memory, under its poison.
        BESIDE_HELD: the same, while another kernel holds half of a GPU.
        BESIDE_COPIES: the same, while copies keep a GPU's memory busy.
        SLICED: some of its rows, in the same places or in another order.
        OVERLAPPED: several calls at once.
        ALONE: the data of one of them, called by itself.
        COLD: a call in which autotuners measure their configurations.
        WARM: the same again, which finds what they measured.
        REPLAYED: captured in a CUDA graph, replayed on other data.
        REPLAYED_OWN: the same replayed on the case's own data after that.
        WITHOUT_SUBNORMALS: with 0 for the subnormal arguments.
        NORMALISED: with normal numbers for the subnormal arguments.
        SCALED: some arguments times a power of two.
        SCALED_REPEAT: the same again.
        UNSCALED: the case itself, in that memory.
        UNSCALED_REPEAT: the same again.
        PERMUTED: the reduced dimension in another order.
        OPCHECK: torch's opcheck of an operator in a library of the user's own.
        ONE_WANTED: a gradient with respect to one argument alone.
        TWO_RESULTS: gradients of two results of equal arguments, halved.
        LATER_BACKWARD: gradients taken after another forward call.
        SECOND_BACKWARD: gradients taken a second time through one graph.
        RESULT_OVERWRITTEN: gradients after the forward results were overwritten.
    """

    BASE = "base"
    REPEAT = "repeat"
    OTHER_POISON = "other_poison"
    OTHER_REPEAT = "other_repeat"
    ELSEWHERE = "elsewhere"
    REVERSED = "reversed"
    ONE_LAST = "one_last"
    OTHER_LAST = "other_last"
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
    ONE_WANTED = "one_wanted"
    TWO_RESULTS = "two_results"
    LATER_BACKWARD = "later_backward"
    SECOND_BACKWARD = "second_backward"
    RESULT_OVERWRITTEN = "result_overwritten"


SECOND_CALL_SHARE: Final = 16
"""One case in so many gets a second call while searching. A kernel that keeps what
it should not shows it at nearly every case, so a hundred cases nearly surely hold
one that does, and the search slows down by less than a fifth."""


OF_GRADIENTS: Final = frozenset(
    {"K-LIV-01", "K-MEM-01", "K-MEM-02", "K-MEM-03", "K-MEM-04", "K-GRD-01"}
)
"""The classes under which a gradient's faults are charged."""


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
class ContractClass:
    """A reusable kind of promise.

    Attributes:
        id: e.g. "C-EXC-01" (Kernel Contracts) or "K-MEM-02" (kfuzz's own).
        title: the promise in one line.
        scope: which kernels it binds.
        precondition: on which cases it binds.
        postcondition: what then holds.
        protocol: probes and procedure.
        signature: kinds and what tells it from its neighbours.
        judge: returns the failure that a case's evidence shows, or None.
        decides: whether a case without failure bears on this promise.
        beyond_scope: whether kernels that it does not bind are charged too; they
            cannot conform.
        tolerance: fixed tolerance; None where the operator's error model is it.
        applies: whether it binds an operator under a declaration.
    """

    id: str
    title: str
    scope: str
    precondition: str
    postcondition: str
    protocol: Protocol
    signature: ViolationSignature
    judge: Callable[["View"], Failure | None]
    decides: Callable[["View"], bool]
    tolerance: Tolerance | None = None
    applies: Callable[["Operator", Declaration], bool] = lambda operator, claims: True
    beyond_scope: bool = False

    def binds(self, operator: "Operator", claims: Declaration) -> bool:
        """Whether it binds an operator under a declaration.

        Of gradients those do that are about memory and liveness, and K-GRD-01, which
        stands for all others.
        """
        if operator.forward is not None and self.id not in OF_GRADIENTS:
            return False
        return self.applies(operator, claims)

    def bind(self, operator: "Operator") -> Contract:
        """Return the contract that this class makes about an operator."""
        return Contract(
            identifier=f"{self.id}/{operator.name_in_contracts}",
            scope=self.scope,
            precondition=f"{self.precondition} Domain of {operator.name}: "
            f"{operator.domain_text()}",
            postcondition=self.postcondition,
            tolerance=self.tolerance or operator.tolerance,
            oracle=operator.oracle_text(),
            protocol=self.protocol,
            signature=self.signature,
        )
