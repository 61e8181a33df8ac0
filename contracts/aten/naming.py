"""Results with the places they come from: any of equal elements may be named.

The values are judged by the shadow. An index must name an element that equals the value
beside it.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kfuzz.numerics.acceptance import Acceptance, Problem

NAMED: Final = ("values", "indices")
"""Outputs of such an overload, as schemas name them."""


def accepting(
    oracle: Callable[..., Any], name: str, first: str
) -> "Callable[[Problem], Mapping[str, Acceptance]]":
    """Return the error model: values by the shadow, indices within their range."""

    def accept(problem: "Problem") -> "Mapping[str, Acceptance]":
        """Return the shadow's acceptance of the values, and all indices in range."""
        import torch

        from kfuzz.numerics.acceptance import between
        from kfuzz.numerics.formats import INTEGERS
        from kfuzz.numerics.shadow import shadowed

        values, indices = shadowed(oracle, problem, name=name)
        low = torch.zeros_like(indices.reference)
        size = problem.tensors[first].shape[problem.axis()]
        high = torch.full_like(low, max(size - 1, 0))
        places = between(
            problem, indices.reference, low, high, output=INTEGERS["int64"]
        )
        return {"values": values, "indices": places}

    return accept


def naming(first: str) -> "Callable[[Problem, Mapping[str, Any]], Mapping[str, Any]]":
    """Return the relation of the indices to a tensor and to the values beside them."""

    def related(problem: "Problem", outputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Each index names an element equal to the value beside it."""
        import torch

        from kfuzz.numerics.models.ordering import picked, same

        x, axis = problem.tensors[first], problem.axis()
        values, index = outputs["values"].to(torch.float64), outputs["indices"]
        if index.dim() < x.dim():
            values, index = values.unsqueeze(axis), index.unsqueeze(axis)
        if problem.flushes:
            least = problem.format.min_normal
            x, values = (torch.where(t.abs() < least, 0.0, t) for t in (x, values))
        found, valid = picked(x, index, axis)
        fits = valid & same(found, values)
        return {"indices": fits.reshape(outputs["indices"].shape)}

    return related
