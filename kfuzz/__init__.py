"""kfuzz: a falsifier for GPU kernels."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from kfuzz import numerics as numerics
    from kfuzz.contracts import Operator as Operator
    from kfuzz.contracts import kernel as kernel
    from kfuzz.engine.api import falsify as falsify
    from kfuzz.engine.api import replay as replay

# Resolved on first use: `kfuzz --help` and the corpus verbs start without torch.
_LAZY = {
    "Operator": "kfuzz.contracts",
    "kernel": "kfuzz.contracts",
    "falsify": "kfuzz.engine.api",
    "replay": "kfuzz.engine.api",
}

__all__ = ["Operator", "__version__", "falsify", "kernel", "numerics", "replay"]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    if name == "numerics":
        return import_module("kfuzz.numerics")
    raise AttributeError(f"module 'kfuzz' has no attribute {name!r}")
