"""Every contract there is: classes bound to operators."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterable
from dataclasses import replace

from kfuzz.contracts.classes import ATTRIBUTION, calls, results
from kfuzz.contracts.evidence import Evidence
from kfuzz.contracts.gradients.operators import gradients_of, rule_of
from kfuzz.contracts.language import Contract, Probe
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.operators import OPERATORS
from kfuzz.contracts.reading import comparison, is_decided, miss_of, undecided
from kfuzz.core.declaration import Declaration
from kfuzz.core.errors import UsageError, suggestion
from kfuzz.core.verdict import Failure, Verdict, output_of


def contracts_of(
    operator: Operator, declaration: Declaration | None = None
) -> dict[str, Contract]:
    """Return the contracts that bind an operator, by class id."""
    claims = operator.defaults if declaration is None else declaration
    return {c.id: c.bind(operator) for c in ATTRIBUTION if c.binds(operator, claims)}


def every_contract() -> list[Contract]:
    """Return all contracts of all operators, sorted by identifier."""
    made = [c for o in OPERATORS.values() for c in contracts_of(o).values()]
    for operator in OPERATORS.values():
        if rule_of(operator) is not None:
            gradients = next(iter(gradients_of(operator).values()))
            made.append(results.K_GRD_01.bind(gradients))
    return sorted(made, key=lambda c: c.identifier)


def find_contract(identifier: str) -> Contract:
    """Return one contract by its identifier, e.g. "C-PRC-01/matmul".

    Raises:
        UsageError: if there is none, with the nearest.
    """
    every = {c.identifier: c for c in every_contract()}
    if identifier not in every:
        raise UsageError(
            f"no contract {identifier!r}",
            fix=suggestion(identifier, every).partition("valid:")[0].strip()
            + " `kfuzz contracts list` prints all",
        )
    return every[identifier]


def select_classes(include: Iterable[str], exclude: Iterable[str]) -> frozenset[str]:
    """Return the class ids that the globs select.

    Args:
        include: globs over class ids or identifiers; empty means all.
        exclude: globs to leave out.

    Raises:
        UsageError: if a glob matches nothing, or together they leave nothing.
    """
    ids = [c.id for c in ATTRIBUTION]

    def matching(glob: str) -> set[str]:
        found = {i for i in ids if fnmatch.fnmatchcase(i, glob.split("/")[0])}
        if not found:
            raise UsageError(f"no contract matches {glob!r}", fix=suggestion(glob, ids))
        return found

    chosen = set().union(*map(matching, include)) if include else set(ids)
    left = frozenset(chosen.difference(*map(matching, exclude)))
    if not left:
        raise UsageError(
            "no contract is left to judge", where="--contracts, --exclude-contracts"
        )
    return left


# The judge: a pure function of evidence and acceptance.


def judge(
    evidence: Evidence,
    classes: Collection[str],
    *,
    asked: Collection[str] | None = None,
) -> tuple[dict[str, Verdict], Failure | None]:
    """Return the verdict per contract class, and the failure attributed.

    Args:
        evidence: evidence beside acceptance.
        classes: ids of the classes in force.
        asked: those of which it is asked whether they conform; all by default.

    Returns:
        Verdicts of the classes that say something about this case. If one is
        violated it alone is reported; classes that do not depend on values and
        come before it conform.
    """
    verdicts: dict[str, Verdict] = {}
    outside, missed = evidence.outside, miss_of(evidence) is not None
    for made in ATTRIBUTION:
        binds = made.applies(evidence.operator, evidence.declaration)
        if made.id not in classes or not (binds or made.beyond_scope):
            continue
        if outside and not made.beyond_bounds:
            continue
        failure = made.judge(evidence)
        if failure is not None:
            placed = replace(failure, place=_place(evidence, failure.output))
            return {**verdicts, made.id: Verdict.VIOLATES}, placed
        if not binds or (missed and made.of_values):
            continue
        if asked is not None and made.id not in asked:
            continue
        if made.decides(evidence):
            verdicts[made.id] = Verdict.CONFORMS
        elif made.by_occasion or not made.of_values:
            continue
        elif undecided(evidence) and not is_decided(evidence):
            verdicts.setdefault(made.id, Verdict.UNDER_SPECIFIED)
    return verdicts, None


def suspected(
    evidence: Evidence, classes: Collection[str]
) -> tuple[Probe, Failure] | None:
    """Return a later call of a conforming case that a fresh process has to settle.

    With what it shows if it conforms there.
    """
    if "K-REF-01" not in classes or evidence.outside:
        return None
    found = calls.suspected(evidence)
    if found is None:
        return None
    probe, failure = found
    return probe, replace(failure, place=_place(evidence, failure.output))


def mapped(evidence: Evidence, failure: Failure) -> Failure:
    """Return a failure with the errors of all of its output, if some of it misses.

    And with the actual and expected values around the worst of them.

    Args:
        evidence: the evidence that shows it.
        failure: names the output; where it names none, the only one is meant.
    """
    from kfuzz.numerics.compare import error_map

    names = list(evidence.acceptance or {})
    output = failure.output or (names[0] if len(names) == 1 else "")
    made = comparison(evidence, output) if output else None
    if made is None or not bool(made.missed.any()):
        return failure
    return replace(failure, errors=error_map(output, made, failure.index))


def _place(evidence: Evidence, output: str) -> int | None:
    """Return the position of an output among several."""
    names, name = [*map(output_of, evidence.operator.outputs)], output_of(output)
    return names.index(name) if len(names) > 1 and name in names else None
