"""The configurations of a kernel: one in each case, all of them where it misses."""

from collections.abc import Callable, Mapping
from typing import Final

from kfuzz.contracts.evidence import Configurations, Evidence
from kfuzz.contracts.relation import compare_all
from kfuzz.numerics.run import Run

MOST: Final = 8
"""Configurations that are tried besides the one that missed."""


def with_configs(evidence: Evidence, run: Callable[[int], Run]) -> Evidence:
    """Return the evidence with what other configurations come to on the same case.

    Args:
        evidence: a case that misses.
        run: runs it so many configurations further on, modulo how many there are.
    """
    if evidence.acceptance is None:
        return evidence
    found: dict[str, bool] = {}
    for step in range(1, min(evidence.base.configs, MOST + 1)):
        made = run(step)
        # A configuration that declines the case is passed over for the next.
        if made.config in (evidence.base.config, "") or made.unreliable:
            continue
        found[made.config] = made.comparable and not any(
            bool(m.missed.any())
            for m in compare_all(made.outputs, evidence.acceptance).values()
        )
    return evidence.knowing(Configurations(found))


def described(config: Mapping[str, object]) -> str:
    """Return keywords in words, for example "BLOCK=64, SPLIT=True"."""
    return ", ".join(f"{name}={value!r}" for name, value in config.items())
