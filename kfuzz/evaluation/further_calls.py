"""Calls of a kernel after the first one of a case: the same again, or others beside it.

Each adds to a evidence what it left; which of them a case gets, the bench decides.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from kfuzz.contracts.classes import CLASSES
from kfuzz.contracts.custom_ops import CustomOp
from kfuzz.contracts.derive import Derived
from kfuzz.contracts.evidence import Collected, Evidence
from kfuzz.contracts.gradients.asking import with_ways
from kfuzz.contracts.judge import suspected
from kfuzz.contracts.language import Probe
from kfuzz.contracts.oracle import expected_metadata
from kfuzz.contracts.reading import miss_of
from kfuzz.core.dtypes import DTYPES
from kfuzz.core.recipe import Case
from kfuzz.core.settled import poison_of
from kfuzz.core.verdict import Failure
from kfuzz.evaluation.calling import Caller, without_edge
from kfuzz.evaluation.diagnosis import Diagnosing
from kfuzz.evaluation.explaining import judge_explained
from kfuzz.evaluation.keywords import keywords_of
from kfuzz.evaluation.probes.batches import with_batches
from kfuzz.evaluation.probes.measuring import with_measuring
from kfuzz.evaluation.probes.opchecking import opcheck
from kfuzz.evaluation.probes.overlapping import with_overlap
from kfuzz.evaluation.probes.permuting import with_orders
from kfuzz.evaluation.probes.relational import Apart
from kfuzz.evaluation.probes.repeating import is_told, with_repeats
from kfuzz.evaluation.probes.replaying import with_replays
from kfuzz.evaluation.probes.scaling import with_scaling
from kfuzz.evaluation.probes.second_call import second_data, with_second_call
from kfuzz.evaluation.probes.shorter import shortened, with_shorter
from kfuzz.evaluation.probes.under_load import with_loads
from kfuzz.execution.calls.autotuning import Measuring
from kfuzz.execution.calls.overlap import Overlapping
from kfuzz.execution.calls.run import Manner
from kfuzz.execution.device import graphs
from kfuzz.execution.interpreter.watch import interpreting
from kfuzz.execution.memory.poison import Poison
from kfuzz.execution.processes.interrupts import is_child
from kfuzz.numerics.acceptance import Acceptance
from kfuzz.numerics.run import Run

BesideCollective = Callable[[Case, Callable[[], None]], Collected]


@dataclass(frozen=True)
class FurtherCalls:
    """Makes further calls of one case.

    Attributes:
        caller: calls the kernel.
        diagnosis: tells why a changed form of the case misses.
        derived: the case with its values.
        classes: ids of the contract classes in force.
        thorough: whether to leave less to chance, and to change every argument.
        beside_collective: runs a case beside a collective, calling what it is given
            now and then; None where that cannot be.
    """

    caller: Caller
    diagnosis: Diagnosing
    derived: Derived
    classes: Collection[str]
    thorough: bool
    beside_collective: BesideCollective | None = None

    def with_repeats(self, evidence: Evidence) -> Evidence:
        """Return the evidence with repeats of a base run that gives cause to them."""
        expected = (
            {}
            if evidence.acceptance is None
            else expected_metadata(evidence.acceptance)
        )
        mine = self._poison

        def repeat(
            *,
            other_poison: bool = False,
            elsewhere: bool = False,
            reverse: bool = False,
            last: tuple[int, int, int] | None = None,
        ) -> Run:
            poison = _other(mine) if other_poison else mine
            arena = self.caller.memory.elsewhere() if elsewhere else None
            return self.caller.run(
                self.derived, expected, poison,
                arena=arena, manner=Manner(reverse=reverse, last=last),
            )  # fmt: skip

        evidence = with_repeats(evidence, repeat, self.classes)
        # Elsewhere what a call finds in free memory may differ from one to the next.
        if self.caller.stale and miss_of(evidence) is not None:
            evidence = self._with_loads(evidence, thorough=self.derived.case.pinned)
        return evidence

    def with_second_call(self, evidence: Evidence) -> Evidence:
        """Return the evidence of a conforming case with calls on other data."""
        assert evidence.acceptance is not None
        expected = expected_metadata(evidence.acceptance)

        first = self.caller.held[0]

        def call(values: Mapping[str, Tensor], *, apart: bool, seed: int) -> Run:
            arena = self.caller.memory.elsewhere() if apart else None
            made = replace(self.derived, values=values)
            return self.caller.run(
                made, expected, self._poison,
                arena=arena, manner=Manner(seed=seed),
                after=None if apart else first, hold=True,
            )  # fmt: skip

        return with_second_call(
            evidence, self.derived, call, self.caller.accepted, thorough=self.thorough
        )

    def with_shorter(self, evidence: Evidence) -> Evidence:
        """Return the evidence of a conforming case with shorter calls in between."""
        if "K-REF-01" not in self.classes:
            return evidence

        def call(part: Derived, wanted: Mapping[str, Acceptance]) -> Run:
            return self._call(part, wanted, apart=False)

        return with_shorter(evidence, self._plain, self.caller.accepted, call)

    def suspected(self, evidence: Evidence) -> tuple[Derived, Failure] | None:
        """Return the data of a later call that a fresh process has to settle.

        With what it shows if it conforms there; None where nothing is suspected.
        """
        found = suspected(evidence, self.classes)
        if found is None:
            return None
        probe, failure = found
        if probe is Probe.SECOND:
            values = second_data(evidence.operator, self.derived.values)
            return replace(self.derived, values=values), failure
        part = shortened(evidence.operator, evidence.declaration, self._plain)
        return None if part is None else (part, failure)

    def with_other_calls(self, evidence: Evidence) -> Evidence:
        """Return the evidence of a conforming case with other batches and overlaps."""
        admit = self.caller.accepted
        if "C-ORD-02" in self.classes:
            evidence = self._with_loads(evidence, thorough=self.thorough)
            evidence = with_batches(evidence, self._plain, admit, self._call)
        if "C-ORD-03" in self.classes and not evidence.base.programs:  # one at a time
            self.caller.step()
            evidence = with_overlap(
                evidence, self._plain, self._overlapping(evidence), admit, self._call,
                thorough=self.thorough,
            )  # fmt: skip
            evidence = self._with_collective(evidence)
        if "C-CMP-02" in self.classes and not evidence.declaration.configs:
            evidence = self._with_measuring(evidence)
        return evidence

    def with_replays(self, evidence: Evidence) -> Evidence:
        """Return the evidence of a conforming case with replays of a captured call."""
        if "K-REF-01" not in self.classes or not self.caller.captures:
            return evidence
        common = self._overlapping(evidence)

        def replay(data: Sequence[Mapping[str, Tensor]]) -> tuple[Run, ...]:
            return self._replayed(common, data)

        return with_replays(
            evidence, self._plain, replay, self.caller.accepted, self._call
        )

    def with_changed_data(self, evidence: Evidence) -> Evidence:
        """Return the evidence of a conforming case with scaled and permuted data."""
        apart = Apart(self.caller.apart, self._blamed)
        if "C-PRC-04" in self.classes:
            evidence = with_scaling(
                evidence, self._plain, apart, everything=self.thorough
            )
        if "C-ORD-01" in self.classes:
            evidence = with_orders(evidence, self._plain, apart)
        return evidence

    def with_graphs(self, evidence: Evidence) -> Evidence:
        """Return the evidence of conforming gradients, asked for in other ways."""
        if evidence.operator.forward is None or "K-GRD-01" not in self.classes:
            return evidence
        assert evidence.acceptance is not None
        expected, plain = expected_metadata(evidence.acceptance), self._plain

        def call(instead: Callable[..., Any]) -> Run:
            return self.caller.run(plain, expected, self._poison, instead=instead)

        return with_ways(evidence, self.caller.kernel, call, thorough=self.thorough)

    def with_opcheck(self, evidence: Evidence) -> Evidence:
        """Return the evidence of a user's operator with what opcheck says of it.

        In a child alone: it runs under modes of torch's, and imports much of it.
        """
        kernel, derived = self.caller.kernel, self.derived
        operator = kernel.function
        due = is_child() and {"K-MEM-03", "K-MEM-04", "K-MET-01"} & set(self.classes)
        if not due or not isinstance(operator, CustomOp) or evidence.acceptance is None:
            return evidence
        self.caller.step()
        expected = expected_metadata(evidence.acceptance)
        told = opcheck(
            operator,
            [derived.values.get(name) for name in kernel.arguments.tensors],
            keywords_of(kernel, derived.case, self.caller.config),
            {name: expected[name] for name in kernel.arguments.destinations},
            self.caller.memory.device,
        )
        return evidence.knowing(told)

    @property
    def _poison(self) -> Poison:
        """What fresh memory holds, in the calls on changed data too."""
        return poison_of(self.derived.case)

    @property
    def _plain(self) -> Derived:
        """The case away from pages: placements other than its own ask other things."""
        return without_edge(self.derived)

    def _call(
        self, part: Derived, wanted: Mapping[str, Acceptance], apart: bool
    ) -> Run:
        """Call the kernel on a part of the case or on other data, maybe apart."""
        arena = self.caller.memory.elsewhere() if apart else None
        expected = expected_metadata(wanted)
        return self.caller.run(part, expected, self._poison, arena=arena)

    def _with_loads(self, evidence: Evidence, *, thorough: bool) -> Evidence:
        """Return the evidence on a GPU with repeats beside other work."""
        on_device = self.caller.memory.device.type == "cuda"
        if not on_device or "C-ORD-02" not in self.classes:
            return evidence
        expected = (
            {}
            if evidence.acceptance is None
            else expected_metadata(evidence.acceptance)
        )
        return with_loads(
            evidence,
            lambda company: self.caller.run(
                self.derived, expected, self._poison, manner=Manner(company=company)
            ),
            thorough=thorough,
        )

    def _with_collective(self, evidence: Evidence) -> Evidence:
        """Return the evidence with the kernel beside a collective, if that is asked."""
        if not evidence.case.collective or self.beside_collective is None:
            return evidence
        self.caller.step()
        collected = self.beside_collective(evidence.case, self.caller.step)
        return evidence.knowing(collected)

    def _with_measuring(self, evidence: Evidence) -> Evidence:
        """Return the evidence of an autotuned kernel with a call that measures."""
        if evidence.base.configs < 2:
            return evidence
        assert evidence.acceptance is not None
        expected = expected_metadata(evidence.acceptance)

        def run(step: int, measuring: Measuring | None) -> Run:
            return self.caller.run(
                self._plain, expected, self._poison,
                manner=Manner(measuring=measuring), step=step,
            )  # fmt: skip

        return with_measuring(evidence, run, interpreted=interpreting())

    def _overlapping(self, evidence: Evidence) -> Overlapping:
        """Return what calls on a case's shapes have in common."""
        assert evidence.acceptance is not None
        asked = self.caller.asked(self._plain, expected_metadata(evidence.acceptance))
        assert asked is not None  # the base run had destinations
        asked = replace(asked, around=self._poison)
        return Overlapping(asked, self.caller.memory.device, self._poison)

    def _replayed(
        self, common: Overlapping, data: Sequence[Mapping[str, Tensor]]
    ) -> tuple[Run, ...]:
        """Return what replays of a captured call left, nothing where there are none."""
        specs = self.derived.case.tensors.values()
        held = sum(DTYPES[s.dtype].itemsize * (s.offset + s.span) for s in specs)
        if held > graphs.MOST_BYTES or not self.caller.captures:
            return ()
        self.caller.step()
        made = graphs.replayed(common, self.derived.values, data)
        if made.broken:
            self.caller.lost, self.caller.captures = True, False
        return made.runs

    def _blamed(self, derived: Derived) -> str | None:
        """Return the class that a case's miss is charged to; None if it has none."""
        evidence = self.caller.apart()(derived)
        if evidence is None or miss_of(evidence) is None:
            return None
        evidence = replace(self, derived=derived).with_repeats(evidence)
        evidence, _, failure = judge_explained(evidence, CLASSES)
        if not is_told(failure):
            evidence = self.diagnosis.of(evidence, derived)
            failure = judge_explained(evidence, CLASSES)[2]
        return None if failure is None else failure.contract


def _other(poison: Poison) -> Poison:
    return Poison.NAN if poison is Poison.FINITE else Poison.FINITE
