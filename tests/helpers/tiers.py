"""The two tiers of tests: what each push runs, and what is left to the night."""

from collections.abc import Iterable
from typing import Any

import pytest


def usual(*values: Any, is_usual: bool) -> Any:
    """Return a set of parameters that each push tries, or only the night."""
    return pytest.param(*values, marks=() if is_usual else pytest.mark.slow)


def sampled(values: Iterable[Any], *, one_in: int, first: int = 0) -> list[Any]:
    """Return sets of parameters of which each push tries one in so many."""
    return [
        usual(value, is_usual=i % one_in == first) for i, value in enumerate(values)
    ]
