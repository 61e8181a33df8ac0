"""What became of every member of a burst: outcomes reduced on the data's device."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from kfuzz.numerics.acceptance import Acceptance
from kfuzz.numerics.comparator.compare import (
    Comparison,
    Outcome,
    compare_members,
    masks_besides,
)


@dataclass(frozen=True)
class Summary:
    """One output of every member, on the data's device.

    Attributes:
        table: int64 [4, members], the rows of which the properties tell; of the
            ratios the bits.
    """

    table: Tensor

    @property
    def worst(self) -> Tensor:
        """The severest `Outcome` of any element, uint8; 0 where there is none."""
        return self.table[0].to(torch.uint8)

    @property
    def missed(self) -> Tensor:
        """Elements that violate, int64."""
        return self.table[1]

    @property
    def undecided(self) -> Tensor:
        """Elements that could not be judged, int64."""
        return self.table[2]

    @property
    def ratio(self) -> Tensor:
        """The largest |error| / tolerance, float64; 0 where there is none."""
        return self.table[3].view(torch.float64)


def summarise(
    outputs: Mapping[str, Tensor], accepted: Mapping[str, Acceptance]
) -> dict[str, Summary]:
    """Hold all outputs of many members against what is admitted, and reduce that.

    On a GPU one kernel does it per output, without waiting for the device; the
    numbers are those of `compare`, bit for bit.

    Args:
        outputs: stored results by name, [members, *shape].
        accepted: of the same names and shapes.

    Raises:
        ValueError: if the shapes differ.
        BindingError: if the operator's relation is malformed.
    """
    if not all(is_fused(outputs[name].device) for name in accepted):
        made = compare_members(outputs, accepted)
        return {name: reduced(comparison) for name, comparison in made.items()}
    for name, a in accepted.items():
        if outputs[name].shape != a.reference.shape:
            shape = tuple(outputs[name].shape)
            raise ValueError(f"output {shape}, acceptance {a.reference.shape}")
    masks = masks_besides(outputs, accepted)
    return {n: fused(outputs[n], a, masks.get(n)) for n, a in accepted.items()}


def is_fused(device: torch.device) -> bool:
    """Whether data on a device is judged by one kernel: on GPUs, where Triton is.

    Where Triton's kernels are interpreted, none of kfuzz's own is run.
    """
    interpreted = os.environ.get("TRITON_INTERPRET", "0").lower()
    return (
        device.type == "cuda"
        and interpreted not in ("1", "true", "yes", "on")
        and _has_triton()
    )


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


def fused(y: Tensor, acceptance: Acceptance, related: Tensor | None) -> Summary:
    """Return the summary of one output by one kernel; see `comparator.fused`."""
    from kfuzz.numerics.comparator.fused import judged

    if not y.numel():
        return _nothing(y)
    return Summary(judged(y, acceptance, related))


def reduced(comparison: Comparison) -> Summary:
    """Return the summary of a comparison's members."""
    outcomes = comparison.outcomes
    if not outcomes.numel():
        return _nothing(outcomes)
    rows = outcomes.flatten(1) if outcomes.dim() > 1 else outcomes.unsqueeze(-1)
    ratio = comparison.ratio.reshape(rows.shape)
    missed, undecided = rows >= Outcome.VALUE, rows == Outcome.UNDECIDED
    bits = ratio.amax(-1).view(torch.int64)
    worst = rows.amax(-1).to(torch.int64)
    return Summary(torch.stack((worst, missed.sum(-1), undecided.sum(-1), bits)))


def _nothing(like: Tensor) -> Summary:
    """Return the summary of outputs without elements."""
    table = torch.zeros((4, like.shape[0]), dtype=torch.int64, device=like.device)
    return Summary(table)
