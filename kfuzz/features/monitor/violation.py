"""What a violation in production is told with, and how much of the data it holds."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

import torch
from torch import Tensor

from kfuzz.core.recipe import Scalar
from kfuzz.core.verdict import Failure, Kind
from kfuzz.features.monitor.gate.host import Reason
from kfuzz.features.monitor.seen import Seen, TensorCopy

# Of two elements mean and deviation give both away, of a few a good guess.
FEWEST: Final = 32
"""Finite elements that statistics are of, at least, where no element may be told."""


_LOGGED: Final = (
    "function", "contract", "kind", "output", "elements", "ratio", "call", "why",
    "finding",
)  # fmt: skip


class Keep(StrEnum):
    """How much of a call's data leaves the monitor.

    FULL: the inputs themselves; only then are findings stored.
    SUMMARY: shapes, scalars, statistics, the least and the greatest element of each
        argument, and the numbers at the worst element.
    STATISTICS: shapes, how many elements are NaN or infinite, how many miss and by how
        many times the tolerance; of arguments with `FEWEST` finite elements or more
        their mean, deviation and number of zeros. No element, no index and no scalar.
        That is no anonymity: elements that are all alike, or one far above the others,
        show in a mean.
    """

    FULL = "full"
    SUMMARY = "summary"
    STATISTICS = "statistics"


@dataclass(frozen=True)
class TensorSummary:
    """What is told of a tensor in place of its elements.

    Attributes:
        shape: sizes.
        dtype: torch's name without the prefix.
        strides: in elements.
        device: where it lay.
        mean, deviation: of its finite elements; None where it has none, holds no
            numbers, or they may not be told.
        least, greatest: two of its finite elements; None likewise, and always where
            statistics alone are kept.
        nan, infinite: how many elements are so.
        zero: likewise; None where it may not be told.
    """

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...]
    device: str
    mean: float | None = None
    deviation: float | None = None
    least: float | None = None
    greatest: float | None = None
    nan: int = 0
    infinite: int = 0
    zero: int | None = 0


@dataclass(frozen=True)
class Violation:
    """One call that broke its contract.

    Attributes:
        function: name of the monitored function.
        operator: name of what it is held to.
        contract: the contract class, e.g. "C-PRC-01"; provisional until the finding
            is shrunk, since one call cannot tell all classes apart.
        kind: how it shows.
        output: the result concerned, "" for none.
        message: one line.
        elements: how many elements of that result miss.
        ratio: |error| / tolerance at the worst element; None where that is 0.
        index: logical index of the worst element.
        actual: what the function gave there.
        expected: the reference there.
        low, high: what is allowed there.
        inputs: what is told of each tensor argument.
        scalars: the other arguments.
        values: the tensor arguments as they were before the call, on the CPU; None
            unless everything is kept.
        call: number of the call.
        why: why it was looked at.
        when: UTC time, ISO 8601 to the second.
        finding: id of the stored finding, "" where none was stored.
        path: its folder, "" likewise.
    """

    function: str
    operator: str
    contract: str
    kind: Kind
    output: str
    message: str
    elements: int
    ratio: float | None
    inputs: Mapping[str, TensorSummary]
    call: int
    why: Reason
    when: str
    index: tuple[int, ...] | None = None
    actual: float | None = None
    expected: float | None = None
    low: float | None = None
    high: float | None = None
    scalars: Mapping[str, Scalar] = field(default_factory=dict)
    values: Mapping[str, Tensor] | None = field(default=None, repr=False)
    finding: str = ""
    path: str = ""

    def fields(self) -> dict[str, Any]:
        """Return what structured logs hold: plain values, no tensor."""
        found = {name: getattr(self, name) for name in _LOGGED}
        return {
            f"kfuzz_{name}": str(value) if isinstance(value, StrEnum) else value
            for name, value in found.items()
        }


def violation_of(
    failure: Failure,
    seen: Seen,
    *,
    keep: Keep,
    scalars: Mapping[str, Scalar],
    **known: Any,
) -> Violation:
    """Return the evidence of a failure, as far as the data may be told.

    Args:
        failure: as the judge attributed it.
        seen: the call.
        keep: how much is told.
        scalars: the arguments that are no tensors.
        known: what `Violation` says of function and call: function, operator, call,
            why, when, finding and path.
    """
    # The message quotes the worst element.
    what = f"{failure.output}: " if failure.output else ""
    message = f"{what}{failure.kind} ({failure.contract})"
    told: dict[str, Any] = {}
    if keep is not Keep.STATISTICS:
        message = failure.message
        told = {
            "index": failure.index, "actual": failure.got, "low": failure.low,
            "expected": failure.expected, "high": failure.high,
            "scalars": dict(scalars),
        }  # fmt: skip
    if keep is Keep.FULL:
        told["values"] = {n: copy.values.clone() for n, copy in seen.tensors.items()}
    return Violation(
        contract=failure.contract, kind=failure.kind, output=failure.output,
        message=message, elements=failure.elements, ratio=failure.ratio,
        inputs={
            name: summary_of(copy, elements=keep is not Keep.STATISTICS)
            for name, copy in seen.tensors.items()
        },
        **told, **known,
    )  # fmt: skip


def summary_of(copy: TensorCopy, *, elements: bool) -> TensorSummary:
    """Return what is told of a tensor.

    Args:
        copy: the tensor.
        elements: whether single elements may be told.
    """
    made = TensorSummary(
        copy.shape, str(copy.dtype).removeprefix("torch."), copy.strides,
        str(copy.device),
    )  # fmt: skip
    if copy.dtype is torch.bool or not copy.values.numel():
        return made
    wide = copy.values.to(torch.float64)
    finite = wide[torch.isfinite(wide)]
    few = not elements and finite.numel() < FEWEST
    some = bool(finite.numel()) and not few
    return replace(
        made,
        mean=float(finite.mean()) if some else None,
        deviation=float(finite.std(unbiased=False)) if some else None,
        least=float(finite.min()) if some and elements else None,
        greatest=float(finite.max()) if some and elements else None,
        nan=int(wide.isnan().sum()), infinite=int(wide.isinf().sum()),
        zero=None if few else int((finite == 0).sum()),
    )  # fmt: skip
