"""Which optional tensors a case is without."""

from collections.abc import Mapping, Sequence, Set
from typing import Final

from kfuzz.core.random_streams import Purpose, generator
from kfuzz.strategies.parameters import IndexParameter, TensorParameter, widest

# One case in so many is without some, where a kernel can do without.
_SHARE: Final = 8


def removable(
    tensors: Mapping[str, TensorParameter], nullable: Set[str], needed: Set[str]
) -> tuple[str, ...]:
    """Return the tensors without which a case has all that is asked of it.

    Not the first one, which rank and shape class speak of, nor one that alone has a
    needed dimension.

    Args:
        tensors: the tensor parameters that are passed.
        nullable: the optional ones that the kernel can do without.
        needed: dimensions that others depend on.
    """
    plain = [n for n, p in tensors.items() if not isinstance(p, IndexParameter)]
    free = [n for n in tensors if n in nullable and n not in plain[:1]]
    kept = [p for n, p in tensors.items() if n not in free]
    if all(p.kind != "float" for p in kept):
        return ()
    ranks = widest(kept, default=-1)
    named = {name for p in kept for name in p.names}
    return tuple(
        name
        for name in free
        if not needed & (set(tensors[name].names) - named)
        and not (tensors[name].variadic and len(tensors[name].names) > ranks)
    )


def left_out(free: Sequence[str], drawn: object) -> frozenset[str]:
    """Return the tensors that a case is without: one alone, or all of them.

    Args:
        free: those that it may be without.
        drawn: what else is drawn, which settles it: of draws for this Hypothesis would
            make a third as many.
    """
    if not free:
        return frozenset()
    chance = generator(repr(drawn), Purpose.OPTIONAL)
    if chance.randrange(_SHARE):
        return frozenset()
    together = [tuple(free)] if len(free) > 1 else []
    return frozenset(chance.choice([*((name,) for name in free), *together]))


def shortened(lists: Sequence[Sequence[str]], drawn: object) -> frozenset[str]:
    """Return the tensors of lists that a case is without: the last ones of each."""
    chance = generator(repr((drawn, "lists")), Purpose.OPTIONAL)
    return frozenset(
        name for items in lists for name in items[chance.randint(1, len(items)) :]
    )
