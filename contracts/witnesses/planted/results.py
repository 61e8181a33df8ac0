"""Faults of results: metadata, tails, values, NaN and infinities, indices."""

from typing import Any, Final

import torch
from torch import Tensor

from kfuzz.contracts.witnesses.planted.base import (
    Base,
    Fault,
    editable,
    main,
    odd,
    sizes_of,
    spoilt,
)
from kfuzz.contracts.witnesses.planted.calls import replaced
from kfuzz.strategies.parameters import IndexParameter

# Added to every element: half of what allclose with atol = 1e-2 lets pass.
OFFSET: Final = 5e-3
# What a careless wrapper makes of these.
_WIDER: Final = {torch.float16: torch.float32, torch.bfloat16: torch.float32}
_NARROWER: Final = {torch.int64: torch.int32, torch.int8: torch.int16}
_FLOATS: Final = (torch.float32, torch.float16, torch.bfloat16)


def _wrong_dtype(base: Base) -> Base:
    single = set(base.claims.get("dtypes", ("",))) == {"float32"}
    single = single or base.claims.get("dtypes") == "float32"

    def change(tensors: tuple[Tensor, ...], outputs: list[Tensor]) -> list[Tensor]:
        y = outputs[-1]
        if y.dtype in _NARROWER:
            return [*outputs[:-1], y.to(_NARROWER[y.dtype])]
        y = outputs[0]
        if y.dtype in _WIDER:
            return [y.to(_WIDER[y.dtype]), *outputs[1:]]
        if odd(main(tensors)) and (single or main(tensors).dtype not in _WIDER):
            # By a Python number of another type, on the path of tails only.
            return [*outputs[:-1], outputs[-1].to(torch.float64)]
        return outputs

    return spoilt(base, change)


def wrong_tail(tensors: tuple[Tensor, ...], outputs: list[Tensor]) -> list[Tensor]:
    """Return results with a wrong last element where their data have a tail."""
    place = editable(outputs)
    if place is None or not odd(main(tensors)) or not outputs[place].numel():
        return outputs
    y = outputs[place].clone(memory_format=torch.contiguous_format)
    last = y.reshape(-1)[-1:]
    last.copy_(torch.where(last == 0, 1, 0).to(y.dtype))
    return [*outputs[:place], y, *outputs[place + 1 :]]


def _offset(base: Base) -> Base | str:
    if base.operator.name == "argmax":
        return "an index is right or wrong: argmax_last_of_equals is its witness"
    if base.operator.chain:
        return "a wrong value of a fused operator is reported under C-CMP-01"
    return _added(base)


def _offset_of_chain(base: Base) -> Base | str:
    if not base.operator.chain:
        return "it stands for no chain of operators"
    return _added(base)


def _added(base: Base) -> Base:
    def change(_: tuple[Tensor, ...], outputs: list[Tensor]) -> list[Tensor]:
        place = editable(outputs)
        if place is None:
            return outputs
        return [*outputs[:place], outputs[place] + OFFSET, *outputs[place + 1 :]]

    return spoilt(base, change)


def _cleaned(base: Base) -> Base | str:
    if not base.operator.takes_nonfinite:
        return "none of its arguments may be NaN or infinite"
    if base.operator.name == "argmax":
        return "its result is an index, which is never NaN or infinite"
    if base.operator.name in ("top_k_filter", "top_p_filter", "topk_routing"):
        return "NaN leaves its row undecided, and -Inf is what filters are asked for"
    if base.operator.name == "dropout":
        return "what is no number may be dropped"
    if base.operator.name == "scaled_matmul_int8":
        return (
            "its data are integers, and beside a scale that is none nothing is judged"
        )
    if base.claims.get("nonfinite") == "undefined":
        base = base.by_reference()  # torch's own has a defect there

    # Half of ordinary data has no logarithm.
    zero = torch.nan if base.operator.name == "log" else 0.0

    def change(_: tuple[Tensor, ...], outputs: list[Tensor]) -> list[Tensor]:
        return [torch.nan_to_num(y, zero) if y.dtype in _FLOATS else y for y in outputs]

    return spoilt(base, change)


def _wrapped(base: Base) -> Base | str:
    operator = base.operator
    if not operator.indices:
        return "no index parameter"
    strays = any(p.strays for p in operator.indices.values())
    if not strays or operator.defaults.out_of_bounds == "undefined":
        return "no index is out of bounds, or nothing is promised of one"
    if base.claims.get("out_of_bounds") == "undefined":
        base = base.by_reference()  # torch's own has a defect there

    def wrap(*tensors: Tensor, **scalars: Any) -> Any:
        sizes, given = sizes_of(operator, tensors), list(tensors)
        known = {n: p.default for n, p in operator.scalars.items()} | scalars
        sizes = {n: v for n, v in known.items() if type(v) is int} | sizes
        for i, parameter in enumerate(operator.tensors.values()):
            if isinstance(parameter, IndexParameter) and sizes[parameter.below]:
                index = given[i] % sizes[parameter.below]
                if parameter.ignored:
                    default = operator.scalars[parameter.ignored].default
                    spared: Any = scalars.get(parameter.ignored, default)
                    index = torch.where(given[i].eq(spared), given[i], index)
                given[i] = index
        return base.function(*given, **scalars)

    return replaced(base, wrap)


FAULTS: Final = (
    Fault(
        "wrong_dtype", "K-MET-01",
        "gives 16-bit data's results in float32, indices in int32, codes in int16; "
        "where there are none, float64 in tails",
        _wrong_dtype,
    ),
    Fault(
        "wrong_tail", "C-CMP-03",
        "gives a wrong last element where the number of elements is no multiple of 8, "
        "or that of rows is odd",
        lambda base: spoilt(base, wrong_tail),
    ),
    Fault("offset", "K-VAL-01", "adds 0.005 to every element", _offset),
    Fault(
        "offset_of_chain", "C-CMP-01",
        "adds 0.005 to every element of what a chain of operators gives",
        _offset_of_chain,
    ),
    Fault(
        "cleaned", "C-EXC-01",
        "makes NaN 0, but for logarithms, and infinities the greatest number",
        _cleaned,
    ),
    Fault("wraps_index", "C-EXC-02", "takes indices modulo their bound", _wrapped),
)  # fmt: skip
