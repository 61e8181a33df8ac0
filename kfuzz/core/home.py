"""Where kfuzz itself is installed: what its own processes need on their path."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

HOME: Final = str(Path(__file__).resolve().parents[2])
"""The folder that holds the package."""


def with_home(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which Python finds this kfuzz before any other."""
    path = filter(None, (HOME, environment.get("PYTHONPATH")))
    return {**environment, "PYTHONPATH": os.pathsep.join(path)}
