"""Elementwise overloads that give floating results."""

from kfuzz.contracts.aten.rows import shadowed

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
