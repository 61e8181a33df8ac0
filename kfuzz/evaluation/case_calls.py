"""The calls of one case after its base run, and the steps that make them."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from torch import Tensor

from kfuzz.contracts.classes import CLASSES
from kfuzz.contracts.derive import Derived
from kfuzz.contracts.evidence import Builds, Collected, Evidence
from kfuzz.contracts.language import Probe
from kfuzz.contracts.oracle import expected_metadata
from kfuzz.core.case_surroundings import poison_of
from kfuzz.core.recipe import Case
from kfuzz.evaluation.calling import Caller, without_edge
from kfuzz.evaluation.diagnosis import Diagnosing
from kfuzz.execution.calls.overlap import Overlapping
from kfuzz.execution.calls.run import PLAIN, Manner
from kfuzz.execution.device.backends import backend_of
from kfuzz.execution.memory.poison import Poison
from kfuzz.numerics.acceptance import Acceptance
from kfuzz.numerics.run import Run

BesideCollective = Callable[[Case, Callable[[], None]], Collected]
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
        tells_apart: whether to find out at length if a miss comes by chance.
        beside_collective: runs a case beside a collective, calling what it is given
            now and then; None where that cannot be.
        builds: tells whether what a case launches builds for its targets; None where
            that cannot be known.
    """

    caller: Caller
    diagnosis: Diagnosing
    derived: Derived
    classes: Collection[str]
    thorough: bool
    tells_apart: bool = True
    beside_collective: BesideCollective | None = None
    builds: Builder | None = None

    def asks(self, *probes: Probe) -> bool:
        """Whether the protocol of a class in force names one of these probes."""
        return not _named(frozenset(self.classes)).isdisjoint(probes)

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

    def accepted(self, derived: Derived) -> Mapping[str, Acceptance] | None:
        """Return what is accepted for a case, None where values are not judged.

        Raises:
            BindingError: if the operator's oracle or error model is malformed.
        """
        return self.caller.accepted(derived)

    def again(
        self,
        evidence: Evidence,
        *,
        plain: bool = False,
        elsewhere: bool = False,
        poison: Poison | None = None,
        manner: Manner = PLAIN,
        step: int = 0,
        instead: Callable[..., Any] | None = None,
    ) -> Run:
        """Call the kernel on the case once more.

        Args:
            evidence: of the case.
            plain: whether away from pages.
            elsewhere: whether in other memory than usual.
            poison: what fresh memory holds, if not what it held.
            manner: how the call is made.
            step: configurations from the case's to the one that runs.
            instead: called in place of the kernel: its results in another way.
        """
        wanted = evidence.acceptance
        return self.caller.run(
            self.plain if plain else self.derived,
            {} if wanted is None else expected_metadata(wanted),
            poison or self.poison,
            arena=self.caller.memory.elsewhere() if elsewhere else None,
            manner=manner, step=step, instead=instead,
        )  # fmt: skip

    def held(
        self,
        values: Mapping[str, Tensor],
        evidence: Evidence,
        seed: int,
        *,
        apart: bool,
    ) -> Run:
        """Call the kernel on other data; arguments and results stay alive.

        Args:
            values: the data, of the case's shapes.
            evidence: of the case, whose base run was held.
            seed: of torch's random generators during the call.
            apart: whether in other memory, not over the data of the base run.
        """
        assert evidence.acceptance is not None
        return self.caller.run(
            replace(self.derived, values=values),
            expected_metadata(evidence.acceptance),
            self.poison,
            arena=self.caller.memory.elsewhere() if apart else None,
            manner=Manner(seed=seed),
            after=None if apart else self.caller.held[0],
            hold=True,
        )

    def on(
        self, part: Derived, wanted: Mapping[str, Acceptance], *, apart: bool = False
    ) -> Run:
        """Call the kernel on a part of the case or on other data, maybe apart."""
        arena = self.caller.memory.elsewhere() if apart else None
        expected = expected_metadata(wanted)
        return self.caller.run(part, expected, self.poison, arena=arena)

    def overlapping(self, evidence: Evidence) -> Overlapping:
        """Return what calls on a case's shapes have in common."""
        assert evidence.acceptance is not None
        asked = self.caller.asked(self.plain, expected_metadata(evidence.acceptance))
        assert asked is not None  # the base run had destinations
        asked = replace(asked, around=self.poison)
        return Overlapping(asked, self.caller.memory.device, self.poison)


@cache
def _named(classes: frozenset[str]) -> frozenset[Probe]:
    """Return the probes that the protocols of some classes name."""
    made = (CLASSES[name] for name in classes)
    return frozenset(p for each in made for p in (*each.on_miss, *each.sampled))


@dataclass(frozen=True)
class Step:
    """Some probes that are made together: a module of `probes` offers one.

    Attributes:
        probes: which they are.
        extend: returns the evidence with what they left; the evidence itself where
            there is nothing to add.
        due: whether to make them, beside that a class in force asks for one.
        always: whether they are due whichever classes are in force.
        place: group and position among the steps that a case which conforms is put
            to, after each group of which it is judged; None for steps that are asked
            for elsewhere.
    """

    probes: tuple[Probe, ...]
    extend: Callable[[Evidence, CaseCalls], Evidence]
    due: Callable[[Evidence, CaseCalls], bool] = lambda evidence, calls: True
    always: bool = False
    place: tuple[int, int] | None = None

    def __call__(self, evidence: Evidence, calls: CaseCalls) -> Evidence:
        """Return the evidence with what the probes left, if they are due."""
        asked = self.always or calls.asks(*self.probes)
        if not (asked and self.due(evidence, calls)):
            return evidence
        return self.extend(evidence, calls)
