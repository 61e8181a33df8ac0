"""Cases of one kernel judged in this process, by batches as a search judges them."""

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import torch

from kfuzz.contracts.binding import BoundKernel
from kfuzz.contracts.classes import CLASSES
from kfuzz.core.budget import Depth, SizeBudget
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CaseReport, Verdict, output_of
from kfuzz.evaluation.drawing import groups_of, search_round, strategy_of
from kfuzz.evaluation.evaluator import Evaluator, setting_of
from kfuzz.evaluation.prefilter import Prefilter, member_case

SMALL: Final = SizeBudget(1 << 10, 1 << 10)
# What needs several devices, and what needs other configurations.
_LEFT_OUT: Final = {"C-ORD-03", "C-CMP-02"}
_VALUES: Final = ("K-VAL-01", "C-CMP-03", "C-PRC-01", "C-PRC-02", "C-EXC-01")


@dataclass
class Tally:
    """What cases of one kernel came to.

    Attributes:
        counts: of "cases", "structures", "decided" (a value was compared), "outside"
            (the oracle raised), "rejected" (the kernel did) and "failing" ones.
        findings: "class kind output dtype" with a message of the first of each.
        errors: what could not be judged.
    """

    counts: Counter[str] = field(default_factory=Counter)
    findings: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)


def tallied(
    kernel: BoundKernel, cases: int, *, items: int = 10, budget: SizeBudget = SMALL,
    seed: int = 7, explained: int = 4, stops: bool = False,
    seconds: float | None = None,
) -> Tally:  # fmt: skip
    """Judge cases of one kernel.

    What an item of a batch shows is judged again as a case of its own.

    Args:
        kernel: to judge.
        cases: how many.
        items: of each structure; 1 where calls do not batch.
        budget: limits on the sizes of cases.
        seed: of the structures.
        explained: failing cases whose class is told, at a dozen calls each.
        stops: whether the first finding ends it.
        seconds: after which no further round begins.
    """
    began, made = time.monotonic(), Tally()
    counts = made.counts
    classes = frozenset(CLASSES) - _LEFT_OUT
    evaluator = Evaluator(kernel, setting_of("cpu", budget, classes))
    prefilter = Prefilter(kernel, torch.device("cpu"), classes)
    groups = groups_of(kernel)

    def alone(case: Case) -> None:
        """Judge one case by itself."""
        counts["cases"] += 1
        report = evaluator.judge(case, Depth.BASE)
        if report.failure is not None and counts["failing"] < explained:
            report = evaluator.judge(case, Depth.FULL)
        if (found := report.failure) is not None:
            counts["failing"] += 1
            output = output_of(found.output)
            key = f"{found.contract} {found.kind} {output} {case.data.dtype}"
            made.findings.setdefault(key, f"{found.message} | {_described(case)}")
        values = [report.verdicts.get(c) for c in _VALUES]
        counts["decided"] += Verdict.CONFORMS in values or Verdict.VIOLATES in values
        counts["rejected"] += report.refusal is not None
        counts["outside"] += bool(report.oracle_raised)
        if why := report.error or report.unsupported:
            made.errors.setdefault("error", why)

    def take(case: Case) -> CaseReport | None:
        if counts["cases"] >= cases or (stops and made.findings):
            return None
        counts["structures"] += 1
        size = min(items, cases - counts["cases"])
        if size == 1:
            alone(case)
            return None
        batch = groups.burst(case, size, counts["structures"])
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
        made.errors["error"] = "no case can be drawn"
    # What cannot be batched counts one case.
    while strategy is not None and counts["cases"] < cases:
        before = counts["structures"]
        search_round(strategy, take, cases=cases // items + 1, seed_value=seed + before)
        if counts["structures"] == before or (stops and made.findings):
            break
        if seconds is not None and time.monotonic() - began > seconds:
            break
    return made


def _described(case: Case) -> str:
    tensors = [
        f"{n}: {s.dtype}{list(s.shape)} {s.fill.family if s.fill else ''}"
        f"{' strided' if s.strides else ''}{' plants' if s.plants else ''}"
        for n, s in case.tensors.items()
    ]
    scalars = [f"{n}={v!r}" for n, v in case.scalars.items()]
    return "; ".join([*tensors, *scalars])
