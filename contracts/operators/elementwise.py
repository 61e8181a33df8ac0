"""Elementwise operators, and rotary embeddings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any, Final

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.aten.rows import describes
from kfuzz.contracts.gradients.rules import (
    EVERY,
    Given,
    Gradients,
    differentiable,
    kinked,
)
from kfuzz.contracts.operator import EVERY_DTYPE, MOVES, Operator, Structure
from kfuzz.contracts.prose import bounded, defined
from kfuzz.core.dtypes import FLOAT8
from kfuzz.strategies.parameters import Parameter

Oracle = Callable[..., Any]
ErrorModel = Callable[["nm.Problem"], "nm.Acceptance"]
Forms = Mapping[str, tuple[Oracle, str]]


def of_torch(name: str, text: str) -> Oracle:
    """Return the oracle that is torch's function of that name, with a text about it."""

    def oracle(*tensors: Any, **scalars: Any) -> Any:
        import torch

        return attrgetter(name)(torch)(*tensors, **scalars)

    oracle.__doc__ = text
    return oracle


def pointwise(
    name: str, oracle: Oracle, error_model: ErrorModel | None = None, *, tensors: str =
    "x", scalars: Mapping[str, Parameter] | None = None, exact: bool = False, **fields:
    Any,
) -> Operator:  # fmt: skip
    """Return an operator that takes each element of tensors of any rank by itself.

    Args:
        name: its name.
        oracle: in plain torch.
        error_model: what a correct kernel may hold; None if that follows from forms,
            by default from the oracle.
        tensors: names of the tensors.
        scalars: the other parameters.
        exact: whether one value alone is right.
        fields: others of the operator.
    """
    structure = Structure.EXACT if exact else Structure.INTERVAL
    if error_model is None:
        fields.setdefault("forms", {"": (oracle,)})
    return Operator(
        name,
        inputs={n: ks.tensors("*") for n in tensors.split()} | dict(scalars or {}),
        oracle=oracle,
        error_model=error_model,
        ranks=range(5),
        **bounded(name, structure),
        **fields,
    )


def by_forms(accept: str, forms: Forms, **how: Any) -> ErrorModel:
    """Return the error model of an activation with an enclosure for each algorithm.

    Args:
        accept: name in `kfuzz.numerics` of what makes an acceptance of an enclosure.
        forms: by declared algorithm, "" for none, the activation in float64 and the
            name of its enclosure.
        how: passed on to `accept`.
    """

    def error_model(problem: nm.Problem) -> nm.Acceptance:
        oracle, bounds = forms.get(problem.declaration.algorithm or "", forms[""])
        return getattr(nm, accept)(problem, oracle, getattr(nm, bounds), **how)  # type: ignore[no-any-return]

    return error_model


def reference_add(a: Any, b: Any) -> Any:
    """The sum a + b."""
    return a + b


def accept_add(problem: nm.Problem) -> nm.Acceptance:
    """Return the correctly rounded sum, of operands that may be flushed.

    The float64 sum, rounded once more, is the correctly rounded one (53 >= 2 p + 2,
    Figueroa 1995); directed rounding needs its own error on top.
    """
    arithmetic = nm.Arithmetic.declared(problem)
    a, b = problem.tensors["a"], problem.tensors["b"]
    seen_a, seen_b = arithmetic.read(a), arithmetic.read(b)
    total = seen_a + seen_b
    if problem.declaration.store != "rne":
        total = total.widened(2.0**-53)
    made = arithmetic.single(total)
    return arithmetic.accepted(problem, reference_add(a, b), made)


add = pointwise(
    "add",
    reference_add,
    accept_add,
    tensors="a b",
    homogeneous={"a b": 1},
    exact=True,
    gradient=differentiable("a b", linear=True),
    aten=describes("add.Tensor", "self=a other=b", alpha=(1, 2, -0.5)),
)


def reference_mul(a: Any, b: Any) -> Any:
    """The product a * b."""
    return a * b


def accept_mul(problem: nm.Problem) -> nm.Acceptance:
    """Return the correctly rounded product, of operands that may be flushed.

    Products of float32 numbers are exact in float64.
    """
    arithmetic = nm.Arithmetic.declared(problem)
    a, b = problem.tensors["a"], problem.tensors["b"]
    seen_a, seen_b = arithmetic.read(a), arithmetic.read(b)
    made = arithmetic.single(seen_a * seen_b)
    classes = nm.product_classes(a, seen_a, b, seen_b)
    return arithmetic.accepted(problem, reference_mul(a, b), made, classes=classes)


mul = pointwise(
    "mul",
    reference_mul,
    accept_mul,
    tensors="a b",
    homogeneous={"a": 1, "b": 1},
    exact=True,
    gradient=differentiable("a b", linear=True),
    aten=describes("mul.Tensor multiply.Tensor", "self=a other=b"),
)


def reference_copy(x: Any) -> Any:
    """x.clone()."""
    return x.clone()


def reference_cast(x: Any, *, dtype: str) -> Any:
    """x.to(dtype), before its one rounding."""
    return x.clone()


def reference_transpose(x: Any) -> Any:
    """x.transpose(-1, -2), of any strides."""
    return x.transpose(-1, -2)


def accept_move(oracle: Oracle) -> ErrorModel:
    """Return the exact acceptance of what only moves bits, signs of zeros included."""
    return lambda problem: nm.moved(problem, oracle(**problem.tensors).contiguous())


copy = pointwise(
    "copy",
    reference_copy,
    accept_move(reference_copy),
    homogeneous={"x": 1},
    defaults=MOVES,
    dtypes=EVERY_DTYPE,
    exact=True,
    gradient=differentiable("x", linear=True),
    aten=describes("clone contiguous alias_copy lift_fresh_copy detach_copy", "self=x"),
)
transpose = defined(
    "transpose",
    inputs={"x": ks.tensors("* M N")},
    oracle=reference_transpose,
    homogeneous={"x": 1},
    error_model=accept_move(reference_transpose),
    defaults=MOVES,
    dtypes=EVERY_DTYPE,
    structure=Structure.EXACT,
    gradient=differentiable("x", "* N M", linear=True),
    aten=describes("transpose.int transpose_copy.int", "self=x dim0=-2 dim1=-1"),
)
_where = of_torch("where", "torch.where(mask, x, y).")
where = defined(
    "where",
    inputs={"mask": ks.masks("*"), "x": ks.tensors("*"), "y": ks.tensors("*")},
    oracle=_where,
    homogeneous={"x y": 1},
    # What is not selected has no part in it: neither its NaN nor its infinity.
    error_model=lambda problem: nm.moved(problem, _where(*problem.tensors.values())),
    ranks=range(5),
    defaults=MOVES,
    dtypes=EVERY_DTYPE,
    structure=Structure.EXACT,
    gradient=differentiable("x y", linear=True),
    aten=describes("where.self", "condition=mask self=x other=y"),
)


def accept_cast(problem: nm.Problem) -> nm.Acceptance:
    """Return x itself: the store is the one rounding, and its overflow the declared.

    Between formats of which one holds the other nothing rounds. Rounding first to a
    third format and then again is another function. Where subnormal numbers may be
    flushed, one of either format may become 0.
    """
    x = problem.tensors["x"]
    seen = nm.Interval.exact(x)
    if problem.flushes:
        seen = seen.or_zero(problem.format.min_normal)
    stored = problem.format_of("dtype")
    y = nm.between(problem, x, seen.low, seen.high, output=stored)
    return replace(y, signed_zeros=True)


cast = pointwise(
    "cast",
    reference_cast,
    accept_cast,
    scalars={"dtype": ks.dtype("float16", ("float32", "bfloat16", "float64", *FLOAT8))},
    defaults=MOVES,
    dtypes=EVERY_DTYPE,
    exact=True,
    aten=describes("_to_copy to.dtype", "self=x dtype"),
)

RELU: Final = kinked(lambda x: x.new_zeros(()))


_relu = of_torch("relu", "torch.relu(x): x where x > 0, else 0; NaN stays NaN.")
relu = pointwise(
    "relu",
    _relu,
    lambda problem: nm.around(problem, _relu(problem.tensors["x"]), 0.0),
    homogeneous={"x": 1},
    defaults=MOVES,
    dtypes=EVERY_DTYPE,
    exact=True,
    gradient=differentiable("x", forms=RELU),
    aten=describes("relu", "self=x"),
)

reference_clamp = of_torch("clamp", "torch.clamp(x, min, max): NaN stays NaN.")


def inside(x: nm.Tensor, *, min: float, max: float) -> nm.Tensor:
    """X between two bounds, and 0 at them and beyond."""
    return x.where((x > min) & (x < max), x.new_zeros(()))


clamp = pointwise(
    "clamp",
    reference_clamp,
    scalars={
        "min": ks.scalar(-1.0, domain=(0.0, -0.1, -65504.0)),
        "max": ks.scalar(1.0, domain=(6.0, 0.1, 65504.0)),
    },
    defaults=MOVES,
    dtypes=("float64", "float32", "float16", "bfloat16"),
    exact=True,
    # The bounds may be rounded to the data's format.
    gradient=differentiable("x", forms=(reference_clamp, inside), stored=EVERY),
    aten=describes("clamp clip", "self=x min max"),
)


def reference_elu(x: Any, *, alpha: float) -> Any:
    """torch.where(x > 0, x, alpha * torch.expm1(x))."""
    import torch

    return torch.where(x > 0, x, alpha * torch.expm1(x.clamp(max=0)))


def elu_by_exp(x: Any, *, alpha: float) -> Any:
    """The same with exp(x) - 1, which cancels near 0."""
    import torch

    return torch.where(x > 0, x, alpha * (torch.exp(x.clamp(max=0)) - 1))


elu = pointwise(
    "elu",
    reference_elu,
    forms={"": (reference_elu, elu_by_exp), "expm1": (reference_elu,)},
    scalars={
        "alpha": ks.scalar(1.0, domain=(0.5, 1.6732632423543772)),
    },
    algorithms={"expm1": "accurate near 0: exp(x) - 1 is not formed"},
    gradient=differentiable(
        "x",
        forms=kinked(lambda x, alpha: alpha * x.clamp(max=0).expm1()),
        stored="expm1",
    ),
    aten=describes("elu", "self=x alpha"),
)
reference_leaky_relu = of_torch(
    "nn.functional.leaky_relu", "torch.nn.functional.leaky_relu(x, negative_slope)."
)


leaky_relu = pointwise(
    "leaky_relu",
    reference_leaky_relu,
    scalars={
        "negative_slope": ks.scalar(0.01, domain=(0.25, 0.2, 0.5)),
    },
    homogeneous={"x": 1},
    gradient=differentiable(
        "x", forms=kinked(lambda x, negative_slope: negative_slope * x)
    ),
    aten=describes("leaky_relu", "self=x negative_slope"),
)
reference_log = of_torch("log", "torch.log(x): -Inf at both zeros, NaN below.")


# Forms would leave open what becomes of a subnormal that may be flushed.
def accept_log(problem: nm.Problem) -> nm.Acceptance:
    """Return log(x) -/+ 5 u |log x|; a subnormal that is flushed gives -Inf."""
    import torch

    arithmetic = nm.Arithmetic.declared(problem)
    x = problem.tensors["x"]
    y = reference_log(x)
    seen = arithmetic.read(x)
    vanishes = torch.isfinite(x) & (x != 0) & (seen.low <= 0) & (seen.high >= 0)
    classes = nm.classes_of(y)
    classes = torch.where(vanishes, classes | nm.NEGATIVE_INF, classes).to(torch.uint8)
    # Where x may vanish the finite results are those of x itself.
    own = nm.Interval.exact(x)
    made = nm.log(own.where(vanishes | ~torch.isfinite(x), seen), arithmetic)
    return arithmetic.accepted(problem, y, made, classes=classes)


log = pointwise(
    "log",
    reference_log,
    accept_log,
    gradient=differentiable("x"),
    aten=describes("log", "self=x"),
)


def _softplus(x: Any, beta: float, threshold: float, curve: Oracle) -> Any:
    import torch

    z = beta * x
    return torch.where(z > threshold, x, curve(z) / beta)


def softplus_by_log1p(x: Any, *, beta: float, threshold: float) -> Any:
    """max(z, 0) + log1p(exp(-|z|)) for z = beta x; x itself where z > threshold."""

    def curve(z: Any) -> Any:
        return z.clamp(min=0) + (-z.abs()).exp().log1p()

    return _softplus(x, beta, threshold, curve)


def softplus_by_log(x: Any, *, beta: float, threshold: float) -> Any:
    """log(1 + exp(z)) for z = beta x, whose sum is rounded."""
    return _softplus(x, beta, threshold, lambda z: (1 + z.exp()).log())


def softplus_direct(x: Any, *, beta: float, threshold: float) -> Any:
    """log1p(exp(z)) for z = beta x."""
    return _softplus(x, beta, threshold, lambda z: z.exp().log1p())


def softplus_gradient(g: Given) -> Gradients:
    """The sigmoid of z below the threshold, and 1 above it."""
    z = g["x"] * float(g.scalars["beta"])
    curved = g.grad * z.sigmoid()
    return {"x": g.grad.where(z > float(g.scalars["threshold"]), curved)}


softplus = pointwise(
    "softplus",
    softplus_by_log1p,
    forms={
        "": (softplus_by_log1p, softplus_by_log),
        "log1p": (softplus_by_log1p, softplus_direct),
    },
    scalars={
        "beta": ks.scalar(1.0, domain=(2.0, 0.5, 0.1)),
        "threshold": ks.scalar(20.0, domain=(5.0,)),
    },
    algorithms={"log1p": "accurate below 0: 1 + exp(beta x) is not rounded"},
    gradient=differentiable("x", formula=softplus_gradient),
    aten=describes("softplus", "self=x beta threshold"),
)

_exp = of_torch("exp", "torch.exp(x).")
_sigmoid = of_torch("sigmoid", "torch.sigmoid(x).")
_tanh = of_torch("tanh", "torch.tanh(x).")
exp = pointwise(
    "exp",
    _exp,
    by_forms("enclosed", {"": (_exp, "exp")}),
    gradient=differentiable("x", stored="exp"),
    aten=describes("exp", "self=x"),
)
sigmoid = pointwise(
    "sigmoid",
    _sigmoid,
    by_forms(
        "enclosed",
        {"": (_sigmoid, "sigmoid"), "tanh_form": (_sigmoid, "sigmoid_by_tanh")},
    ),
    algorithms={"tanh_form": "0.5 + 0.5 tanh(x / 2): absolute error below 0"},
    gradient=differentiable("x", stored="sigmoid"),
    aten=describes("sigmoid", "self=x"),
)
tanh = pointwise(
    "tanh",
    _tanh,
    by_forms("enclosed", {"": (_tanh, "tanh"), "exp_form": (_tanh, "tanh_by_exp")}),
    algorithms={"exp_form": "2 sigmoid(2x) - 1 and the like: absolute error near 0"},
    gradient=differentiable("x", stored="tanh"),
    aten=describes("tanh", "self=x"),
)


def reference_silu(x: Any) -> Any:
    """The product x * torch.sigmoid(x); 0 at -Inf."""
    import torch

    return nm.at_the_limit(x, x * torch.sigmoid(x))


def reference_gelu(x: Any) -> Any:
    """The product x / 2 * erfc(-x / sqrt(2)): x Phi(x); 0 at -Inf."""
    import torch

    return nm.at_the_limit(x, 0.5 * x * torch.erfc(x * -(0.5**0.5)))


def reference_gelu_tanh(x: Any) -> Any:
    """The product x * sigmoid(2 t), which is x / 2 * (1 + tanh t); 0 at -Inf."""
    import torch

    return nm.at_the_limit(x, x * torch.sigmoid(2 * nm.gelu_tanh_argument(x)))


def reference_swiglu(gate: Any, up: Any) -> Any:
    """torch.nn.functional.silu(gate) * up."""
    return reference_silu(gate) * up


def reference_geglu(gate: Any, up: Any) -> Any:
    """torch.nn.functional.gelu(gate) * up."""
    return reference_gelu(gate) * up


def gelu_by_erf(x: nm.Tensor) -> nm.Tensor:
    """The product x / 2 * (1 + erf(x / sqrt 2))."""
    return 0.5 * x * (1 + (x * math.sqrt(0.5)).erf())


def gelu_by_tanh(x: nm.Tensor) -> nm.Tensor:
    """The product x / 2 * (1 + tanh t)."""
    return 0.5 * x * (1 + nm.gelu_tanh_argument(x).tanh())


def gated(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the product of a function of gate, as it may have been kept, and up."""
    return lambda gate, up: function(gate).clone() * up


_SILU: Final = {
    "": (reference_silu, "silu"),
    "tanh_form": (reference_silu, "silu_by_tanh"),
}
# The tanh approximation, which lies up to 4.7e-4 away, is another function.
_GELU: Final = {
    "": (reference_gelu, "gelu"),
    "tanh_form": (reference_gelu_tanh, "gelu_tanh"),
}
_GELU_TANH: Final = {"": _GELU["tanh_form"]}
silu = pointwise(
    "silu",
    reference_silu,
    by_forms("activated", _SILU),
    algorithms={"tanh_form": "x (0.5 + 0.5 tanh(x / 2)): absolute error below 0"},
    gradient=differentiable("x"),
    aten=describes("silu", "self=x"),
)
gelu = pointwise(
    "gelu",
    reference_gelu,
    by_forms("activated", _GELU, doubles=True),
    algorithms={"tanh_form": "the tanh approximation, as gelu_tanh computes it"},
    gradient=differentiable("x"),
    aten=describes("gelu", "self=x", approximate=("none", "tanh")),
)
gelu_tanh = pointwise(
    "gelu_tanh",
    reference_gelu_tanh,
    by_forms("activated", _GELU_TANH, doubles=True),
    gradient=differentiable("x", forms=(gelu_by_tanh,)),
)
swiglu = pointwise(
    "swiglu",
    reference_swiglu,
    by_forms("gated", _SILU, growth=1),
    tensors="gate up",
    chain=("silu", "mul"),
    algorithms={"tanh_form": "silu by tanh: absolute error for negative gates"},
    gradient=differentiable("gate up", forms=(gated(reference_silu),), stored="clone"),
)
geglu = pointwise(
    "geglu",
    reference_geglu,
    by_forms("gated", _GELU, growth=2),
    tensors="gate up",
    chain=("gelu", "mul"),
    algorithms={"tanh_form": "gelu by its tanh approximation, as gelu_tanh"},
    gradient=differentiable("gate up", forms=(gated(gelu_by_erf),), stored="clone"),
)


def and_mul(name: str, function: Oracle, error_model: ErrorModel) -> Operator:
    """Return the operator of rows that hold a gate, then what it is applied to.

    Args:
        name: its name.
        function: the function of the gate.
        error_model: of the product, with `gate` and `up` apart.
    """

    def oracle(x: Any) -> Any:
        return gated(function)(*x.chunk(2, -1))

    def apart(problem: nm.Problem) -> nm.Acceptance:
        gate, up = problem.tensors["x"].chunk(2, -1)
        return error_model(replace(problem, tensors={"gate": gate, "up": up}))

    oracle.__doc__ = f"{name.removesuffix('_and_mul')} of x[:, :D/2] by x[:, D/2:]."
    return defined(
        name, inputs={"x": ks.tensors("* D")}, oracle=oracle, error_model=apart,
        shape_class="D % 2 == 0",
    )  # fmt: skip


silu_and_mul = and_mul(
    "silu_and_mul", reference_silu, by_forms("gated", _SILU, growth=1)
)
gelu_and_mul = and_mul(
    "gelu_and_mul", reference_gelu, by_forms("gated", _GELU, growth=2)
)
gelu_tanh_and_mul = and_mul(
    "gelu_tanh_and_mul", reference_gelu_tanh, by_forms("gated", _GELU_TANH, growth=2)
)


def reference_rope(
    x: Any, cos: Any, sin: Any, *, interleaved: bool, repeats: int
) -> Any:
    """The sum x cos + turned(x) sin; a pair (a, b) is turned to (-b, a).

    Pairs are columns i and i + D/2 (GPT-NeoX), or 2i and 2i + 1 if interleaved
    (GPT-J); the tables serve every batch and head.
    """
    c, s = tables(cos, sin, interleaved=interleaved, repeats=repeats)
    return x * c + turned(x, interleaved=interleaved) * s


def turned(x: Any, *, interleaved: bool) -> Any:
    """Return the other half of each pair, the first one's negated."""
    import torch

    half = x.shape[-1] // 2
    if interleaved:
        return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    return torch.cat((-x[..., half:], x[..., :half]), -1)


def tables(cos: Any, sin: Any, *, interleaved: bool, repeats: int) -> tuple[Any, Any]:
    """Return the tables as [..., S, 1, D]."""
    spread = [
        t.repeat_interleave(repeats, -1) if interleaved else t.tile(repeats)
        for t in (cos, sin)
    ]
    return spread[0].unsqueeze(-2), spread[1].unsqueeze(-2)


rope = defined(
    "rope",
    inputs={
        "x": ks.tensors("B S H D"),
        "cos": ks.tensors("S E", role="weight"),
        "sin": ks.tensors("S E", role="weight"),
        "interleaved": ks.scalar(False, domain=(True,)),
        "repeats": ks.scalar(1, domain=(2,)),
    },
    oracle=reference_rope,
    homogeneous={"x": 1, "cos sin": 1},
    forms={"": (reference_rope,)},
    batch="B",
    shape_class="D % 2 == 0 and E == D // repeats and 1 <= repeats and repeats <= 2",
    # Not linear's bound: sums over heads and repeated columns are one, in any order.
    gradient=differentiable("x cos sin", "B S H D"),
)


def reference_rope_positions(
    x: Any, cos: Any, sin: Any, positions: Any, *, interleaved: bool, part: int
) -> Any:
    """Rope of the leading D / part columns, by the rows of the tables at positions.

    Pairs are columns i and i + E (GPT-NeoX), or 2i and 2i + 1 if interleaved (GPT-J);
    other columns stay as they are.
    """
    import torch

    wide = 2 * cos.shape[-1]
    rows = [t[positions].unsqueeze(-2) for t in (cos, sin)]
    c, s = (
        t.repeat_interleave(2, -1) if interleaved else torch.cat((t, t), -1)
        for t in rows
    )
    head, rest = x[..., :wide], x[..., wide:]
    made = head * c + turned(head, interleaved=interleaved) * s
    return torch.cat((made, rest), -1)


rope_positions = defined(
    "rope_positions",
    inputs={
        "x": ks.tensors("B S H D"),
        "cos": ks.tensors("T E", role="weight"),
        "sin": ks.tensors("T E", role="weight"),
        "positions": ks.indices("B S", below="T"),
        "interleaved": ks.scalar(False, domain=(True,)),
        "part": ks.scalar(1, domain=(2, 4)),
    },
    oracle=reference_rope_positions,
    homogeneous={"x": 1, "cos sin": 1},
    batch="B",
    shape_class="D % (2 * part) == 0 and E == D // (2 * part)",
)


def reference_rope_sections(
    x: Any, cos: Any, sin: Any, *, first: int, second: int
) -> Any:
    """Rope whose pairs i take their angles from one of three tables.

    Pairs below `first` from the first table, `second` further ones from the second,
    the rest from the third; pairs are columns i and i + E, as in Qwen2-VL (2024).
    """

    def joined(table: Any) -> Any:
        import torch

        ends = (0, first, first + second, table.shape[-1])
        parts = [table[i, ..., ends[i] : ends[i + 1]] for i in range(3)]
        return torch.cat(parts + parts, -1).unsqueeze(-2)

    return x * joined(cos) + turned(x, interleaved=False) * joined(sin)


rope_sections = defined(
    "rope_sections",
    inputs={
        "x": ks.tensors("B S H D"),
        "cos": ks.tensors("M B S E", role="weight"),
        "sin": ks.tensors("M B S E", role="weight"),
        "first": ks.scalar(1, domain=(2, 4)),
        "second": ks.scalar(1, domain=(0, 3)),
    },
    oracle=reference_rope_sections,
    homogeneous={"x": 1, "cos sin": 1},
    shape_class="M == 3 and D % 2 == 0 and E == D // 2 and first + second <= E",
    usual={"M": 3},
)
