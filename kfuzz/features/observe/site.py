"""What processes of a followed program import first, as their `sitecustomize`.

A copy of this file. Nothing of kfuzz's is loaded before torch is: pytest warns of
plugins that are there before it is.
"""

import importlib.abc
import importlib.util
import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any


class WaitForTorch(importlib.abc.MetaPathFinder):
    """Has launches checked from the moment on at which torch is imported."""

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        """Return None of all but torch, whose import it follows."""
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        found = importlib.util.find_spec(name)
        if found is not None and found.loader is not None:
            loader: Any = found.loader
            execute = loader.exec_module

            def followed(module: ModuleType) -> None:
                execute(module)
                for name in os.environ["KFUZZ_FOLLOWED_BY"].split(","):
                    importlib.import_module(name).begin()

            loader.exec_module = followed
        return found


if __name__ == "sitecustomize":
    sys.meta_path.insert(0, WaitForTorch())
    sys.path.remove(str(Path(__file__).parent))
    hidden = PathFinder.find_spec("sitecustomize")
    if hidden is not None and hidden.loader is not None:  # the user's own
        hidden.loader.exec_module(importlib.util.module_from_spec(hidden))
