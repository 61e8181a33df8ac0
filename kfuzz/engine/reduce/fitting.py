"""What has to follow where a case is made smaller: sizes, offsets, other domains."""

from dataclasses import replace

from kfuzz.contracts.operator import Operator
from kfuzz.core.recipe import Case
from kfuzz.engine.reduce.slices import kept
from kfuzz.execution.values.fills import HOST, pinned, refitted
from kfuzz.execution.values.items import is_shared


def fitted(operator: Operator, case: Case) -> Case:
    """Return a pinned case with what follows from its sizes and values.

    Dimensions that the shape class computes get smaller with those that they follow
    from, values are put back into their domains, and scalars are what follows.
    """
    for axis, n in operator.settled(case.dims, case).items():
        if 0 < n < case.dims[axis]:
            case = kept(case, axis, range(n))
    case = refitted(case)
    values = {n: pinned(s, HOST) for n, s in case.tensors.items() if is_shared(s)}
    return replace(case, scalars={**case.scalars, **operator.following(case, values)})
