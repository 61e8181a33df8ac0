"""Formats, error bounds, acceptance and the comparator.

What error models are written with are attributes of the package (`modelling.py`),
imported at their first use: the file of an operator names them without importing torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kfuzz.numerics.modelling import *  # noqa: F403
else:

    def __getattr__(name: str) -> Any:
        if not name.startswith("__"):
            made = vars(import_module("kfuzz.numerics.modelling"))
            if name in made:
                # Kept: whoever asks for it again finds it without this function.
                return globals().setdefault(name, made[name])
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
