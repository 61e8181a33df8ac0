"""Findings that are defects of torch's, as listed."""

from collections.abc import Iterable

from kfuzz.contracts.platform.table import Defect, holds


def is_listed(
    kernel: str, contract: str, defects: Iterable[Defect], device: str, version: str
) -> bool:
    """Whether a finding is among the defects."""
    return any(
        kernel in d.kernels and d.contract == contract and holds(d, device, version)
        for d in defects
    )
