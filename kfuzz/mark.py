"""Marks for pytest: a search as a test."""

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

    The test fails on confirmed findings. It prints the minimal input and the command
    that replays it. The end of pytest's report lists known and unconfirmed findings.
    Findings are stored in the folder of --kfuzz-corpus, or in the project's corpus.

    Args:
        kernel: the value that `kfuzz.kernel(...)` returned.
        options: those of `kfuzz.falsify`: max_cases, max_time (seconds), seed, device,
            corpus, profile.

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
