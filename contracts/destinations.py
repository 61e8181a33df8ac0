"""Destinations: which memory a kernel is given for its outputs, and its layout."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from kfuzz.contracts.operator import Operator
from kfuzz.contracts.oracle import accept, expected_metadata, pose
from kfuzz.core.case_surroundings import layout_of
from kfuzz.core.declaration import Declaration
from kfuzz.core.dtypes import DTYPES
from kfuzz.core.errors import BindingError
from kfuzz.core.recipe import Case, Destination, contiguous_strides
from kfuzz.numerics.run import Expected

Shape = tuple[int, ...]


def destinations(
    layout: str, expected: Mapping[str, Expected], declaration: Declaration
) -> dict[str, Destination]:
    """Return the memory for each output; contiguous where its rank has no other.

    Args:
        layout: "contiguous", "padded" (rows of a wider buffer), "transposed" (the
            last two axes swapped), "stepped" (every second column) or "offset"
            (contiguous, beginning later in its storage).
        expected: shape and dtype of each output.
        declaration: the kernel's.
    """
    made = {}
    for name, wanted in expected.items():
        dtype = str(wanted.dtype).removeprefix("torch.")
        strides, offset = _laid_out(layout, wanted.shape), 0
        if layout == "offset":
            offset = 1
            if declaration.layouts == "inner_contiguous":
                offset = max(1, declaration.alignment // DTYPES[dtype].itemsize)
        made[name] = Destination(wanted.shape, dtype, strides, offset)
    return made


def given(
    operator: Operator,
    case: Case,
    values: Mapping[str, Tensor],
    declaration: Declaration,
    expected: Mapping[str, Expected],
) -> dict[str, Destination] | None:
    """Return the memory that a kernel is given on a case; none if it asks for none.

    Args:
        operator: what is to be computed.
        case: the recipe.
        values: its logical elements.
        declaration: the kernel's.
        expected: what is known of the outputs; may be empty.

    Returns:
        The destinations by output; None where the oracle gives no shape.

    Raises:
        BindingError: if a user's oracle or error model is malformed.
    """
    if not declaration.out:
        return {}
    known = expected or _metadata(operator, case, values, declaration)
    if known is None:
        return None
    wanted = {n: known[n] for n in known if n in declaration.out}
    return destinations(layout_of(case, declaration), wanted, declaration)


def _metadata(
    operator: Operator,
    case: Case,
    values: Mapping[str, Tensor],
    declaration: Declaration,
) -> dict[str, Expected] | None:
    """Return shapes and dtypes where no value is promised; None outside the domain.

    They are those for indices of 0 and finite numbers.
    """
    tame = {
        name: torch.zeros_like(x) if name in operator.indices else x
        for name, x in values.items()
    }
    finite = replace(declaration, nonfinite="mask")
    try:
        return expected_metadata(accept(operator, pose(operator, case, tame, finite)))
    except BindingError:
        raise
    except Exception:
        return None


def _laid_out(layout: str, shape: Shape) -> Shape:
    if layout == "padded" and len(shape) >= 2:
        return contiguous_strides((*shape[:-1], shape[-1] + 1))
    if layout == "stepped" and shape:
        return tuple(2 * step for step in contiguous_strides(shape))
    if layout == "transposed" and len(shape) >= 2:
        *outer, rows, columns = shape
        *steps, one, other = contiguous_strides((*outer, columns, rows))
        return (*steps, other, one)
    return contiguous_strides(shape)
