"""Truth values and counts, compared exactly."""

from math import inf

from kfuzz.contracts.aten.rows import shadowed

shadowed("eq.Tensor ne.Tensor lt.Tensor le.Tensor gt.Tensor ge.Tensor")
shadowed("less.Tensor less_equal.Tensor greater.Tensor greater_equal.Tensor")
shadowed("not_equal.Tensor")
shadowed("eq.Scalar ne.Scalar lt.Scalar le.Scalar gt.Scalar ge.Scalar",
         other=(0, 0.5, -1, 1, inf))  # fmt: skip
shadowed("isnan isinf isfinite isposinf isneginf signbit isreal")
shadowed("logical_and logical_or logical_xor logical_not")
shadowed("any all", ranks=range(5))
shadowed("any.dim all.dim")
shadowed("count_nonzero", dim=None)
shadowed("argmin", integers="y")
shadowed("argsort.stable", stable=True, integers="y")
