"""The rows, by kind; a new one is a line beside those of its kind."""

from math import inf

from kfuzz.contracts.aten.rows import ROWS as ROWS
from kfuzz.contracts.aten.rows import moved, shadowed

# Truth values and counts, compared exactly.

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


# Overloads that select or write by indices and masks.

moved("index.Tensor", "A B", ("below A: K",), wraps=True)
moved("take", "A", "below A: K", wraps=True)
moved("take_along_dim", "N C", "below C: N K", dim=1, wraps=True)
moved("masked_fill.Scalar", "*", "bool: *", value=(0, 0.5, -1.0))
moved("index_fill.int_Scalar", "A B", "below A: K", dim=0, value=(0, 0.5, -1.0),
      wraps=True)  # fmt: skip
moved("where.ScalarOther", "bool: *", "*", other=(0, 0.5))
moved("where.ScalarSelf", "bool: *", "*", self=(0, 0.5))
moved("scatter.value", "N C", "below C: N K", dim=1, value=(0, 0.5, -1.0))
shadowed("index_put", "A B", ("below A: K",), "K B", accumulate=True,
         wraps=True)  # fmt: skip


# Overloads that compute each tensor of a list: fused optimizers are made of them.

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


# Overloads that move elements: views, copies, joins, fillings.

# Another shape or order for the same elements.
moved("view view_copy", "A B C", size=("A,-1", "-1", "B,C,A"))
moved("reshape", "A B C", shape=("A,-1", "-1", "B,C,A"))
moved("view_as reshape_as", "A B", "B A")
moved("flatten.using_ints", "A B C", start_dim=(0, 1), end_dim=(-1, 1))
moved("unflatten.int", "A B", dim=1, sizes=("1,B", "B,1"))
moved("ravel")
moved("permute permute_copy", "A B C", dims=("2,0,1", "0,2,1", "1,0,2", "2,1,0"))
moved("movedim.int moveaxis.int", "A B C", source=(0, 1, 2), destination=(2, 0, 1))
moved("swapaxes", "A B C", axis0=(0, 1), axis1=(2, 1))
moved("swapdims", "A B C", dim0=(0, 1), dim1=(2, 1))
moved("t t_copy numpy_T adjoint", "A B")
moved("mT", "* A B")
moved("squeeze squeeze_copy", "A B")
moved("squeeze.dim squeeze_copy.dim")
moved("unsqueeze unsqueeze_copy", "*", dim=(0, -1))
moved("expand expand_copy", "A B", size=("2,A,B", "3,A,-1", "A,B"))
moved("expand_as", "A B", "C A B")
moved("broadcast_to", "A B", size=("2,A,B", "3,A,B"))
moved("repeat", "A B", repeats=("1,2", "3,1", "2,1,2"))
moved("tile", "A B", dims=("2", "1,3", "2,1,2"))
moved("repeat_interleave.self_int", "A B", repeats=(1, 2, 3), dim=(1, 0))
moved("flip", "A B C", dims=("0", "-1", "0,2", "0,1,2"))
moved("fliplr flipud", "A B")
moved("roll", "A B C", shifts=("1", "-2", "3"), dims=("0", "1", "-1"))
moved("rot90", "A B", k=(1, 2, 3, -1), dims="0,1")
moved("channel_shuffle", "N C H W", groups=(1, 2, 3), shape_class="C % groups == 0")
moved("pixel_shuffle", "N C H W", upscale_factor=2, shape_class="C % 4 == 0")
moved(
    "pixel_unshuffle",
    "N C H W",
    downscale_factor=2,
    shape_class="H % 2 == 0 and W % 2 == 0",
)

# A part of the elements.
moved("select.int select_copy.int", "A B C", dim=(0, 1, -1), index=(0, -1),
      shape_class="A >= 1 and B >= 1 and C >= 1")  # fmt: skip
moved("narrow narrow_copy", "A B", dim=1, start=(0, 1, 2), length=(1, 2),
      shape_class="start + length <= B")  # fmt: skip
moved("slice.Tensor slice_copy.Tensor", "A B", dim=(1, 0, -1), start=(None, 1, -3),
      end=(None, -1, 5), step=(1, 2, 3))  # fmt: skip
moved("diagonal diagonal_copy", "A B C", offset=(0, 1, -1), dim1=(0, 1), dim2=2)
moved("diag", "A B", diagonal=(0, 1, -2))
moved("unfold unfold_copy", "A B", dimension=1, size=(2, 1, 3), step=(1, 2),
      shape_class="size <= B")  # fmt: skip
moved("chunk", "A B", chunks=(2, 1, 3), dim=(1, 0, -1))
moved("unsafe_chunk", "A B", chunks=(2, 1, 3), dim=(1, 0, -1), may_alias=True)
moved("split.Tensor split_copy.Tensor", "A B", split_size=(2, 1, 3, 64),
      dim=(1, 0, -1))  # fmt: skip
moved("unsafe_split.Tensor", "A B", split_size=(2, 1, 3, 64), dim=(1, 0, -1),
      may_alias=True)  # fmt: skip
moved("split_with_sizes split_with_sizes_copy", "A B C", split_sizes="1,C", dim=0,
      shape_class="A == C + 1")  # fmt: skip
moved("unsafe_split_with_sizes", "A B C", split_sizes="1,C", dim=0,
      shape_class="A == C + 1", may_alias=True)  # fmt: skip
moved("tensor_split.sections", "A B", sections=(2, 1, 3), dim=(1, 0, -1))
moved("unbind.int unbind_copy.int", "A B", dim=(0, -1),
      shape_class="A <= 8 and B <= 8")  # fmt: skip

# Several tensors, or what surrounds one.
moved("cat concat concatenate", ("B A C", "B D C", "B E C"), dim=(1, -2))
moved("stack", ("*", "*", "*"), dim=(0, -1))
moved("hstack column_stack", ("N A", "N B"))
moved("vstack row_stack", ("A N", "B N"))
moved("dstack", ("A B C", "A B D"))
moved("block_diag", ("A B", "C D"))
moved("constant_pad_nd", "A B", pad=("1,2", "0,1,2,0", "-1,3"), value=(0, 0.5))
moved("pad", "N C H W", pad=("1,2", "2,1,0,1", "1,0"), mode=("constant",),
      value=(None, 0.5))  # fmt: skip
moved("reflection_pad1d", "N C W", padding=("1,2", "2,0"), shape_class="W >= 3")
moved("reflection_pad2d", "N C H W", padding=("1,2,0,1", "2,0,1,1"),
      shape_class="W >= 3 and H >= 2")  # fmt: skip
moved("replication_pad1d", "N C W", padding=("1,2", "2,0", "-1,3"))
moved("replication_pad2d", "N C H W", padding=("1,2,0,1", "3,0,1,1"))
moved("replication_pad3d", "N C D H W", padding=("1,2,0,1,1,0", "0,1,1,1,2,0"))
moved("diag_embed", offset=(0, 1, -1), ranks=range(1, 4))
moved("diagflat", "A B", offset=(0, 1, -1))
moved("tril triu", "* M N", diagonal=(0, 1, -1, 3))
moved("select_scatter", "A B", "A", dim=1, index=(0, -1), shape_class="B >= 1")
moved("slice_scatter", "A B", "A B", dim=0, start=None, end=None)
moved("diagonal_scatter", "A A2", "A", shape_class="A == A2")
moved("copy", "A B", "A B")
moved("im2col", "N C H W", kernel_size="2,3", dilation="1,1", padding=("0,0", "1,1"),
      stride=("1,1", "2,1"), shape_class="H >= 2 and W >= 3")  # fmt: skip
moved("upsample_nearest1d", "N C W", output_size=("5", "8"), scales=None)
moved("upsample_nearest2d", "N C H W", output_size=("5,7", "8,3"), scales_h=None,
      scales_w=None)  # fmt: skip
moved("upsample_nearest3d", "N C D H W", output_size=("2,5,7", "3,8,3"),
      scales_d=None, scales_h=None, scales_w=None)  # fmt: skip
moved("atleast_1d atleast_2d atleast_3d", may_alias=True)
moved("meshgrid", ("A", "B"), may_alias=True)
moved("broadcast_tensors", ("A B", "B"), may_alias=True)
