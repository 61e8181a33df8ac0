"""What torch's own CPU kernels claim, by overload, and the findings that are true."""

from functools import cache
from typing import Any

import torch

from kfuzz.contracts.aten.rows import ROWS
from kfuzz.contracts.platform.catalogue import kernels


@cache
def _platform() -> dict[str, dict[str, Any]]:
    """Return what torch's kernels of the suite's operators claim, by their names."""
    return {k.name: k.excused for k in kernels("cpu", torch.__version__)}


def claims_of(name: str) -> dict[str, Any]:
    """Return the declaration of torch's own kernel of an overload."""
    suite = ROWS[name].suite
    if suite:
        return dict(_platform().get(f"torch_{suite}", {}))
    return {}
