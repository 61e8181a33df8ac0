"""What other declarations would accept of a miss: asked of the oracle, then judged."""

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final

from kfuzz.contracts.classes import CLASSES
from kfuzz.contracts.evidence import Diagnosis, Evidence, Explanation
from kfuzz.contracts.judge import judge
from kfuzz.contracts.oracle import accept
from kfuzz.contracts.reading import comparison, miss_of
from kfuzz.contracts.relation import compare_all
from kfuzz.core.verdict import Failure, Verdict
from kfuzz.numerics.acceptance import Problem

_RANKS: Final = {c.id: c.rank for c in CLASSES.values() if c.explained}


def judge_explained(
    evidence: Evidence,
    classes: Collection[str],
    arithmetic: Callable[[Evidence], tuple[str, str]] | None = None,
    *,
    asked: Collection[str] | None = None,
) -> tuple[Evidence, dict[str, Verdict], Failure | None]:
    """Judge a case, with an explanation of its miss where the verdict hangs on that.

    Args:
        evidence: of the case.
        classes: ids of the classes in force.
        arithmetic: returns the algorithm and the narrower format that a miss comes
            from, which takes further calls; None where none are made.
        asked: those of which it is asked whether they conform; all by default.

    Returns:
        The evidence, with the explanation if it was asked for; verdict per class; the
        failure.

    Raises:
        BindingError: if the operator's oracle or error model is malformed.
    """
    verdicts, failure = judge(evidence, classes, asked=asked)
    asking = [_RANKS[i] for i in classes if i in _RANKS]
    known = Explanation in evidence.found and arithmetic is None
    if known or not asking or miss_of(evidence) is None:
        return evidence, verdicts, failure
    if failure is not None and CLASSES[failure.contract].rank < min(asking):
        return evidence, verdicts, failure  # whatever accepts the miss
    if Explanation not in evidence.found:
        evidence = evidence.knowing(explanation(evidence))
    if arithmetic is not None and not evidence.of(Diagnosis).shape_bound:
        algorithm, narrower = arithmetic(evidence)
        found = evidence.of(Explanation)
        found = replace(found, algorithm=algorithm, narrower=narrower)
        evidence = evidence.knowing(found)
    return evidence, *judge(evidence, classes)


def explanation(evidence: Evidence) -> Explanation:
    """Return which other declarations accept what a case misses, but for arithmetic.

    Raises:
        BindingError: if the operator's oracle or error model is malformed.
    """
    problem, miss = evidence.problem, miss_of(evidence)
    if problem is None or miss is None:
        return Explanation()
    shape = evidence.of(Diagnosis).shape_bound
    return Explanation(
        flushes=not shape and flushes(evidence),
        breaks_chain=bool(evidence.operator.chain) and _breaks_chain(evidence, problem),
    )


def flushes(evidence: Evidence) -> bool:
    """Whether a kernel that flushes subnormal numbers may give what misses."""
    problem = evidence.problem
    if problem is None or evidence.declaration.subnormals != "preserve":
        return False
    claims = replace(evidence.declaration, subnormals="any")
    return _accepts(evidence, replace(problem, declaration=claims))


def _accepts(evidence: Evidence, other: Problem) -> bool:
    """Whether another problem's acceptance holds all that the case's own does not."""
    if not evidence.base.comparable or evidence.acceptance is None:
        return False
    wide = compare_all(evidence.base.outputs, accept(evidence.operator, other))
    for name, made in wide.items():
        own = comparison(evidence, name)
        if own is None or bool((made.missed & own.missed).any()):
            return False
    return True


def _breaks_chain(evidence: Evidence, problem: Problem) -> bool:
    """Whether the worst miss lies outside the unfused chain's acceptance too."""
    miss = miss_of(evidence)
    assert miss is not None
    claims = replace(evidence.declaration, intermediates="output")
    chain = accept(evidence.operator, replace(problem, declaration=claims))
    made = compare_all(evidence.base.outputs, chain)[miss.output]
    return bool(made.missed[(0, *miss.index)])
