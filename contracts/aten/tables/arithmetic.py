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


# Elementwise overloads that give floating results.

# Exact: signs, roundings to integers, choices.
shadowed(
    "abs absolute neg negative positive floor ceil trunc fix frac sign sgn relu6 "
    "hardtanh hardshrink"
)
shadowed("round.decimals", decimals=0)
shadowed("round")
shadowed("maximum minimum fmax fmin max.other min.other copysign.Tensor")
shadowed("clamp.Tensor clip.Tensor clamp_max.Tensor clamp_min.Tensor")
shadowed("clamp_max", max=(1.0, 0.0, -0.1, 6.0))
shadowed("clamp_min", min=(-1.0, 0.0, 0.1, -6.0))
shadowed("threshold", threshold=(0.0, 0.5, -1.0), value=(0.0, 20.0))
shadowed("copysign.Scalar", other=(-1.0, 1.0, 0.0))
shadowed("heaviside")
shadowed("nan_to_num", nan=(None, 0.5), posinf=(2.0, 0.0), neginf=(-3.0, 0.0))

# One rounding, or a few.
shadowed("sub.Tensor subtract.Tensor rsub.Tensor div.Tensor divide.Tensor square")
shadowed("true_divide.Tensor")
shadowed("add.Scalar sub.Scalar rsub.Scalar mul.Scalar")
shadowed("div.Scalar", other=(0.75, -1.5, 2, 3))
shadowed("div.Tensor_mode", rounding_mode=("floor", "trunc", None))
shadowed("fmod.Tensor remainder.Tensor floor_divide")
shadowed("fmod.Scalar remainder.Scalar", other=(0.75, -1.5, 2, 3))
shadowed("reciprocal sqrt rsqrt deg2rad rad2deg")
shadowed("addcmul addcdiv", value=(1, 0.5, -2))
shadowed("lerp.Scalar", weight=(0.25, 0.5, 0.75, 1.5))
shadowed("lerp.Tensor hypot ldexp.Tensor")

# Elementary and special functions.
shadowed("sin cos tan asin acos atan sinh cosh asinh acosh atanh")
shadowed("arcsin arccos arctan arcsinh arccosh arctanh")
shadowed("exp2 expm1 log2 log10 log1p erf erfc erfinv sinc")
shadowed("special_expm1 special_exp2 special_log1p special_erf special_erfc")
shadowed("lgamma digamma i0 special_entr special_ndtr special_i0e special_i1")
shadowed("special_i1e")
shadowed("logit", eps=(None, 0.1))
shadowed("atan2 logaddexp logaddexp2 xlogy.Tensor special_xlog1py")
shadowed("pow.Tensor_Tensor pow.Tensor_Scalar")
shadowed("pow.Scalar", self=(2, 0.5, 3, 1, 0))
shadowed("xlogy.Scalar_Other", other=(2.0, 0.5))

# Activations.
shadowed("mish hardsigmoid hardswish selu log_sigmoid")
shadowed("prelu", "N C", "weight: C")
shadowed("celu", alpha=(1.0, 0.5, 2.0))
shadowed("softshrink", lambd=(0.5, 0.1))

# Their gradients, at the forward's own argument or result.
shadowed("sigmoid_backward", "*", "[0, 1]: *")
shadowed("tanh_backward", "*", "[-1, 1]: *")
shadowed("silu_backward mish_backward hardsigmoid_backward")
shadowed("threshold_backward", threshold=(0.0, 0.5))
shadowed("gelu_backward", approximate=("none", "tanh"))
shadowed("leaky_relu_backward", negative_slope=(0.01, 0.25), self_is_result=False)
shadowed("softplus_backward", beta=(1.0, 2.0), threshold=(20.0, 5.0))
# Of NaN torch's float64 bodies make NaN, and its tails grad_output.
shadowed("elu_backward", "*", "[-inf, inf]: *", alpha=(1.0, 0.5), scale=1,
         input_scale=1, is_result=False)  # fmt: skip

# Of constants: what an argument holds does not matter.
shadowed("zeros_like ones_like zero")
shadowed("full_like", fill_value=(0.5, 0.1, -3, 0))
shadowed("fill.Scalar", value=(0.5, 0.1, -3, 0))


# Losses: of each element, their mean or their sum (`reduction` 0, 1, 2).

shadowed("mse_loss l1_loss")
shadowed("smooth_l1_loss", beta=(1.0, 0.5))
shadowed("huber_loss", delta=(1.0, 0.5))
shadowed("soft_margin_loss")
shadowed("kl_div", log_target=(False, True))
shadowed("hinge_embedding_loss", margin=(1.0, 0.5))
shadowed("margin_ranking_loss", "*", "*", "*", margin=(0.0, 0.5))
shadowed("poisson_nll_loss", log_input=(True,), full=False, eps=1e-8)
shadowed("binary_cross_entropy_with_logits", "*", "*", "weight:*?", None)
shadowed("binary_cross_entropy", "[0, 1]: *", "[0, 1]: *", "weight:*?")
shadowed("nll_loss", "N C", "below C: N", "weight: C?", ignore_index=-100)
shadowed("nll_loss_nd", "N C", "below C: N", "weight: C?", ignore_index=-100)
shadowed("nll_loss2d", "N C H W", "below C: N H W", "weight: C?", ignore_index=-100)
shadowed("cosine_embedding_loss", "N D", "N D", "N", margin=(0.0, 0.5))
shadowed("triplet_margin_loss", "N D", margin=(1.0, 0.5), p=2, eps=1e-6, swap=False)
shadowed("cosine_similarity", "N D", dim=1, eps=1e-8)
shadowed("pairwise_distance", "N D", p=2, eps=1e-6, keepdim=(False, True))


# Sums of products, and norms of differences.

shadowed("addmm", "M N", "M K", "K N")
shadowed("addmv", "M", "M K", "K")
shadowed("addr", "M N", "M", "N")
shadowed("baddbmm", "B M N", "B M K", "B K N")
shadowed("addbmm", "M N", "B M K", "B K N")
shadowed("mv", "M K", "K")
shadowed("dot vdot inner", "K")
shadowed("outer ger", "M", "N")
shadowed("kron", "A B", "C D")
shadowed("tensordot", "A K", "K B", dims_self="1", dims_other="0")
shadowed("linalg_multi_dot chain_matmul", ("A B", "B C", "C D"))
shadowed("cross", "N C", "N C", dim=1, shape_class="C == 3")
shadowed("conv1d", "N C W", "O I R", "bias: O?", stride=("1", "2"),
         padding=("0", "1"), dilation=("1", "2"), groups=(1, 2),
         shape_class="C == I * groups and O % groups == 0 and W >= R * 2")  # fmt: skip
shadowed("conv3d", "N C D H W", "O C R S T", "bias: O?", stride=("1,1,1", "2,1,2"),
         padding=("0,0,0", "1,0,1"), dilation="1,1,1", groups=1,
         shape_class="D >= R and H >= S and W >= T and O >= 1 and R >= 1 and S >= 1 "
         "and T >= 1")  # fmt: skip
shadowed("conv_transpose1d", "N C W", "C O R", "bias: O?", stride=("1", "2"),
         padding="0", output_padding="0", groups=1, dilation=("1", "2"),
         shape_class="W >= 1 and R >= 1 and C >= 1 and O >= 1")  # fmt: skip
shadowed("conv_transpose2d.input", "N C H W", "C O R S", "bias: O?",
         stride=("1,1", "2,1"), padding="0,0", output_padding="0,0", groups=1,
         dilation="1,1", shape_class="H >= 1 and W >= 1 and R >= 1 and S >= 1 and "
         "C >= 1 and O >= 1")  # fmt: skip
shadowed("cdist", "B M K", "B N K", p=(2.0, 1.0), compute_mode=(2,))


# Reductions and scans, and selections that name the element they take.

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


# Pooling, and resampling on grids.

LARGE = "W >= 4"
BOTH = "H >= 4 and W >= 4"
ALL = "D >= 4 and H >= 4 and W >= 4"

shadowed("avg_pool1d", "N C W", kernel_size=("2", "3"), stride=("2", "1", ""),
         padding=("0", "1"), ceil_mode=False, shape_class=LARGE)  # fmt: skip
shadowed("avg_pool2d", "N C H W", kernel_size=("2,2", "3,2"), stride=("2,2", "1,2"),
         padding=("0,0", "1,1"), ceil_mode=False, shape_class=BOTH)  # fmt: skip
shadowed("avg_pool3d", "N C D H W", kernel_size=("2,2,2", "3,2,2"),
         stride=("2,2,2", "1,2,1"), padding=("0,0,0", "1,1,1"), ceil_mode=False,
         shape_class=ALL)  # fmt: skip
shadowed("max_pool1d", "N C W", kernel_size=("2", "3"), stride=("2", "1"),
         padding=("0", "1"), dilation=("1", "2"), ceil_mode=False,
         shape_class="W >= 5")  # fmt: skip
shadowed("max_pool2d", "N C H W", kernel_size=("2,2", "3,2"), stride=("2,2", "1,2"),
         padding=("0,0", "1,1"), dilation=("1,1", "2,1"), ceil_mode=False,
         shape_class="H >= 5 and W >= 5")  # fmt: skip
shadowed("max_pool3d", "N C D H W", kernel_size=("2,2,2", "3,2,2"),
         stride=("2,2,2", "1,2,1"), padding=("0,0,0", "1,1,1"), dilation="1,1,1",
         ceil_mode=False, shape_class=ALL)  # fmt: skip
shadowed("max_pool2d_with_indices", "N C H W", kernel_size=("2,2", "3,2"),
         stride=("2,2", "1,2"), padding=("0,0", "1,1"), dilation="1,1",
         ceil_mode=False, outputs="y", shape_class=BOTH)  # fmt: skip
shadowed("adaptive_avg_pool1d", "N C W", output_size=("1", "2"),
         shape_class="W % 2 == 0 and W >= 2")  # fmt: skip
shadowed("adaptive_avg_pool2d _adaptive_avg_pool2d", "N C H W",
         output_size=("1,1", "2,2", "1,2"),
         shape_class="H % 2 == 0 and W % 2 == 0 and H >= 2 and W >= 2")  # fmt: skip
shadowed("adaptive_max_pool2d", "N C H W", output_size=("1,1", "2,2", "1,2"),
         outputs="y",
         shape_class="H % 2 == 0 and W % 2 == 0 and H >= 2 and W >= 2")  # fmt: skip
shadowed("upsample_linear1d", "N C W", output_size=("5", "8"),
         align_corners=(False, True), scales=None)  # fmt: skip
shadowed("upsample_bilinear2d", "N C H W", output_size=("5,7", "8,3"),
         align_corners=(False, True), scales_h=None, scales_w=None)  # fmt: skip
