"""An operator's oracle as a plain function, for references made of operators."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from kfuzz.contracts.operators import OPERATORS


def computed(
    name: str, tensors: Mapping[str, Tensor], scalars: Mapping[str, Any]
) -> Any:
    """Return what an operator gives, in the dtype of its first floating tensor.

    Args:
        name: the operator's.
        tensors: its tensors by name; optional ones may be left out.
        scalars: its scalars; those left out have their defaults.

    Returns:
        One tensor, or a tuple of them in the order of the operator's outputs. What the
        operator defines as integers or truth values stays so.
    """
    operator = OPERATORS[name]
    lead = next(x for x in tensors.values() if x.is_floating_point())
    defaults = {n: operator.default_of(n) for n in operator.scalars}
    given = [
        x.double() if x.is_floating_point() else x
        for n in operator.tensors
        if (x := tensors.get(n)) is not None
    ]
    made = operator.oracle_on(tensors)(*given, **{**defaults, **scalars})
    if isinstance(made, Tensor):
        return _stored(made, lead)
    return tuple(_stored(y, lead) for y in made)


def _stored(y: Tensor, lead: Tensor) -> Tensor:
    return y.to(lead.dtype) if y.is_floating_point() else y
