"""The core domain, which a kernel has to take: what of a case lies beyond it.

The usual rank (2, of indices 1), contiguous, float32, sizes from 1 up, finite, the last
dimension reduced, with every tensor that the kernel takes; and whatever is declared
explicitly.
"""

from collections.abc import Collection, Sequence
from typing import Final

from kfuzz.contracts.operator import Operator
from kfuzz.core.recipe import Case, is_dtype

# What the aspect of an optional tensor that a case is without begins with.
WITHOUT: Final = "no "
# And that of one which it has.
GIVEN: Final = "optional tensor "
# And that of a rank.
RANK: Final = "rank "


def aspects_beyond_core(
    case: Case,
    operator: Operator,
    explicit: Collection[str],
    *,
    finite: bool,
    lacking: Sequence[str] = (),
) -> tuple[str, ...]:
    """Return the aspects of a case that lie in the default breadth only, in words.

    Args:
        case: with the destinations that the kernel was given.
        operator: what it asks to compute.
        explicit: names of the claims that the author wrote down.
        finite: whether the inputs are.
        lacking: the optional tensors that the kernel takes and the case is without.
    """
    aspects = [f"{WITHOUT}{name}" for name in lacking]
    specs = case.tensors.values()
    data = [s for s in specs if s.numel or s.shape]
    if any(0 in s.shape for s in specs) and "shape_class" not in explicit:
        aspects.append("zero-size input")
    if "layouts" not in explicit:
        given = [d.spec() for d in case.destinations.values()]
        if any(not s.is_contiguous for s in data):
            aspects.append("non-contiguous input")
        if any(not s.is_contiguous for s in given):
            aspects.append("non-contiguous destination")
        if any(s.offset for s in (*specs, *given)):
            aspects.append("storage offset")
    if "dtypes" not in explicit:
        aspects += _unusual_dtypes(case, operator)
    if "ranks" not in explicit:
        aspects += _unusual_rank(case, operator)
    if operator.dim is not None and "dims" not in explicit:
        axis = operator.reduced_axis(case)
        if axis != -1:
            aspects.append("dim other than the last")
    if not finite and "nonfinite" not in explicit:
        aspects.append("non-finite input")
    return tuple(aspects)


def _unusual_dtypes(case: Case, operator: Operator) -> list[str]:
    """Return the declared dtype that the case takes, if not float32."""
    own = {n for n, p in operator.tensors.items() if p.dtype}
    tensors = case.tensors.items()
    found = {s.dtype for n, s in tensors if n not in own and not s.below}
    found |= {str(v) for v in case.scalars.values() if is_dtype(v)}
    return [f"dtype {name}" for name in sorted(found - {"float32"})]


def _unusual_rank(case: Case, operator: Operator) -> list[str]:
    """Return the rank that varies, if not the usual one (of indices 1).

    It is that of the tensors with most named dimensions, which settles the others'.
    """
    widest = operator.widest(case)
    for name, spec in sorted(
        case.tensors.items(), key=lambda item: bool(item[1].below)
    ):
        parameter, rank = operator.tensors[name], len(spec.shape)
        whole = parameter.variadic and not parameter.without
        if whole and len(parameter.names) == widest:
            usual = 1 if spec.below else operator.usual_rank
            of_indices = f" of {name}" if spec.below else ""
            return [] if rank == usual else [f"{RANK}{rank}{of_indices}"]
    return []


def given_optionals(case: Case, operator: Operator) -> tuple[str, ...]:
    """Return the aspects of a case that are its optional tensors, in words.

    They are of the core domain where the kernel has a parameter for them.
    """
    tensors = operator.tensors
    given = (n for n in case.tensors if tensors[n].optional)
    return tuple(f"{GIVEN}{name}" for name in given if name not in operator.listed)


def is_friendly(case: Case) -> bool:
    """Whether all sizes are powers of two from 16 up, contiguous."""
    return all(
        s.is_contiguous and all(n >= 16 and n & (n - 1) == 0 for n in s.shape)
        for s in case.tensors.values()
    )
