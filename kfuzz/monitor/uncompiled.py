"""Calls of monitored functions outside what torch.compile compiles.

Importing this imports torch's compiler, which only code that is being traced has.
"""

from collections.abc import Callable
from typing import Any

import torch


@torch.compiler.disable  # type: ignore[untyped-decorator]
def called(
    wrapper: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call a monitored function."""
    return wrapper(*args, **kwargs)
