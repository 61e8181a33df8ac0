"""Reductions and scans, and selections that name the element they take."""

from math import inf

from kfuzz.contracts.aten.rows import shadowed

ROWS_OF = range(1, 5)

# Of all elements.
shadowed("sum mean prod max min median nanmedian")
shadowed("std var", unbiased=(True, False), ranks=ROWS_OF)
shadowed("var_mean std_mean", outputs="variance", unbiased=(True, False), ranks=ROWS_OF)
shadowed("norm.Scalar", p=(2, 1, inf), ranks=ROWS_OF)
shadowed("dist", p=(2, 1, inf), ranks=ROWS_OF)
shadowed("trace", "M N")

# Along a dimension.
shadowed("nansum nanmean std.correction", dim="-1", ranks=ROWS_OF)
shadowed(
    "std_mean.correction var_mean.correction",
    outputs="variance",
    dim="-1",
    ranks=ROWS_OF,
)
shadowed("std.dim var.dim", dim="-1", unbiased=(True, False), ranks=ROWS_OF)
shadowed("linalg_vector_norm", ord=(2, 1, inf), dim="-1", ranks=ROWS_OF)
shadowed("norm.ScalarOpt_dim", p=(2, 1, inf), dim="-1", ranks=ROWS_OF)
shadowed("aminmax", dim=-1, ranks=ROWS_OF)
shadowed("cumprod logcumsumexp")
shadowed("diff", n=(1, 2))
shadowed("trapezoid.dx", dx=(1, 0.5))

# The values, and where they come from: any of equal elements may be named.
shadowed("max.dim min.dim median.dim mode cummax cummin", integers="indices")
shadowed("kthvalue", k=(1, 2, 3), integers="indices", shape_class="k <= N")
