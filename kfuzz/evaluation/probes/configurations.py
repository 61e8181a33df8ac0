"""The configurations of a kernel: one in each case, all of them where it misses."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from kfuzz.contracts.relation import compare_all
from kfuzz.contracts.view import View
from kfuzz.numerics.run import Run

MOST: Final = 8
"""Configurations that are tried besides the one that missed."""


def with_configs(view: View, run: Callable[[int], Run]) -> View:
    """Return the view with what other configurations come to on the same case.

    Args:
        view: a case that misses.
        run: runs it so many configurations further on, modulo how many there are.
    """
    if view.acceptance is None:
        return view
    found: dict[str, bool] = {}
    for step in range(1, min(view.base.configs, MOST + 1)):
        made = run(step)
        # A configuration that declines the case is passed over for the next.
        if made.config in (view.base.config, "") or made.unreliable:
            continue
        found[made.config] = made.comparable and not any(
            bool(m.missed.any())
            for m in compare_all(made.outputs, view.acceptance).values()
        )
    return replace(view, configs=found)


def described(config: Mapping[str, object]) -> str:
    """Return keywords in words, for example "BLOCK=64, SPLIT=True"."""
    return ", ".join(f"{name}={value!r}" for name, value in config.items())
