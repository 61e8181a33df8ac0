"""Whether a pinned case is one of those that strategies may draw.

What is made smaller from a drawn case stays among them: a kernel promises nothing for
what its declaration leaves undefined, and nobody would ever find it there.
"""

import math
from collections.abc import Mapping

from kfuzz.core.declaration import Declaration
from kfuzz.core.dtypes import DTYPES, unpack_numbers
from kfuzz.core.recipe import Case, Scalar, TensorSpec
from kfuzz.strategies.parameters import (
    IndexParameter,
    Parameter,
    ScalarParameter,
    TensorParameter,
)


def may_be_drawn(
    parameters: Mapping[str, Parameter], declaration: Declaration, case: Case
) -> bool:
    """Whether values, scalars and layouts of a case are such as strategies draw.

    Shapes, `dim` and dtypes are the operator's to admit. Values that are not pinned
    count as drawn.
    """
    for name, value in case.scalars.items():
        parameter = parameters.get(name)
        if type(parameter) is ScalarParameter:
            known = (parameter.default, *parameter.domain)
            if not any(value == v and type(value) is type(v) for v in known):
                return False
    for name, spec in case.tensors.items():
        tensor = parameters.get(name)
        if not isinstance(tensor, TensorParameter):
            return False
        if not _keeps_layout(spec, declaration):
            return False
        if isinstance(tensor, IndexParameter):
            ignored = ignored_index(parameters, tensor, case)
            if not _keeps_bounds(spec, declaration, case, ignored):
                return False
        elif not _keeps_finite(spec, tensor, declaration):
            return False
    return True


def _keeps_layout(spec: TensorSpec, declaration: Declaration) -> bool:
    if declaration.layouts == "contiguous":
        return spec.is_contiguous and not spec.offset
    if declaration.layouts == "inner_contiguous":
        inner = not spec.shape or spec.shape[-1] == 1 or spec.element_strides[-1] == 1
        unit = max(1, declaration.alignment // DTYPES[spec.dtype].itemsize)
        return inner and spec.offset % unit == 0
    return True


def ignored_index(
    parameters: Mapping[str, Parameter], index: IndexParameter, case: Case
) -> int | None:
    """Return the index that is admitted beside those in bounds, None if none is."""
    scalar = parameters.get(index.ignored)
    if not isinstance(scalar, ScalarParameter):
        return None
    found = case.scalars.get(index.ignored, scalar.default)
    return found if isinstance(found, int) else None


def _keeps_bounds(
    spec: TensorSpec, declaration: Declaration, case: Case, ignored: Scalar
) -> bool:
    """Whether no index is out of bounds where nothing is declared for one."""
    if spec.values is None or declaration.out_of_bounds != "undefined":
        return True
    bound = case.bound(spec)
    indices = set(unpack_numbers(spec.values, spec.dtype))
    return all(0 <= i < bound or i == ignored for i in indices)


def _keeps_finite(
    spec: TensorSpec, parameter: TensorParameter, declaration: Declaration
) -> bool:
    """Whether a tensor holds no more NaN and infinities than are drawn for its role.

    Of weights, biases and variances none, of masks -Inf.
    """
    if spec.values is None or DTYPES[spec.dtype].kind != "float":
        return True
    if parameter.role == "data" and declaration.nonfinite != "undefined":
        return True  # a domain says more
    allowed = {-math.inf} if parameter.role == "mask" else set()
    values = set(unpack_numbers(spec.values, spec.dtype))
    return all(math.isfinite(v) or v in allowed for v in values)
