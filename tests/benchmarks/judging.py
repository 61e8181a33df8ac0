"""Cases of one kernel, drawn as a search draws them and judged in this process.

Batches of items that share a structure are judged together; what an item shows is
judged again as a case of its own.
"""

import time
from collections import Counter
from typing import Any, Final

from kfuzz.contracts.binding import BoundKernel
from kfuzz.contracts.classes import CLASSES
from kfuzz.core.budget import Depth, SizeBudget
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CaseReport, Verdict

ITEMS: Final = 10
# Failing cases of one kernel whose class is told, at a dozen calls each.
EXPLAINED: Final = 4
VALUES: Final = ("K-VAL-01", "C-CMP-03", "C-PRC-01", "C-PRC-02", "C-EXC-01")
# Differing configurations and streams are not drawn here.
APART: Final = frozenset({"C-ORD-03", "C-CMP-02"})


def judged(
    kernel: BoundKernel,
    cases: int,
    budget: SizeBudget,
    *,
    seed: int = 7,
    items: int = ITEMS,
    seconds: float = 600,
) -> dict[str, Any]:
    """Judge cases of one kernel on the CPU.

    Args:
        kernel: the bound kernel.
        cases: how many.
        budget: limits on their sizes.
        seed: what is drawn depends on it.
        items: of a batch, 1 where calls do not batch.
        seconds: after which no further round begins.

    Returns:
        Counts: cases, structures, those in which a value was decided, those outside
        the oracle's domain, rejected and failing ones; the greatest error as a share of
        what is allowed; findings (class, kind, output and data type with a message); errors;
        seconds.
    """
    import torch

    from kfuzz.engine.search.case_drawing import groups_of, search_round, strategy_of
    from kfuzz.evaluation.evaluator import Evaluator, setting_of
    from kfuzz.evaluation.prefilter import Prefilter, member_case

    began = time.monotonic()
    classes = frozenset(CLASSES) - APART
    evaluator = Evaluator(kernel, setting_of("cpu", budget, classes))
    prefilter = Prefilter(kernel, torch.device("cpu"), classes)
    groups = groups_of(kernel)
    counts: Counter[str] = Counter()
    findings: dict[str, str] = {}
    errors: dict[str, str] = {}

    def alone(case: Case) -> None:
        """Judge one case by itself."""
        counts["cases"] += 1
        report = evaluator.judge(case, Depth.BASE)
        if report.failure is not None and counts["failing"] < EXPLAINED:
            report = evaluator.judge(case, Depth.FULL)
        if (found := report.failure) is not None:
            counts["failing"] += 1
            key = f"{found.contract} {found.kind} {found.output} {case.data.dtype}"
            findings.setdefault(key, f"{found.message} | {described(case)}")
        values = [report.verdicts.get(c) for c in VALUES]
        counts["decided"] += Verdict.CONFORMS in values or Verdict.VIOLATES in values
        counts["rejected"] += report.refusal is not None
        counts["outside"] += bool(report.oracle_raised)
        if why := report.error or report.unsupported:
            errors.setdefault("error", why)

    def take(case: Case) -> CaseReport | None:
        if counts["cases"] >= cases:
            return None
        counts["structures"] += 1
        number = min(items, cases - counts["cases"])
        if number == 1:
            alone(case)
            return None
        batch = groups.burst(case, number, counts["structures"])
        screened = prefilter.screen(batch)
        if screened.unsupported or screened.lost or screened.error:
            alone(case)
            return None
        counts["cases"] += screened.passed
        open_ones = max(screened.undecided.values(), default=0)
        counts["decided"] += screened.passed - open_ones
        for suspect in screened.suspects:
            alone(member_case(kernel, batch, suspect.member))
        return None

    strategy = strategy_of(kernel, budget)
    if strategy is None:
        errors["error"] = "no case can be drawn"
    # What cannot be batched counts one case.
    while strategy is not None and counts["cases"] < cases:
        before = counts["structures"]
        search_round(strategy, take, cases=cases // items + 1, seed_value=seed + before)
        if counts["structures"] == before or time.monotonic() - began > seconds:
            break
    spent = round(time.monotonic() - began, 1)
    return {**counts, "findings": findings, "errors": errors, "seconds": spent}


def described(case: Case) -> str:
    """Return a case's tensors and scalars in a line."""
    tensors = [
        f"{n}: {s.dtype}{list(s.shape)} {s.fill.family if s.fill else ''}"
        f"{' strided' if s.strides else ''}{' plants' if s.plants else ''}"
        for n, s in case.tensors.items()
    ]
    scalars = [f"{n}={v!r}" for n, v in case.scalars.items()]
    return "; ".join([*tensors, *scalars])
