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
from kfuzz.numerics.accumulation import EXP_ARGUMENT
from kfuzz.numerics.accumulation import U64
from kfuzz.numerics.accumulation import can_overflow
from kfuzz.numerics.accumulation import fits_exactly
from kfuzz.numerics.accumulation import overflow_in_some_order
from kfuzz.numerics.accumulation import sum_error
from kfuzz.numerics.accumulation import code
from kfuzz.numerics.accumulation import finite_or_zero
from kfuzz.numerics.accumulation import not_a_number
from kfuzz.numerics.accumulation import plainly_finite
from kfuzz.numerics.accumulation import zero
from kfuzz.numerics.formats import FORMATS, INTEGERS, lowest_bit_exponent, round_to
from kfuzz.numerics.intervals import (
    Arithmetic, Interval, added_classes, enclosed, product_classes,
)
from kfuzz.numerics.models import (
    ordering, quantization, recurrence, rms, sampling, scaled,
)
from kfuzz.numerics.models.functions import activated
from kfuzz.numerics.models.functions import at_the_limit
from kfuzz.numerics.models.functions import doubling_overflows
from kfuzz.numerics.models.functions import gated
from kfuzz.numerics.models.functions import gelu
from kfuzz.numerics.models.functions import gelu_tanh
from kfuzz.numerics.models.functions import gelu_tanh_argument
from kfuzz.numerics.models.functions import limit_classes
from kfuzz.numerics.models.functions import silu
from kfuzz.numerics.models.functions import silu_by_tanh
from kfuzz.numerics.models.attention import attend, attend_with_lse, visible
from kfuzz.numerics.models.dots import convolved
from kfuzz.numerics.models.dots import merged
from kfuzz.numerics.models.dots import Dots, dots, rounded_before
from kfuzz.numerics.models.functions import elementwise
from kfuzz.numerics.models.functions import (
    DIVISION_ERROR, exp, expm1, log, log1p_exp, sigmoid, sigmoid_by_tanh, tanh,
    tanh_by_exp,
)
from kfuzz.numerics.models.sums import exponentials
from kfuzz.numerics.models.norms import RowArithmetic
from kfuzz.numerics.models.norms import affine
from kfuzz.numerics.models.norms import inverse_root
from kfuzz.numerics.models.norms import moments
from kfuzz.numerics.models.norms import normalised
from kfuzz.numerics.models.norms import row_parameter
from kfuzz.numerics.models.sums import product
from kfuzz.numerics.models.sums import resolved
from kfuzz.numerics.models.sums import scattered_sums
from kfuzz.numerics.models.sums import selected
from kfuzz.numerics.models.winograd import widened
from kfuzz.numerics.shadow.mode import shadowed
from kfuzz.numerics.specials import intermediate_unit, sum_classes, terms_classes

Accepted = dict[str, Acceptance]
Tensors = Mapping[str, Tensor]
