"""Counterexamples that were run: what each refutes."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final

from kfuzz.core.event import Event
from kfuzz.core.proof import KernelProof, Proven, ProvenProperty
from kfuzz.core.verdict import CHARGED, VALUE_KINDS, Kind
from kfuzz.engine.search.proofs import Keep
from kfuzz.engine.search.round import KernelSearch, Round
from kfuzz.prove.tasks import Counterexample

_ENDS: Final = frozenset({Kind.CRASH, Kind.DEVICE_FAULT})
_OUTSIDE: Final = frozenset({Kind.READ_OUTSIDE, Kind.WRITE_OUTSIDE}) | _ENDS

REFUTING: Final = {
    "loads in bounds": _ENDS | {Kind.READ_OUTSIDE},
    "stores in bounds": _ENDS | {Kind.WRITE_OUTSIDE},
    "stores of programs apart": frozenset({Kind.RACE}),
    "results stored whole": frozenset({Kind.UNWRITTEN}),
    "no 32-bit overflow": _OUTSIDE | VALUE_KINDS,
    "hints true": _OUTSIDE | VALUE_KINDS,
}
"""How a failure shows that refutes a property, by the property's name."""


class Examined:
    """Runs the counterexamples of a kernel, and tells what they refute.

    Args:
        kernel: the kernel's search.
    """

    def __init__(self, kernel: KernelSearch) -> None:
        self._kernel = kernel
        self._refuted: dict[str, str] = {}
        self._passed: dict[str, int] = {}

    def run(
        self,
        examples: Iterable[Counterexample],
        this_round: Callable[[], Round],
        keep: Keep,
    ) -> Iterator[Event]:
        """Judge each, keep what fails, and yield what happens.

        Raises:
            KfuzzError: what keeps kfuzz from judging.
        """
        for example in examples:
            if example.property in self._refuted:
                continue
            judging = this_round()
            report = judging.judge(example.case)
            if judging.error is not None:
                raise judging.error
            if report is None:
                continue
            if judging.found is not None:
                yield from keep(self._kernel, *judging.found)
            found = report.failure
            if found is None or found.kind not in REFUTING[example.property]:
                count = self._passed.get(example.property, 0)
                self._passed[example.property] = count + 1
                continue
            symptom = found.signature(self._kernel.name).symptom
            for finding in self._kernel.findings.values():
                if finding.signature.symptom == symptom and finding.state in CHARGED:
                    self._refuted[example.property] = finding.id

    def applied(self, proof: KernelProof) -> KernelProof:
        """Return a proof with what the counterexamples showed."""
        return replace(
            proof, properties=tuple(self._applied(p) for p in proof.properties)
        )

    def _applied(self, found: ProvenProperty) -> ProvenProperty:
        if found.answer is not Proven.OPEN:
            return found
        if identifier := self._refuted.get(found.name):
            return replace(found, answer=Proven.REFUTED, finding=identifier)
        if count := self._passed.get(found.name):
            cases = "case does" if count == 1 else "cases do"
            return replace(found, why=f"{found.why}; {count} {cases} not show it")
        return found
