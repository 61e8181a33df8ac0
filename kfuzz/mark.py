"""Marks for tests: a search as a test of pytest."""

import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar

from kfuzz.core.errors import UsageError, suggestion

F = TypeVar("F", bound=Callable[..., Any])

OPTIONS: Final = ("max_cases", "max_time", "seed", "device", "corpus", "profile")


def falsify(kernel: Any, **options: Any) -> Callable[[F], F]:
    """Search for violations of a bound kernel before a test's own body runs.

        @kfuzz.mark.falsify(my_softmax, max_cases=200)
        def test_my_softmax(): ...

    The test fails on what the search confirms, with the minimal input and the line
    that replays it; what is known, and what fails at times only, is told at the end.
    Findings are kept in the folder of --kfuzz-corpus, or else the project's corpus.

    Args:
        kernel: what `kfuzz.kernel(...)` returned.
        options: as `kfuzz.falsify` has them.

    Raises:
        UsageError: if there is no such option.
    """
    for name in options:
        if name not in OPTIONS:
            raise UsageError(
                f"no option {name!r}",
                where="kfuzz.mark.falsify",
                fix=suggestion(name, OPTIONS),
            )
    pytest = sys.modules.get("pytest")
    if pytest is None:  # a child imports the file for a kernel's sake
        return lambda function: function

    def marked(function: F) -> F:
        made: F = pytest.mark.kfuzz(kernel, **options)(function)
        return made

    return marked
