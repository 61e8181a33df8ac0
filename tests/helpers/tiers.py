"""The two tiers of tests: what each push runs, and what is left to the night."""

from typing import Any

import pytest


def usual(*values: Any, is_usual: bool) -> Any:
    """Return a set of parameters that each push tries, or only the night."""
    return pytest.param(*values, marks=() if is_usual else pytest.mark.slow)
