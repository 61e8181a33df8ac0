"""Trying inputs one after the other within a budget."""

import contextlib
import math
import re
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor

from tests.benchmarks.peers.subject import Budget, Found, Subject

# Compares results with what they should be; raises where they differ.
Compare = Callable[[Sequence[Tensor], Sequence[Tensor]], None]
# The arguments, and `dim`.
Drawn = tuple[list[Tensor], int]
# Told how many inputs were tried, before each: it outlives a crash.
Told = Callable[[int], None]

LONGEST_MESSAGE = 120
# More than any search draws.
UNLIMITED = 1 << 30

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_tell: list[Told] = []


def tell(told: Told) -> None:
    """Have the number of each input told before the kernel is called on it."""
    _tell[:] = [told]


class Trial:
    """One search: how many inputs were tried, and what was seen first.

    Args:
        subject: the kernel.
        budget: when to stop.
        compare: of results with what they should be.
    """

    def __init__(self, subject: Subject, budget: Budget, compare: Compare) -> None:
        self._subject = subject
        self._budget = budget
        self._compare = compare
        self._began = time.perf_counter()
        self._cases = 0
        self._seen: Found | None = None

    @property
    def over(self) -> bool:
        """Whether no further input is to be tried."""
        elapsed = time.perf_counter() - self._began
        most = math.inf if self._budget.cases is None else self._budget.cases
        spent = self._cases >= most or elapsed >= self._budget.seconds
        return self._seen is not None or spent

    def try_input(self, tensors: Sequence[Tensor], dim: int) -> bool:
        """Call the kernel on one input; return whether it is seen to be wrong."""
        own = self._subject.device
        tensors = [x.to(own) for x in tensors]
        wanted = self._subject.expected([x.clone() for x in tensors], dim)
        self._cases += 1
        for told in _tell:
            told(self._cases)
        try:
            results = self._subject.call(tensors, dim, self._cases - 1)
            if len(results) != len(wanted):
                raise AssertionError(f"{len(results)} results for {len(wanted)}")
            self._compare(results, wanted)
        except Exception as error:
            self._seen = self._end(True, _line(error))
            return True
        return False

    def found(self) -> Found:
        """Return what the search came to."""
        return self._seen or self._end(False, "")

    def _end(self, found: bool, message: str) -> Found:
        elapsed = time.perf_counter() - self._began
        return Found(found, self._cases, elapsed, message)


class _Over(Exception):
    """Ends a test of Hypothesis's."""


def by_hypothesis(
    subject: Subject,
    budget: Budget,
    seed_value: int,
    *,
    inputs: st.SearchStrategy[Drawn],
    compare: Compare,
) -> Found:
    """Try what Hypothesis draws, and do not shrink what it finds."""
    trial = Trial(subject, budget, compare)

    def once(drawn: Drawn) -> None:
        if trial.over or trial.try_input(*drawn):
            raise _Over

    with contextlib.suppress(_Over):
        seed(seed_value)(generating(budget.cases or UNLIMITED)(given(inputs)(once)))()
    return trial.found()


def warm_up() -> None:
    """Draw and compare once: what is done once in a process counts in no search."""

    def once(_: object) -> None:
        pass

    drawn = arrays(np.float32, (4, 4), elements=st.floats(-1, 1, width=32))
    generating(1)(given(drawn)(once))()
    torch.testing.assert_close(torch.ones(1), torch.ones(1))


def generating(cases: int) -> settings:
    """Return settings under which inputs are drawn and nothing is shrunk or stored."""
    return settings(
        max_examples=cases,
        database=None,
        deadline=None,
        derandomize=False,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
        print_blob=False,
        report_multiple_bugs=False,
    )


def _line(error: Exception) -> str:
    text = " ".join(_COLOUR.sub("", str(error)).split())
    return f"{type(error).__name__}: {text}"[:LONGEST_MESSAGE]
