"""Trivial baselines: what computes nothing is judged in place of a kernel's results.

A judgement that admits zeros, NaN, a copy of an input or the results of the case before
has no power over the kernel. On one case that may be right: zeros may be expected, or
no bound may say much of data so ill-conditioned. So a case tells only whether an
baseline was refused, and of baselines those alone that differ from the kernel's own
results by a factor of two, or in being finite, where these are decided. What the cases
come to is for the run to say.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Final

import torch
from torch import Tensor

from kfuzz.contracts.evidence import Evidence
from kfuzz.contracts.judge import judge
from kfuzz.contracts.language import Probe
from kfuzz.core.random_streams import Purpose, is_sampled
from kfuzz.core.recipe import Case
from kfuzz.numerics.elements import as_integers

SHARE: Final = 1 / 32
"""The part of the conforming cases on which baselines are tried."""

MOST: Final = 32
"""Cases of one process after which no more are tried: they have shown what they can."""

ZEROS: Final = "zeros"
NANS: Final = "NaN"
COPY: Final = "a copy of an input"
STALE: Final = "the results of the case before"

# Results of more elements are not kept for the next case.
_MOST_KEPT: Final = 1 << 20
# Smaller than half of the larger one: no rounding explains it.
_FAR: Final = 0.5
# What judges values; where none of it is in force no baseline can be refused.
_JUDGES: Final = frozenset({"K-VAL-01"})

Outputs = Mapping[str, Tensor]


class TrivialBaselines:
    """Tries baselines on some of a kernel's cases, one after the other."""

    def __init__(self) -> None:
        self._before: Outputs = {}
        self._cases = 0

    def tried(
        self, evidence: Evidence, values: Outputs, classes: Collection[str]
    ) -> dict[str, bool]:
        """Return by kind whether each baseline was refused, {} on most cases."""
        before, mine = self._before, dict(evidence.base.outputs)
        if sum(y.numel() for y in mine.values()) <= _MOST_KEPT:
            self._before = mine
        judged = _JUDGES & set(classes)
        if not judged or self._cases >= MOST or not is_tried(evidence.case):
            return {}
        self._cases += 1
        told = {}
        for kind, outputs in _made(mine, values, before):
            if _differs(evidence, outputs):
                run = replace(evidence.base, outputs=outputs)
                other = replace(evidence, runs={Probe.BASE: run})
                told[kind] = judge(other, classes)[1] is not None
        return told


def is_tried(case: Case) -> bool:
    """Whether a case is among those on which baselines are tried."""
    return not case.pinned and is_sampled(case.seed, Purpose.BASELINES, SHARE)


def _made(
    mine: Outputs, values: Outputs, before: Outputs
) -> Iterator[tuple[str, Outputs]]:
    """Yield baselines of a case's results, each with its kind."""
    yield ZEROS, {n: torch.zeros_like(y) for n, y in mine.items()}
    if any(y.is_floating_point() for y in mine.values()):
        yield NANS, {n: _nan_like(y) for n, y in mine.items()}
    copies = {}
    for name, y in mine.items():
        alike = (x for x in values.values() if x.shape == y.shape)
        if (x := next(alike, None)) is not None:
            copies[name] = x.to(y.dtype)
    if copies:
        yield COPY, {**mine, **copies}
    if before and all(_fits(before.get(n), y) for n, y in mine.items()):
        yield STALE, {n: _over(before[n], y) for n, y in mine.items()}


def _nan_like(y: Tensor) -> Tensor:
    if not y.is_floating_point():
        return torch.zeros_like(y)
    return torch.full(y.shape, torch.nan, device=y.device).to(y.dtype)


def _fits(old: Tensor | None, y: Tensor) -> bool:
    return old is not None and old.dtype == y.dtype and old.numel() > 0


def _over(old: Tensor, y: Tensor) -> Tensor:
    """Return old elements in the shape of a result, from the first one again."""
    places = torch.arange(y.numel(), device=y.device) % old.numel()
    words = as_integers(old.reshape(-1))  # float8 has no indexing
    return words[places].view(old.dtype).reshape(y.shape)


def _differs(evidence: Evidence, outputs: Outputs) -> bool:
    """Whether an baseline is far from the kernel's results where these are decided."""
    for name, accepted in (evidence.acceptance or {}).items():
        y, other = (
            z.to(torch.float64) for z in (evidence.base.outputs[name], outputs[name])
        )
        decided = ~(accepted.undecidable | accepted.ambiguous)[0]
        far = (y - other).abs() > _FAR * torch.maximum(y.abs(), other.abs())
        far |= y.isnan() != other.isnan()
        far |= (y != other) & (y.isinf() | other.isinf()) & ~(y.isnan() & other.isnan())
        if bool((far & decided).any()):
            return True
    return False
