"""Functions of torch's as targets: the platform's own kernels stand for them."""

from collections.abc import Sequence


def resolved(targets: Sequence[str], device: str) -> tuple[str, ...]:
    """Return targets in which kernels stand for functions of torch's.

    Args:
        targets: as on the command line.
        device: torch's type of the device.

    Raises:
        UsageError: if no kernel stands for a function.
    """
    found: list[str] = []
    for target in targets:
        if not target.startswith("torch.") or ":" in target or target.endswith(".py"):
            found.append(target)
            continue
        from kfuzz.contracts.platform.lookup import targets_of  # imports torch

        found += targets_of(target, device)
    return tuple(found)
