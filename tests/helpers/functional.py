"""The plain functional test of witnesses, which calibrations make: a feature."""

import pytest

from kfuzz.contracts.witnesses.witness import Witness


def passes_functional(witness: Witness, *, device: str = "cpu") -> bool:
    """Whether a witness passes; skips the test where features are not there."""
    calibrating = pytest.importorskip("kfuzz.features.lab.grade.calibrating")
    passes: bool = calibrating.passes_functional(witness, device=device)
    return passes
