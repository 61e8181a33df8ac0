"""The class of a gradient's faults: K-GRD-01, but for memory and liveness."""

from dataclasses import replace
from typing import Final

from kfuzz.contracts.classes import ATTRIBUTION
from kfuzz.core.verdict import CaseReport, Failure, Verdict

_OF_GRADIENTS: Final = frozenset(c.id for c in ATTRIBUTION if c.of_gradients)


def in_force(classes: frozenset[str], every: frozenset[str]) -> frozenset[str]:
    """Return the classes that a gradient is judged under.

    K-GRD-01 stands for all that are not about memory and liveness.
    """
    if "K-GRD-01" not in classes:
        return classes & _OF_GRADIENTS
    return (classes & _OF_GRADIENTS) | (every - _OF_GRADIENTS) | {"K-GRD-01"}


def charged(report: CaseReport, classes: frozenset[str]) -> CaseReport:
    """Return the report of a gradient's case under the classes that bind gradients."""
    verdicts = {n: v for n, v in report.verdicts.items() if n in _OF_GRADIENTS}
    value = report.verdicts.get("K-VAL-01")
    if "K-GRD-01" in classes and value is not None:
        verdicts.setdefault("K-GRD-01", value)
    failure, suspicion = report.failure, report.suspicion
    if suspicion is not None:
        suspicion = replace(suspicion, failure=_under(suspicion.failure))
    if failure is None or failure.contract in _OF_GRADIENTS:
        return replace(report, verdicts=verdicts, suspicion=suspicion)
    verdicts["K-GRD-01"] = Verdict.VIOLATES
    return replace(report, verdicts=verdicts, failure=_under(failure))


def _under(failure: Failure) -> Failure:
    """Return a failure under K-GRD-01, with the class that it would be."""
    said = f"{failure.contract} in a gradient: {failure.message}"
    return replace(failure, contract="K-GRD-01", message=said)
