"""Faults of memory: what is not written, what is overwritten, what is shared."""

from typing import Any, Final

import torch
from torch import Tensor

from kfuzz.contracts.witnesses.planted.base import Base, Fault, main, odd, spoilt


def _unwritten(tensors: tuple[Tensor, ...], outputs: list[Tensor]) -> list[Tensor]:
    y = outputs[0]
    if not odd(main(tensors)) or not y.numel():
        return outputs
    raw = y.contiguous().reshape(-1)
    made = torch.empty(y.shape, dtype=y.dtype, device=y.device)
    made.reshape(-1)[:-1].copy_(raw[:-1])
    return [made, *outputs[1:]]


def _negates(tensors: tuple[Tensor, ...], outputs: list[Tensor]) -> list[Tensor]:
    x = main(tensors)
    kept = [y.clone() for y in outputs]
    if x.numel():
        x.as_strided((1,), (1,), x.storage_offset()).neg_()
    return kept


def _before(tensors: tuple[Tensor, ...], outputs: list[Tensor]) -> list[Tensor]:
    x = main(tensors)
    if x.numel() and x.storage_offset():
        x.as_strided((1,), (1,), x.storage_offset() - 1).fill_(1.0)
    return outputs


class _Buffers:
    """Memory for results, kept from one call of some shapes to the next."""

    def __init__(self) -> None:
        self._last: tuple[Any, list[Tensor]] = (None, [])

    def holding(self, outputs: list[Tensor]) -> list[Tensor]:
        """Return the buffers with these results in them."""
        wanted = tuple((y.shape, y.stride(), y.dtype, y.device) for y in outputs)
        key, kept = self._last
        if key != wanted:
            kept = [y.clone() for y in outputs]
            self._last = wanted, kept
        for mine, y in zip(kept, outputs, strict=True):
            mine.copy_(y)
        return list(kept)


def _buffered(base: Base) -> Base:
    buffers = _Buffers()
    return spoilt(base, lambda _, outputs: buffers.holding(outputs))


def _shared(base: Base) -> Base:
    buffers = _Buffers()

    def copied(_: tuple[Tensor, ...], outputs: list[Tensor]) -> list[Tensor]:
        return [y.clone() for y in buffers.holding(outputs)]

    return spoilt(base, copied)


FAULTS: Final = (
    Fault(
        "tail_unwritten", "K-MEM-02",
        "leaves the last element of its first result unwritten where the number of "
        "elements is no multiple of 8, or that of rows is odd",
        lambda base: spoilt(base, _unwritten),
    ),
    Fault(
        "input_negated", "K-MEM-03",
        "negates the first element of an argument and does not restore it",
        lambda base: spoilt(base, _negates),
    ),
    Fault(
        "writes_before", "K-MEM-01",
        "writes to the element in front of a view that does not begin its storage",
        lambda base: spoilt(base, _before).claiming(layouts="any"),
    ),
    Fault(
        "static_buffer", "K-MEM-04",
        "returns one buffer in all calls of one shape",
        _buffered,
    ),
    Fault(
        "shared_workspace", "C-ORD-03",
        "passes its results through memory that all calls of one shape share",
        _shared,
        devices=("cpu",),  # a GPU's streams take turns of their own
    ),
)  # fmt: skip
