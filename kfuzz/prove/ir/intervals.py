"""Whether a number fits its type whatever the launch: bounds without a solver."""

from kfuzz.prove.ir.terms import LANE, PROGRAM, Atom, Poly
from kfuzz.prove.ir.values import Shape

# A grid has at most so many programs along each axis.
_PROGRAMS = (2**31 - 1, 65535, 65535)
_Bounds = tuple[int, int]


def fits(poly: Poly, bits: int, shape: Shape) -> bool:
    """Return whether a sum of programs' numbers and lanes stays in range.

    Args:
        poly: the number; what depends on anything else is not decided.
        bits: of its type; 0 where it has to be at least 0.
        shape: of the block whose lanes occur.
    """
    low = high = 0
    for monomial, factor in poly.terms.items():
        least, most = 1, 1
        for atom in monomial:
            limit = _limit(atom, shape)
            if limit is None:
                return False
            least, most = least * 0, most * limit
        if not monomial:
            least = 1
        ends = sorted((factor * least, factor * most))
        low, high = low + ends[0], high + ends[1]
    if not bits:
        return low >= 0
    return -(1 << bits - 1) <= low and high < 1 << bits - 1


def _limit(atom: Atom, shape: Shape) -> int | None:
    """Return the greatest value of an atom that is at least 0; None if unknown."""
    if atom.kind == PROGRAM:
        axis: int = atom.parts[0]
        return _PROGRAMS[axis] - 1
    if atom.kind == LANE and len(atom.parts) == 1 and atom.parts[0] < len(shape):
        dim: int = atom.parts[0]
        return shape[dim] - 1
    return None
