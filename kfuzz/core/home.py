"""Where kfuzz itself is installed: what its own processes need on their path."""

from pathlib import Path
from typing import Final

HOME: Final = str(Path(__file__).resolve().parents[2])
"""The folder that holds the package."""
