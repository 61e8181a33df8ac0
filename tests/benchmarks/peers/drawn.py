"""What the loops over Hypothesis have in common: sizes, and arguments of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
from hypothesis import strategies as st
from torch import Tensor

from kfuzz.strategies.parameters import IndexParameter
from tests.benchmarks.peers.budgeted import Drawn
from tests.benchmarks.peers.subject import Sizes, Subject


@dataclass(frozen=True)
class Limits:
    """Sizes that are drawn.

    Attributes:
        longest: most of the last dimension of row-wise and elementwise operators.
        leading: most of each of the up to two dimensions before it.
        side: most of each dimension of operators that name several.
        least: least of each.
    """

    longest: int = 512
    leading: int = 8
    side: int = 64
    least: int = 1


SENSIBLE: Final = Limits()

# The strategy of one argument: of a dtype and a shape, of a shape and a bound.
Tensors = Callable[[torch.dtype, tuple[int, ...]], st.SearchStrategy[Tensor]]
Indices = Callable[[tuple[int, ...], int], st.SearchStrategy[Tensor]]


@st.composite
def sizes_of(draw: st.DrawFn, subject: Subject, limits: Limits) -> Sizes:
    """Draw sizes, none of them 0."""
    rows = len(subject.names) == 1 and subject.variadic
    side = limits.longest if rows else limits.side
    named = {
        name: draw(st.integers(limits.least, min(side, subject.most(name) or side)))
        for name in subject.names
    }
    if not subject.variadic:
        return Sizes((), named)
    lead = st.integers(limits.least, limits.leading)
    if named:
        return Sizes(tuple(draw(st.lists(lead, max_size=2))), named)
    last = draw(st.integers(limits.least, limits.longest))
    return Sizes((*draw(st.lists(lead, max_size=2)), last), named)


@st.composite
def inputs_of(
    draw: st.DrawFn,
    subject: Subject,
    tensors: Tensors,
    indices: Indices,
    limits: Limits = SENSIBLE,
) -> Drawn:
    """Draw the arguments of one call.

    Args:
        draw: Hypothesis's.
        subject: the kernel.
        tensors: the strategy of a floating argument.
        indices: the strategy of an argument of integers below a bound.
        limits: of the sizes.
    """
    sizes = draw(sizes_of(subject, limits).filter(subject.accepts))
    dtype = draw(st.sampled_from(subject.dtypes))
    made = []
    for p in subject.parameters.values():
        shape = subject.shape(p, sizes)
        if isinstance(p, IndexParameter):
            made.append(draw(indices(shape, sizes.named[p.below])))
        else:
            made.append(draw(tensors(dtype, shape)))
    return made, draw(st.sampled_from(subject.dims(sizes)))
