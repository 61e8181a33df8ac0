"""Whether an observed call's results are right, seen a few rows at a time.

Most of what judging a large call costs is memory for numbers of float64 that no cache
holds. Where the rows of an operator do not depend on one another, they are held against
what is admitted slice by slice. Only a plain yes is given: whatever else is found, or
cannot be found so, is judged whole.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from torch import Tensor

from kfuzz.contracts.operator import Operator
from kfuzz.contracts.operators import OPERATORS
from kfuzz.contracts.oracle import accept, pose
from kfuzz.core.declaration import Declaration
from kfuzz.core.errors import BindingError
from kfuzz.core.recipe import Case
from kfuzz.evaluation.cutting import Cut, cut_of, part_of, row_axis
from kfuzz.monitor.judged import run_of
from kfuzz.monitor.seen import Seen
from kfuzz.numerics.acceptance import Acceptance
from kfuzz.numerics.comparator.compare import Outcome, compare
from kfuzz.strategies.parameters import IndexParameter

AT_ONCE: Final = 1 << 17
"""Elements of a slice: some ten tensors of float64 stay in a cache of a few MiB, and
the time of torch's operators outweighs that of calling them."""


def conforms(
    operator: Operator, declaration: Declaration, case: Case, seen: Seen
) -> bool:
    """Whether every element of the results is decided and right, as far as is seen.

    Args:
        operator: one of kfuzz's own: of others it is not known that rows are rows.
        declaration: what the kernel claims.
        case: the call as a case without values.
        seen: what was observed.

    Raises:
        BindingError: if the operator's oracle or error model is malformed.
    """
    specs = case.tensors
    if operator is not OPERATORS.get(operator.name) or seen.changed or seen.handed:
        return False
    if declaration.nonfinite != "propagate" or case.largest < 2 * AT_ONCE:
        return False
    parameters = [operator.tensors[name] for name in specs]
    if any(p.domain or isinstance(p, IndexParameter) for p in parameters):
        return False
    plain = {n: replace(s, strides=None, offset=0) for n, s in specs.items()}
    case = replace(case, tensors=plain)
    axis = row_axis(operator, case, lambda spec: True)
    if axis is None or any(
        axis and axis not in s.axes and s.numel > AT_ONCE // 4 for s in plain.values()
    ):  # seen with each slice
        return False
    values = {n: c.values.reshape(-1) for n, c in seen.tensors.items()}

    def accepted(start: int, stop: int) -> dict[str, Acceptance]:
        part = part_of(case, axis, start, stop, lambda n, a, b: values[n][a:b])
        return accept(operator, pose(operator, part.case, part.values, declaration))

    try:
        cut = cut_of(operator, case, axis, accepted, AT_ONCE)
        run = run_of(seen, dict(cut.expected), None, copy=False)
        if run.metadata is not None:
            return False
        starts = range(0, cut.rows, cut.at_once)
        return all(_inside(cut, run.outputs, start, accepted) for start in starts)
    except BindingError:
        raise
    except Exception:  # not to be cut, or outside the oracle's domain
        return False


def _inside(
    cut: Cut,
    outputs: Mapping[str, Tensor],
    start: int,
    accepted: Callable[[int, int], Mapping[str, Acceptance]],
) -> bool:
    stop = min(start + cut.at_once, cut.rows)
    for name, a in accepted(start, stop).items():
        y = cut.slice_of(name, outputs[name], start, stop).unsqueeze(0)
        outcomes = compare(y, a).outcomes
        if a.relation is not None or bool((outcomes != Outcome.OK).any()):
            return False
    return True
