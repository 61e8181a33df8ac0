"""What torch's own CPU kernels claim, by overload, and the findings that are true."""

from typing import Any


def claims_of(name: str) -> dict[str, Any]:
    """Return the declaration of torch's own kernel of an overload."""
    return {}
