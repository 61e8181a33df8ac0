"""Overloads that compute each tensor of a list: fused optimizers are made of them."""

from math import inf

from kfuzz.contracts.aten.rows import shadowed

EACH = ("A B", "C", "D")

shadowed("_foreach_add.Scalar _foreach_sub.Scalar _foreach_mul.Scalar", EACH,
         scalar=(0.75, -1.5, 2, 0))  # fmt: skip
shadowed("_foreach_div.Scalar", EACH, scalar=(0.75, -1.5, 2, 3))
shadowed("_foreach_add.List _foreach_sub.List", EACH, EACH, alpha=(1, 2, -0.5))
shadowed("_foreach_mul.List _foreach_div.List", EACH, EACH)
shadowed("_foreach_maximum.List _foreach_minimum.List", EACH, EACH)
shadowed("_foreach_lerp.Scalar", EACH, EACH, weight=(0.25, 0.5, 0.75, 1.5))
shadowed("_foreach_addcmul.Scalar _foreach_addcdiv.Scalar", EACH, EACH, EACH,
         value=(1, 0.5, -2))  # fmt: skip
shadowed("_foreach_neg _foreach_abs _foreach_sign", EACH)
shadowed("_foreach_exp _foreach_log _foreach_sqrt _foreach_rsqrt", EACH)
shadowed("_foreach_reciprocal _foreach_sigmoid _foreach_tanh", EACH)
shadowed("_foreach_norm.Scalar", EACH, ord=(2, 1, inf))
