"""Problems of several members: what takes them at once, and one member at a time.

The operators of this package judge each member by itself, whatever the others hold;
`tests/numerics/test_members.py` holds them to the bits. What users write is asked about
one member after the other.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor

from kfuzz.contracts.operator import Operator
from kfuzz.numerics.acceptance import Acceptance, Problem
from kfuzz.numerics.models.elementwise import Elementwise

_OWN: Final = (
    "kfuzz.contracts.aten.",
    "kfuzz.contracts.operators.",
    "kfuzz.contracts.gradients.bounds",
    "kfuzz.contracts.gradients.rules.reductions",
)


def takes_members(function: Callable[..., Any]) -> bool:
    """Whether an error model or a relation judges all members at once.

    Those of kfuzz's own operators do.
    """
    return str(getattr(function, "__module__", "")).startswith(_OWN)


def batchable(operator: Operator) -> bool:
    """Whether many members cost an operator's acceptance less than one each.

    With an error model of the user's own they do not: it is asked member by member.
    Without one, and under an elementwise budget, the oracle runs once for all members
    if `torch.vmap` can run it.
    """
    given = operator.error_model
    return given is None or isinstance(given, Elementwise) or takes_members(given)


def count(problem: Problem) -> int:
    """Return the number of members."""
    return int(next(iter(problem.tensors.values())).shape[0])


def alone(problem: Problem, member: int) -> Problem:
    """Return the problem of one member."""
    tensors = {n: t[member : member + 1] for n, t in problem.tensors.items()}
    return replace(problem, tensors=tensors)


def joined(parts: Sequence[Mapping[str, Acceptance]]) -> dict[str, Acceptance]:
    """Return acceptances of one member each as those of all members.

    Args:
        parts: at least one, of one operator and one declaration, without relations.
    """
    made = {}
    for name, first in parts[0].items():
        column = [part[name] for part in parts]
        fields: dict[str, Any] = {
            field: torch.cat([getattr(a, field) for a in column])
            for field, value in vars(first).items()
            if isinstance(value, Tensor)
        }
        unknown = dict.fromkeys(u for a in column for u in a.unknown)
        fields["unknown"] = tuple(unknown)
        made[name] = replace(first, **fields)
    return made
