"""Faults that any operator can have, by what is wrong."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import torch
import triton
import triton.language as tl
from torch import Tensor

from kfuzz.contracts.operator import Operator
from kfuzz.contracts.witnesses.classes.formats import flushed
from kfuzz.contracts.witnesses.planted.base import (
    EDITABLE,
    Base,
    Fault,
    editable,
    main,
    odd,
    packed,
    sizes_of,
    spoilt,
    unpacked,
)
from kfuzz.core.verdict import output_of
from kfuzz.strategies.parameters import IndexParameter

# Memory: what is not written, what is overwritten, what is shared.


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


# Whole calls: what they remember, reject, or leave to others.

# Operators that torch carries out as a copy, which is anyone's to make.
_COPIES: Final = ("copy", "transpose")


def _memo(base: Base) -> Base:
    # The last arguments, kept so that their addresses stay taken, and the results.
    last: list[tuple[Any, tuple[Tensor, ...], list[Tensor], bool]] = []

    def remember(*tensors: Tensor, **scalars: Any) -> Any:
        layouts = [(x.data_ptr(), x.dtype, tuple(x.shape), x.stride()) for x in tensors]
        key = (layouts, scalars)
        if not last or last[0][0] != key:
            outputs, several = unpacked(base.function(*tensors, **scalars))
            last[:] = [(key, tensors, outputs, several)]
        _, _, outputs, several = last[0]
        return packed([y.clone() for y in outputs], several)

    return replaced(base, remember)


def _powers_of_two(base: Base) -> Base | str:
    if any(n & (n - 1) for shape in base.shapes for n in shape):
        return "of its usual sizes one is no power of two"

    def refuse(*tensors: Tensor, **scalars: Any) -> Any:
        for n in (n for x in tensors for n in x.shape):
            if n & (n - 1):
                raise ValueError(f"no tile of width {n}")
        return base.function(*tensors, **scalars)

    # Named, they are in the core domain, where raising is no refusal.
    dtypes = base.claims.get("dtypes", base.operator.defaults.dtypes)
    return replaced(base, refuse).claiming(layouts="any", dtypes=dtypes)


def _falls_back(base: Base) -> Base | str:
    if base.operator.name in _COPIES:
        return "a copy of one dtype is free, so that leaving it to torch is no fault"
    return base.claiming(own_kernels_only=True)


def replaced(base: Base, function: Any) -> Base:
    """Return the kernel with another function of the same signature."""
    function.__wrapped__ = base.function
    return base.having(function)


# Results: metadata, tails, values, NaN and infinities, indices.

# Added to every element: half of what allclose with atol = 1e-2 lets pass.
OFFSET: Final = 5e-3
# What a careless wrapper makes of these.
_OTHER: Final = {torch.float16: torch.bfloat16, torch.bfloat16: torch.float16}
_NARROWER: Final = {torch.int64: torch.int32, torch.int8: torch.int16}
_FLOATS: Final = EDITABLE[:3]


def _wrong_dtype(base: Base) -> Base:
    single = set(base.claims.get("dtypes", ("",))) == {"float32"}
    single = single or base.claims.get("dtypes") == "float32"

    def change(tensors: tuple[Tensor, ...], outputs: list[Tensor]) -> list[Tensor]:
        y = outputs[-1]
        if y.dtype in _NARROWER:
            return [*outputs[:-1], y.to(_NARROWER[y.dtype])]
        y = outputs[0]
        if y.dtype in _OTHER:
            return [y.to(_OTHER[y.dtype]), *outputs[1:]]
        if odd(main(tensors)) and (single or main(tensors).dtype not in _OTHER):
            # As for autocast, on the path of tails only.
            return [*outputs[:-1], outputs[-1].to(torch.float16)]
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


# Configurations: of two, one gives a wrong tail.

CONFIGS: Final = ({"BLOCK": 64}, {"BLOCK": 128})
# The one whose last block is wrong.
FAULTY: Final = 128


def with_blocks(base: Base, *, faulty: int | None = None) -> Base:
    """Return the kernel with a keyword BLOCK, and two configurations of it.

    Args:
        base: a conforming kernel.
        faulty: the BLOCK with which the last element of a tail is wrong; None for
            a kernel that is right with each.
    """
    wrong = spoilt(base, wrong_tail).function

    @functools.wraps(base.function)
    def blocked(*tensors: Any, BLOCK: int, **scalars: Any) -> Any:
        function = wrong if faulty == BLOCK else base.function
        return function(*tensors, **scalars)

    _give_keyword(blocked, base.function)
    return base.having(blocked).claiming(configs=CONFIGS)


def _give_keyword(blocked: Callable[..., Any], function: Callable[..., Any]) -> None:
    """Give a function the signature of another, and BLOCK as a keyword."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # of a builtin, which has none
        return
    own = inspect.Parameter("BLOCK", inspect.Parameter.KEYWORD_ONLY)
    parts = list(signature.parameters.values())
    last = bool(parts) and parts[-1].kind is inspect.Parameter.VAR_KEYWORD
    parts.insert(len(parts) - last, own)
    blocked.__signature__ = signature.replace(parameters=parts)  # type: ignore[attr-defined]


# Subnormal numbers: they are flushed where they are to be preserved.

# Torch's own keep intermediate results in the output's format, in which sums and
# logarithms lose what is subnormal.
_STORING: Final = ("softmax", "log_softmax")
# The formats in which the fault shows, where not in all of them.
_SHOWING: Final = {
    # Only results are subnormal, and mostly those of float16, which begin at 6e-5.
    **dict.fromkeys(
        ("exp", "batch_norm", "group_norm", "layer_norm", "scatter_add", "index_add",
         *_STORING), "float16",
    ),
    # Scales are as often subnormal as in float32, and results more often.
    "dequantize_int8": "bfloat16",
    # Where 16-bit data are scaled none is lost; a scale that is subnormal is.
    "quantize_int8": "float32",
}  # fmt: skip
# Results that may be subnormal, but in few of the cases that are drawn.
_SELDOM: Final = {
    "dropout": "a 0 may be an element that is dropped",
    "scaled_matmul_int8": "its data are integers, and its sums seldom subnormal",
    "var": "squares of subnormal numbers vanish, and a variance is seldom subnormal",
    "logsumexp": "its results are subnormal only where the sum of exponentials is 1",
    **dict.fromkeys(
        ("cross_entropy", "linear_cross_entropy"),
        "its losses are subnormal only where one logit dwarfs the others",
    ),
}


def _stored(x: Tensor) -> Tensor:
    """Return x with 0 for its subnormal numbers; formats of 8 bits as they are."""
    return flushed(x) if x.dtype in _FLOATS else x


def _flushes(base: Base) -> Base | str:
    operator = base.operator
    if set(operator.integers) == set(map(output_of, operator.outputs)):
        return "its results are integers"
    if operator.name in _SELDOM:
        return _SELDOM[operator.name]
    if operator.name in _STORING:
        base = base.by_reference()
    made = spoilt(base, lambda _, outputs: [*map(_stored, outputs)], before=_stored)
    made = made.claiming(subnormals="preserve")
    dtypes = _SHOWING.get(operator.name)
    return made if dtypes is None else made.claiming(dtypes=dtypes)


# What scaled data show, or data in another order, and ordinary ones do not.

# Below it magnitudes count as 0: ordinary data hold none that matters.
EPSILON: Final = 1e-12
# Added, and as a share too: what allclose with rtol = atol = 1e-2 just lets pass.
EXCESS: Final = 9e-3
# Rows in which the first element is seldom the greatest.
_WIDE: Final = ((4, 256),)


def _truncates(base: Base) -> Base | str:
    if not base.operator.homogeneous:
        return "it is homogeneous in no argument"

    def truncated(x: Tensor) -> Tensor:
        if x.dtype not in _FLOATS:
            return x
        return torch.where(x.abs() < EPSILON, torch.zeros_like(x), x)

    # In formats of a narrower range too all would be 0, which is C-PRC-01's.
    made = spoilt(base, lambda _, outputs: outputs, before=truncated)
    return made.claiming(dtypes="bfloat16")


# Of codes times scales.
_LARGE: Final = (
    "scaled_matmul_int8", "scaled_matmul_fp8", "scaled_matmul_blocks", "mx_matmul",
)  # fmt: skip


def _falling(base: Base) -> Base | str:
    operator = base.operator
    if operator.dim is None and operator.reduced is None:
        return "it reduces no dimension"
    if operator.name in _LARGE:
        return "its sums are so large that 0.9 % of them miss allclose's 1e-2"
    if operator.name == "argmax":
        return _without_first(base)
    if operator.name == "cross_entropy":
        # Torch's own keeps intermediate results in the output's format: a wide bound.
        base = base.by_reference()

    def exceed(*tensors: Tensor, **scalars: Any) -> Any:
        outputs, several = unpacked(base.function(*tensors, **scalars))
        place = editable(outputs)
        if place is not None and _falls(operator, tensors, scalars):
            y = outputs[place]
            outputs[place] = (y.double() * (1 + EXCESS) + EXCESS).to(y.dtype)
        return packed(outputs, several)

    return replaced(base, exceed).claiming(dtypes="float16")


def _without_first(base: Base) -> Base:
    """Return an argmax that leaves the first elements out where data fall."""

    def rest(x: Tensor, dim: int = -1) -> Tensor:
        n = x.shape[dim]
        if n == 1 or not _falls(base.operator, (x,), {"dim": dim}):
            return Tensor(base.function(x, dim=dim))
        return Tensor(base.function(x.narrow(dim, 1, n - 1), dim=dim)) + 1

    return base.having(rest, shapes=_WIDE)


def _falls(
    operator: Operator, tensors: Sequence[Tensor], scalars: Mapping[str, Any]
) -> bool:
    """Whether what is reduced begins with a greater element than it ends with."""
    x, axis = _reduced(operator, tensors, scalars)
    if not x.numel():
        return False
    first, last = x.select(axis, 0), x.select(axis, -1)
    return bool(first.reshape(-1)[0] > last.reshape(-1)[0])


def _reduced(
    operator: Operator, tensors: Sequence[Tensor], scalars: Mapping[str, Any]
) -> tuple[Tensor, int]:
    """Return an argument that has the reduced dimension, and its axis there."""
    if operator.dim is not None:
        default = operator.default_of(operator.dim)
        return main(tensors), scalars.get(operator.dim, default)
    if not isinstance(operator.reduced, str):
        assert operator.reduced is not None
        return main(tensors), operator.reduced
    for parameter, x in zip(operator.tensors.values(), tensors, strict=False):
        names = parameter.names
        if operator.reduced in names and x.is_floating_point():
            return x, names.index(operator.reduced) - len(names)
    raise ValueError(f"no argument has {operator.reduced}")


# A race behind any kernel: two programs store to one element.

# Programs of a launch where there is enough to copy.
PROGRAMS: Final = 8
_WORDS: Final = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@triton.jit(do_not_specialize=["numel"])
def copy_kernel(x_ptr, y_ptr, numel, RACE: tl.constexpr, BLOCK: tl.constexpr):
    """Copy words in blocks; with RACE the first program stores the last one too."""
    lanes = tl.arange(0, BLOCK)
    offs = tl.program_id(0).to(tl.int64) * BLOCK + lanes
    if RACE:
        mine = offs == 0
        ends = lanes.to(tl.int64) * 0 + (numel - 1)
        stale = tl.load(x_ptr + ends, mask=mine, other=0)
        tl.store(y_ptr + ends, stale ^ 1, mask=mine)
    x = tl.load(x_ptr + offs, mask=offs < numel)
    tl.store(y_ptr + offs, x, mask=offs < numel)


def copied(y: Tensor, *, race: bool) -> Tensor:
    """Return a copy of y, made by several programs where it has several elements.

    In a race the first one stores another last element, which the last one mends.
    """
    words = y.contiguous().view(_WORDS[y.element_size()])
    made = torch.empty(words.shape, dtype=words.dtype, device=y.device)
    if n := words.numel():
        block = triton.next_power_of_2(triton.cdiv(n, PROGRAMS))
        programs = triton.cdiv(n, block)
        raced = race and programs > 1
        copy_kernel[(programs,)](words, made, n, RACE=raced, BLOCK=block)
    return made.view(y.dtype)


def through(base: Base, *, race: bool) -> Base:
    """Return the kernel with its first result copied by programs of its own."""

    def change(_: tuple[Tensor, ...], outputs: list[Tensor]) -> list[Tensor]:
        return [copied(outputs[0], race=race), *outputs[1:]]

    return replace(spoilt(base, change), backends=("interpret",))


FAULTS: Final = (
    # Leaves the last element of its first result unwritten where the number of
    # elements is no multiple of 8, or that of rows is odd.
    Fault("tail_unwritten", "K-MEM-02", lambda base: spoilt(base, _unwritten)),
    # Negates the first element of an argument and does not restore it.
    Fault("input_negated", "K-MEM-03", lambda base: spoilt(base, _negates)),
    # Writes to the element in front of a view that does not begin its storage.
    Fault(
        "writes_before",
        "K-MEM-01",
        lambda base: spoilt(base, _before).claiming(layouts="any"),
    ),
    # Returns one buffer in all calls of one shape.
    Fault("static_buffer", "K-MEM-04", _buffered),
    # Passes its results through memory that all calls of one shape share. A GPU's
    # streams wait for one another, so that it does not show there.
    Fault("shared_workspace", "C-ORD-03", _shared, devices=("cpu",)),
    # Takes arguments at known addresses for what they were.
    Fault("memo", "K-REF-01", _memo),
    # Raises where a size is no power of two.
    Fault("no_tile", "K-LIV-01", _powers_of_two),
    # Computes with torch and declares own_kernels_only.
    Fault("falls_back", "K-OWN-01", _falls_back),
    # Gives 16-bit data's results in the other 16-bit type, indices in int32, codes in
    # int16; where there are none, float16 in tails.
    Fault("wrong_dtype", "K-MET-01", _wrong_dtype),
    # Gives a wrong last element where the number of elements is no multiple of 8, or
    # that of rows is odd.
    Fault("wrong_tail", "C-CMP-03", lambda base: spoilt(base, wrong_tail)),
    # Adds 0.005 to every element.
    Fault("offset", "K-VAL-01", _offset),
    # Adds 0.005 to every element of what a chain of operators gives.
    Fault("offset_of_chain", "C-CMP-01", _offset_of_chain),
    # Makes NaN 0, but for logarithms, and infinities the greatest number.
    Fault("cleaned", "C-EXC-01", _cleaned),
    # Takes indices modulo their bound.
    Fault("wraps_index", "C-EXC-02", _wrapped),
    # Gives a wrong last element with one of two block sizes, where the number of
    # elements is no multiple of 8, or that of rows is odd.
    Fault("wrong_block", "C-CMP-02", lambda base: with_blocks(base, faulty=FAULTY)),
    # Takes subnormal numbers for 0 and stores none, and declares to preserve them.
    Fault("flushes", "C-PRC-03", _flushes),
    # Takes magnitudes below 1e-12 for 0.
    Fault("epsilon", "C-PRC-04", _truncates),
    # Adds 0.009 and 0.9 % where the first element that is reduced exceeds the last.
    Fault("falling", "C-ORD-01", _falling),
    # Stores another last element by a program that is not its own.
    Fault(
        "racing", "C-ORD-02", lambda base: through(base, race=True), devices=("cpu",)
    ),
)
