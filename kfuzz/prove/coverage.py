"""Which program, iteration and lane stores a given element: a witness for each one.

An index is a sum of places, each with its step: a program's number times the block, an
iteration's times another, a lane. So the place with the largest step is the index
divided by it, and the others share what is left, as digits of a number do. That this
finds a program that exists, with its mask set, is then a goal without quantifiers.
"""

from kfuzz.prove.ir.terms import (
    ITERATION,
    LANE,
    PROGRAM,
    QUOTIENT,
    REMAINDER,
    Atom,
    Cond,
    Poly,
    Rewriter,
    all_of,
    as_poly,
    at_most,
    atoms_in,
    below,
    equal,
    quotient,
    recomposed,
    remainder,
)
from kfuzz.prove.ir.values import Access, grid, symbol
from kfuzz.prove.relations import Layout


def element_of(layout: Layout) -> tuple[Poly, ...]:
    """Return the indices of any one element in a layout, as symbols."""
    return tuple(as_poly(symbol(f"element.{d}")) for d in range(len(layout.sizes)))


def witness(
    access: Access, layout: Layout, indices: tuple[Poly, ...], fix: Rewriter
) -> Cond | None:
    """Return what has to hold where an element is stored: by the program chosen for it.

    Returns:
        None where no witness is found by this method.
    """
    indices = tuple(recomposed(fix.poly(index)) for index in indices)
    elements = element_of(layout)
    chosen: dict[Atom, Poly] = {}
    for index, element in zip(indices, elements, strict=True):
        if not _digits(index, element, chosen):
            return None
    # The program whose quotient and remainder were chosen.
    divided: dict[tuple[Poly, Poly], Poly] = {}
    while True:
        pending = [
            a
            for a in chosen
            if a.kind in (QUOTIENT, REMAINDER) and a.parts not in divided
        ]
        if not pending:
            break
        # What is made of others was made after them.
        last = max(pending, key=lambda a: a.number)
        made = _composed(last, chosen)
        if made is None:
            return None
        divided[last.parts] = made
    free = {
        atom
        for part in (*indices, access.path, access.mask)
        for atom in atoms_in(fix.any(part))
        if atom.kind in (PROGRAM, LANE, ITERATION) and atom not in chosen
    }
    for atom in free:
        chosen[atom] = as_poly(0)
    put = Rewriter(lambda atom: chosen.get(atom))
    goals = [
        equal(put.poly(index), element)
        for index, element in zip(indices, elements, strict=True)
    ]
    for (left, right), dividend in divided.items():
        goals.append(at_most(1, fix.poly(right)))
        goals.append(equal(put.poly(fix.poly(left)), dividend))
    for atom, place in chosen.items():
        goals.append(at_most(0, place))
        if atom.kind == REMAINDER:
            goals.append(below(place, fix.poly(atom.parts[1])))
        if atom.kind == PROGRAM:
            goals.append(below(place, fix.poly(as_poly(grid(atom.parts[0])))))
        elif atom.kind == LANE:
            goals.append(below(place, access.shape[atom.parts[0]]))
    goals += [put.cond(fix.cond(access.path)), put.cond(fix.cond(access.mask))]
    return all_of(goals)


def _digits(index: Poly, element: Poly, chosen: dict[Atom, Poly]) -> bool:
    """Choose the places of one index; return whether that could be done."""
    rest = element
    places: list[tuple[Poly, Atom]] = []
    for monomial, factor in index.terms.items():
        moving = [atom for atom in monomial if _moves(atom)]
        steps = [atom for atom in monomial if not _moves(atom)]
        step = as_poly(factor)
        for atom in steps:
            step = step * as_poly(atom)
        if not moving:
            rest = rest - step
        elif len(moving) == 1:
            places.append((step, moving[0]))
        else:
            return False
    if len({atom for _, atom in places}) != len(places):
        return False
    places.sort(key=_size, reverse=True)
    for step, atom in places:
        if atom in chosen:
            rest = rest - step * chosen[atom]
            continue
        if step.constant is not None and step.constant <= 0:
            return False
        chosen[atom] = quotient(rest, step)
        rest = remainder(rest, step)
    return True


def _size(place: tuple[Poly, Atom]) -> tuple[int, int, bool]:
    step, atom = place
    degree = max((len(m) for m in step.terms), default=0)
    return degree, max(step.terms.values(), default=0), atom.kind != LANE


def _moves(atom: Atom) -> bool:
    """Whether an atom differs between programs, iterations or lanes."""
    return any(a.kind in (PROGRAM, LANE, ITERATION) for a in atoms_in(atom))


def _composed(atom: Atom, chosen: dict[Atom, Poly]) -> Poly | None:
    """Choose what a quotient and a remainder that were chosen divide, and return it.

    That the dividend has them follows where the remainder is below the divisor; that
    its places make it up is for the caller to show. None where they cannot be chosen.
    """
    left, right = atom.parts
    whole, rest = Atom(QUOTIENT, left, right), Atom(REMAINDER, left, right)
    upper = chosen.setdefault(whole, as_poly(0))
    lower = chosen.setdefault(rest, as_poly(0))
    dividend = upper * right + lower
    return dividend if _digits(left, dividend, chosen) else None
