"""Results that are not unique: judged by a relation between them and the inputs.

The indices of a top-k may name either of two equal elements; the codes of a quantized
row depend on the scale that the kernel itself chose. Such an operator gives
`accept(problem, outputs)`:

* `outputs` are the kernel's own results by name, [members, *shape] in the dtypes they
  are stored in. They may hold anything: an index must be clamped before it is used.
* It returns, per output that it judges, a bool mask of the same shape: True where the
  element is admitted. The first line of its docstring says what it asks for.

It judges what the interval admits: metadata, classes and ranges of values come first.
An element that the error model leaves undecided stays so, and one that is range-limited
is undecided where the relation refuses it.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from kfuzz.contracts.membership import alone, count, takes_members
from kfuzz.contracts.operator import Operator
from kfuzz.core.errors import BindingError
from kfuzz.numerics.acceptance import Acceptance, Problem
from kfuzz.numerics.comparator.compare import Comparison, compare_members


def _admitted(
    operator: Operator, problem: Problem, outputs: Mapping[str, Tensor]
) -> Mapping[str, Tensor]:
    """Return where each output that the relation judges is allowed.

    Raises:
        BindingError: if a mask fits no output.
    """
    assert operator.relation is not None
    members = count(problem)
    if members == 1 or takes_members(operator.relation):
        masks = operator.relation(problem, outputs)
    else:
        rows = [
            operator.relation(
                alone(problem, i), {n: y[i : i + 1] for n, y in outputs.items()}
            )
            for i in range(members)
        ]
        masks = {n: torch.cat([row[n] for row in rows]) for n in rows[0]}
    for name, mask in masks.items():
        wanted = outputs[name].shape if name in outputs else None
        if mask.dtype is not torch.bool or mask.shape != wanted:
            raise BindingError(
                f"accept returns {mask.dtype} {tuple(mask.shape)} for {name!r}",
                where=f"operator {operator.name}",
                fix="return a bool mask of an output's shape, True if allowed",
            )
    return masks


def related(
    operator: Operator, problem: Problem, accepted: Mapping[str, Acceptance]
) -> dict[str, Acceptance]:
    """Return the acceptances with the operator's relation, if it has one."""
    if operator.relation is None:
        return dict(accepted)
    relation = partial(_admitted, operator, problem)
    return {n: replace(a, relation=relation) for n, a in accepted.items()}


def compare_all(
    outputs: Mapping[str, Tensor], accepted: Mapping[str, Acceptance]
) -> dict[str, Comparison]:
    """Hold all outputs of one run against their acceptances and their relation.

    Args:
        outputs: stored results by name, without the member dimension.
        accepted: of the same names.

    Raises:
        BindingError: if the operator's relation is malformed.
    """
    stored = {name: outputs[name].unsqueeze(0) for name in accepted}
    return compare_members(stored, accepted)


def promise(operator: Operator) -> str:
    """Return what an operator's relation asks for, in words."""
    text = (operator.relation.__doc__ or "").strip() if operator.relation else ""
    return text.splitlines()[0].rstrip(".") if text else "its results fit together"
