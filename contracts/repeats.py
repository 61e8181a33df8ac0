"""What several runs of one case say together.

The contract classes import this, and listing them must not import torch.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kfuzz.contracts.language import Probe
from kfuzz.core.verdict import Access, Kind

if TYPE_CHECKING:
    from torch import Tensor

    from kfuzz.contracts.evidence import Miss
    from kfuzz.contracts.view import View


# Orders of programs other than the usual.
ORDERS: Final = (Probe.REVERSED, Probe.ONE_LAST, Probe.OTHER_LAST)

# Repeats on a GPU, each with what ran meanwhile, in words.
UNDER_LOAD: Final = {
    Probe.BACK_TO_BACK: "",
    Probe.BESIDE_HELD: " while another kernel holds half of the multiprocessors",
    Probe.BESIDE_COPIES: " while copies keep the memory busy",
}


def comparable(view: "View", *probes: Probe) -> bool:
    """Whether all these probes ran and left results of the right metadata."""
    return all(p in view.runs and view.runs[p].comparable for p in probes)


def agree(view: "View", one: Probe, other: Probe) -> bool:
    """Whether two probes ran and left the same bits in every output."""
    if not comparable(view, one, other):
        return False
    return not any(bool(d.any()) for d in view.differing(one, other).values())


def conforms(view: "View", probe: Probe) -> bool:
    """Whether a probe ran and every element of it is admitted."""
    if not comparable(view, probe) or view.accepted(probe) is None:
        return False
    return view.miss_of(probe) is None


def first_of(places: Mapping[str, "Tensor"]) -> tuple[str, tuple[int, ...]] | None:
    """Return the output and index of the first True element, None if none."""
    for name, mask in places.items():
        found = mask.nonzero()
        if len(found):
            return name, tuple(int(i) for i in found[0])
    return None


def accesses(view: "View", where: str) -> tuple[Access, ...]:
    """Return the base run's accesses of one sort."""
    return tuple(a for a in view.base.accesses if a.where == where)


def follows_poison(view: "View") -> "Miss | None":
    """Return the first element whose acceptance follows the poison, or None.

    An element counts if it is admitted under one poison and not under the
    other, or misses under both with different bits, while repeats under
    the same poison agree bit for bit. Different bits alone suffice where
    determinism is declared bitwise, and where the kernel was seen to load
    elements that nothing wrote, unless the store is stochastic.
    """
    probes = (Probe.REPEAT, Probe.OTHER_POISON, Probe.OTHER_REPEAT)
    if not comparable(view, Probe.BASE, *probes):
        return None
    bits_suffice = bool(accesses(view, "unwritten"))
    bits_suffice = bits_suffice or view.declaration.determinism == "bitwise"
    # Other bits may be another draw, whatever the poison.
    bits_suffice = bits_suffice and view.declaration.store != "stochastic"
    unstable = view.differing(Probe.BASE, Probe.REPEAT)
    unstable_other = view.differing(Probe.OTHER_POISON, Probe.OTHER_REPEAT)
    for name, differs in view.differing(Probe.BASE, Probe.OTHER_POISON).items():
        first = view.comparison(name)
        other = view.comparison(name, Probe.OTHER_POISON)
        if first is None or other is None:
            return None
        follows = differs & ~unstable[name] & ~unstable_other[name]
        if not bits_suffice:
            follows = follows & (first.missed[0] | other.missed[0])
        found = first_of({name: follows})
        if found is not None:
            return view.miss_at(*found, Kind.UNWRITTEN, int(follows.sum()))
    return None


def place_of(access: Access) -> str:
    """Return where in the source and in which program an access happened."""
    parts = []
    if access.line:
        parts.append(f"at {access.line}")
    if access.program is not None:
        parts.append(f"in program {access.program}")
    return " ".join(parts)
