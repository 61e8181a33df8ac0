"""What error models are written with, as attributes of `kfuzz.numerics`.

Each name is explained where it is defined.
"""
# ruff: noqa: F401, I001
# mypy: implicit-reexport
# fmt: off

from collections.abc import Mapping

from torch import Tensor

from kfuzz.numerics.acceptance import (
    FINITE, NAN, NEGATIVE_INF, POSITIVE_INF, Acceptance, Arithmetic, Interval, Problem,
    around, between, classes_of, enclosed, hull, intermediate_unit, moved,
    product_classes, reshaped, sum_classes, undecided_at_infinities,
)
from kfuzz.numerics.accumulation import (
    EXP_ARGUMENT, U64, Accumulation, code, finite_or_zero,
    gamma, growth, not_a_number, overflow_in_some_order, plainly_finite, sum_error,
    zero,
)
from kfuzz.numerics.formats import FORMATS, INTEGERS, round_to
from kfuzz.numerics.models import (
    ordering, quantization, recurrence, sampling, scaled,
)
from kfuzz.numerics.models.attention import attend, attend_with_lse, visible
from kfuzz.numerics.models.dots import (
    convolved, dots, Dots, merged, rounded_before, widened,
)
from kfuzz.numerics.models.functions import (
    activated, at_the_limit, doubling_overflows, elementwise, exp,
    gated, gelu, gelu_tanh, gelu_tanh_argument, limit_classes, log, sigmoid,
    sigmoid_by_tanh, silu, silu_by_tanh, tanh, tanh_by_exp,
)
from kfuzz.numerics.models.sums import (
    exponentials, normalised, product, resolved, rms_scaled, row_parameter,
    RowArithmetic, scattered_sums, selected,
)
from kfuzz.numerics.shadow.mode import shadowed

Accepted = dict[str, Acceptance]
Tensors = Mapping[str, Tensor]
