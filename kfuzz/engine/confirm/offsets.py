"""32-bit offsets that overflow: which product, its values, the cast that mends it."""

from collections.abc import Iterator
from typing import Final

from kfuzz.core.declaration import INT32_ELEMENTS
from kfuzz.core.finding import Finding
from kfuzz.core.recipe import TensorSpec
from kfuzz.core.verdict import Access

_WRAP: Final = 1 << 32
_CAST: Final = (
    "cast the index to 64 bits before it is multiplied: `i.to(tl.int64) * stride` in "
    "Triton, `(int64_t)i * stride` in C++"
)
_DECLARE: Final = (
    'or declare offsets="int32": such sizes and strides are not drawn then'
)


def offset_lines(finding: Finding, *, apart: bool) -> tuple[str, ...]:
    """Return what says that an offset of 32 bits overflows; none where nothing does.

    An access that lies 2^32 elements below an element of the view is proof. Where none
    was seen, strides that stayed far apart are: a reduction brings them near first.

    Args:
        finding: with its minimal case.
        apart: whether nearer strides, or the rows by themselves, are known to pass.
    """
    case = finding.case
    found = [
        (access.argument, case.memory(access.argument), access.offset + _WRAP)
        for access in finding.failure.accesses
        if access.argument in (*case.tensors, *case.destinations)
        and _is_wrapped(access, case.memory(access.argument))
    ]
    if not found and apart:
        found = [
            (name, spec, spec.span - 1)
            for name, spec in case.tensors.items()
            if spec.span > INT32_ELEMENTS
        ]
    lines = [_product(*each) for each in found[:1]]
    return (*lines, _CAST, _DECLARE) if lines else ()


def _is_wrapped(access: Access, spec: TensorSpec) -> bool:
    return 0 <= access.offset + _WRAP < spec.span


def _product(name: str, spec: TensorSpec, offset: int) -> str:
    """Return the overflow at an offset in words, with the product that causes it."""
    terms = list(_terms(spec, offset))
    axis, index, stride = max(terms, key=lambda term: term[1] * term[2])
    product = f"{index:,} * {stride:,} = {index * stride:,} (index * stride of {axis})"
    if index * stride < INT32_ELEMENTS:
        product = " + ".join(f"{i:,} * {s:,}" for _, i, s in terms if i * s)
        product += f" = {offset:,} (indices * strides)"
    wrapped = (offset + INT32_ELEMENTS) % _WRAP - INT32_ELEMENTS
    return (
        f"32-bit offset overflow in {name}: {product} is above 2,147,483,647, so that "
        f"the offset {offset:,} becomes {wrapped:,}"
    )


def _terms(spec: TensorSpec, offset: int) -> Iterator[tuple[str, int, int]]:
    """Yield axis, index and stride that add up to an offset, the widest first."""
    steps = zip(spec.axes, spec.shape, spec.element_strides, strict=True)
    for axis, n, stride in sorted(steps, key=lambda step: -step[2]):
        index = min(offset // stride, n - 1) if stride else 0
        offset -= index * stride
        yield axis, index, stride
