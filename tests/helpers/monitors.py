"""What tests of monitored functions share."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest

import kfuzz
from kfuzz.features.monitor.runtime import Counts

SECONDS = 90.0


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Start from the defaults, and leave nothing to be checked."""
    kfuzz.monitor.start()
    yield
    assert kfuzz.monitor.flush(SECONDS), f"checks were pending for {SECONDS} s"


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Log no violation."""
    log = logging.getLogger("kfuzz.monitor")
    before = log.level
    log.setLevel(logging.CRITICAL)
    yield
    log.setLevel(before)


def settled(function: Any) -> Counts:
    """Return the counts of a monitored function once all its calls are judged."""
    assert kfuzz.monitor.flush(SECONDS), f"checks were pending for {SECONDS} s"
    counts: Counts = function.monitor.statistics()
    return counts
