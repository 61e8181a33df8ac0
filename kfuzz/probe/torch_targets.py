"""Functions of torch's as targets: the platform's own kernels stand for them."""

from collections.abc import Sequence


def resolved(targets: Sequence[str], backend: str) -> tuple[str, ...]:
    """Return targets in which kernels stand for functions of torch's.

    Args:
        targets: as on the command line.
        backend: "cpu", "interpret" or "cuda".

    Raises:
        UsageError: if no kernel stands for a function.
    """
    found: list[str] = []
    for target in targets:
        if not target.startswith("torch.") or ":" in target or target.endswith(".py"):
            found.append(target)
            continue
        from kfuzz.contracts.platform.lookup import targets_of  # imports torch

        device = "cuda" if backend == "cuda" else "cpu"
        found += targets_of(target, device)
    return tuple(found)
