"""Every rule there is."""

from kfuzz.contracts.gradients import (  # noqa: F401  (each enters its rules)
    elementwise,
    indexing,
    norms,
    products,
    reductions,
)
from kfuzz.contracts.gradients.rules import RULES

__all__ = ["RULES"]
