"""Kernels that compute nothing, for every operator: no witness, for all are refused.

They do not pass the plain functional test, or only where it is degenerate; a search
must report each of them.
"""

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor

from kfuzz.contracts import kernel
from kfuzz.contracts.witnesses.planted.base import Base, main, spoilt
from kfuzz.contracts.witnesses.planted.catalogue import declared
from kfuzz.contracts.witnesses.witness import Witness

Change = Callable[[tuple[Tensor, ...], list[Tensor]], list[Tensor]]
# Answers of the first calls of one shape, which later ones repeat.
_first: dict[Any, list[Tensor]] = {}


def _zeros(_: tuple[Tensor, ...], outputs: list[Tensor]) -> list[Tensor]:
    return [torch.zeros_like(y) for y in outputs]


def _nans(_: tuple[Tensor, ...], outputs: list[Tensor]) -> list[Tensor]:
    floats = [y.is_floating_point() for y in outputs]
    return [
        torch.full(y.shape, torch.nan).to(y.dtype) if f else torch.zeros_like(y)
        for y, f in zip(outputs, floats, strict=True)
    ]


def _nothing(_: tuple[Tensor, ...], outputs: list[Tensor]) -> list[Tensor]:
    return [torch.empty(y.shape, dtype=y.dtype, device=y.device) for y in outputs]


def _input(tensors: tuple[Tensor, ...], outputs: list[Tensor]) -> list[Tensor]:
    """Return the input where it has the result's form, else its first elements."""
    x = main(tensors).reshape(-1)
    made = []
    for y in outputs:
        flat = torch.zeros(y.numel(), dtype=y.dtype, device=y.device)
        n = min(x.numel(), flat.numel())
        flat[:n] = x[:n].to(y.dtype)
        made.append(flat.reshape(y.shape))
    return made


def _memory(base: Base) -> Change:
    name = base.operator.name

    def stale(_: tuple[Tensor, ...], outputs: list[Tensor]) -> list[Tensor]:
        key = (name, *((y.shape, y.dtype) for y in outputs))
        kept = _first.setdefault(key, [y.clone() for y in outputs])
        return [y.clone() for y in kept]

    return stale


KINDS: Final[dict[str, Callable[[Base], Change]]] = {
    "zeros": lambda base: _zeros,
    "nans": lambda base: _nans,
    "nothing": lambda base: _nothing,
    "input": lambda base: _input,
    "first_answer": _memory,
}
# A copy that returns a copy of its input is one.
_RIGHT: Final = {("copy", "input")}

WITNESSES: Final[list[Witness]] = []
for _base in declared("cpu", torch.__version__).values():
    for _kind, _change in KINDS.items():
        _operator = _base.operator
        if (_operator.name, _kind) in _RIGHT:
            continue
        _name = f"{_operator.name}_{_kind}"
        _made = spoilt(_base, _change(_base))
        kernel(_operator, name=_name, **_made.claims)(_made.function)
        WITNESSES.append(
            Witness(_name, "classes.baselines", "", _base.shapes, _base.dtype)
        )
