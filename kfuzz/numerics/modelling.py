"""What error models are written with, as attributes of `kfuzz.numerics`.

Each name is explained where it is defined.
"""
# ruff: noqa: F401, I001
# mypy: implicit-reexport
# fmt: off

from collections.abc import Mapping

from torch import Tensor

from kfuzz.numerics.acceptance import (
    FINITE, NAN, NEGATIVE_INF, POSITIVE_INF, Acceptance, Problem, around, between,
    classes_of, moved, reshaped, undecided_at_infinities,
)
from kfuzz.numerics.accumulation import Accumulation, gamma, growth
from kfuzz.numerics.bounds import (
    EXP_ARGUMENT, U64, can_overflow, fits_exactly, overflow_in_some_order, sum_error,
)
from kfuzz.numerics.elements import (
    code,
    finite_or_zero,
    not_a_number,
    plainly_finite,
    zero,
)
from kfuzz.numerics.formats import FORMATS, INTEGERS, lowest_bit_exponent, round_to
from kfuzz.numerics.intervals import (
    Arithmetic, Interval, added_classes, enclosed, product_classes,
)
from kfuzz.numerics.models import (
    ordering, quantization, recurrence, rms, sampling, scaled,
)
from kfuzz.numerics.models.activations import (
    activated, at_the_limit, doubling_overflows, gated, gelu, gelu_tanh,
    gelu_tanh_argument, limit_classes, silu, silu_by_tanh,
)
from kfuzz.numerics.models.attention import attend, attend_with_lse, visible
from kfuzz.numerics.models.convolutions import convolved, merged
from kfuzz.numerics.models.dots import Dots, dots, rounded_before
from kfuzz.numerics.models.elementwise import elementwise
from kfuzz.numerics.models.functions import (
    DIVISION_ERROR, exp, expm1, log, log1p_exp, sigmoid, sigmoid_by_tanh, tanh,
    tanh_by_exp,
)
from kfuzz.numerics.models.log_sum_exp import exponentials
from kfuzz.numerics.models.normalisation import (
    RowArithmetic, affine, inverse_root, moments, normalised, row_parameter,
)
from kfuzz.numerics.models.products import product
from kfuzz.numerics.models.scattered import resolved, scattered_sums, selected
from kfuzz.numerics.models.winograd import widened
from kfuzz.numerics.shadow.run import shadowed
from kfuzz.numerics.specials import intermediate_unit, sum_classes, terms_classes

Accepted = dict[str, Acceptance]
Tensors = Mapping[str, Tensor]
