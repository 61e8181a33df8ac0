"""Offsets as indices: the lemma of row-major chains.

An offset q * stride + r with 0 <= q < size, for each dimension, is an element of a
tensor of these sizes and strides, and two such offsets are equal only where all indices
are, if no two elements share memory. So what the solver is asked of is single indices,
which are sums, and not offsets, which are products.
"""

from collections.abc import Iterator

from kfuzz.prove.ir.terms import Cond, Monomial, Poly, all_of, as_poly, at_most, below
from kfuzz.prove.relations import MOST_ELEMENTS, Layout

_STEPS = 64


def indices_of(offset: Poly, layout: Layout) -> tuple[Poly, ...] | None:
    """Return the index along each dimension whose element an offset is.

    The indices times the strides give the offset, whatever they are; whether they are
    within the sizes is another question. None where no such are found.
    """
    rest, made = offset, [as_poly(0)] * len(layout.strides)
    order = sorted(
        range(len(layout.strides)), key=lambda d: _rank(layout.strides[d]), reverse=True
    )
    last = order[-1] if order else None
    for dim in order:
        stride = layout.strides[dim]
        if stride == as_poly(1) and dim == last:
            made[dim], rest = made[dim] + rest, as_poly(0)
            continue
        if not stride.terms:
            continue
        lead = max(stride.terms, key=lambda m: (len(m), stride.terms[m]))
        factor = stride.terms[lead]
        for _ in range(_STEPS):
            part = _divisible(rest, lead, factor)
            if part is None:
                break
            made[dim] = made[dim] + part
            rest = rest - part * stride
    return None if rest.terms else tuple(made)


def _rank(stride: Poly) -> tuple[int, int]:
    degree = max((len(m) for m in stride.terms), default=0)
    return degree, max(stride.terms.values(), default=0)


def _divisible(rest: Poly, lead: Monomial, factor: int) -> Poly | None:
    """Return the terms that a monomial divides, divided by it."""
    found: dict[Monomial, int] = {}
    for monomial, amount in rest.terms.items():
        left = list(monomial)
        try:
            for atom in lead:
                left.remove(atom)
        except ValueError:
            continue
        whole = amount // factor if amount % factor == 0 else 0
        if not whole and not lead and abs(amount) > factor:
            whole = amount // factor
        if whole:
            found[tuple(left)] = whole
    return Poly(found) if found else None


def inside(indices: tuple[Poly, ...], layout: Layout) -> Cond:
    """Return that all indices are within the sizes."""
    return all_of(
        part
        for index, size in zip(indices, layout.sizes, strict=True)
        for part in (at_most(0, index), below(index, size))
    )


def products(indices: tuple[Poly, ...], layout: Layout) -> Iterator[Cond]:
    """Yield what follows of the products of indices that are within the sizes.

    An index times its stride lies within the span, and so do sums of these. In a dense
    tensor so does an index times the sizes of some of the dimensions after its own,
    which are parts of that.
    """
    offset = as_poly(0)
    for dim, index in enumerate(indices):
        steps = [layout.strides[dim]]
        if layout.dense:
            step = as_poly(1)
            for size in layout.sizes[dim + 1 :]:
                steps.append(step)
                step = step * size
        for step in dict.fromkeys(steps):
            yield at_most(0, index * step)
            yield below(index * step, layout.span)
            yield at_most(index * step, MOST_ELEMENTS)
        offset = offset + index * layout.strides[dim]
    yield below(offset, layout.span)
