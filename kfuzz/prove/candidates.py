"""Expressions that may be fitted, with their values on every launch."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kfuzz.prove.ir.terms import (
    Poly,
    least,
    quotient,
)
from kfuzz.prove.relations import cdiv

# Values of an expression on all launches, in 64 bits that wrap, and the expression.
Candidate = tuple[NDArray[Any], Callable[[], Poly]]

_FACTORS: Final = 4


def products(bases: Sequence[Candidate]) -> Iterator[Candidate]:
    """Yield products of two to four; of many bases the first ones alone."""
    few = list(bases[:12])
    last = [(i, base) for i, base in enumerate(few)]
    for count in range(2, _FACTORS + 1):
        if count > 3:
            few = few[:8]
        made = []
        for place, product in last:
            for i in range(place, len(few)):
                made.append((i, times(product, few[i])))
        yield from (product for _, product in made)
        last = made


def times(left: Candidate, right: Candidate) -> Candidate:
    """Return the product of two."""
    return left[0] * right[0], lambda: left[1]() * right[1]()


def cdiv_of(left: Candidate, right: Candidate) -> Candidate:
    """Return one divided by another, rounded up."""
    made = (left[0] + right[0] - 1) // right[0]
    return made, lambda: cdiv(left[1](), right[1]())


def least_of(left: Candidate, right: Candidate) -> Candidate:
    """Return the smaller of two."""
    return np.minimum(left[0], right[0]), lambda: least(left[1](), right[1]())


def plus(left: Candidate, step: int) -> Candidate:
    """Return one with a number added."""
    return left[0] + step, lambda: left[1]() + step


def pairs(left: Candidate, right: Candidate) -> Iterator[Candidate]:
    """Yield differences, sums and quotients of two."""
    a, b = left[0], right[0]
    yield a - b, lambda: left[1]() - right[1]()
    yield a + b, lambda: left[1]() + right[1]()
    yield a - b + 1, lambda: left[1]() - right[1]() + 1
    if (b > 0).all():
        yield a // b, lambda: quotient(left[1](), right[1]())
