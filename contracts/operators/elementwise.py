"""Elementwise operators, and rotary embeddings."""

from dataclasses import replace
from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import EVERY_DTYPE, MOVES, Operator, Structure, Tolerance
from kfuzz.core.dtypes import FLOAT8


def reference_add(a: Any, b: Any) -> Any:
    """The sum a + b."""
    return a + b


def accept_add(problem: "nm.Problem") -> "nm.Acceptance":
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


add = Operator(
    "add",
    inputs={"a": ks.tensors("*"), "b": ks.tensors("*")},
    oracle=reference_add,
    homogeneous={"a b": 1},
    error_model=accept_add,
    ranks=range(5),
    tolerance=Tolerance(
        Structure.EXACT,
        "y == RNE(a + b)",
        "one operation; a float32 sum of 16-bit numbers, rounded to their format, is "
        "the correctly rounded sum (double rounding is innocuous if p >= 2 q + 2); "
        "subnormal operands and results may be 0 unless preserved",
    ),
    special_values="NaN stays NaN, Inf - Inf is NaN; overflow to the infinity",
)


def reference_cast(x: Any, *, dtype: str) -> Any:
    """x.to(dtype), before its one rounding."""
    return x.clone()


def accept_cast(problem: "nm.Problem") -> "nm.Acceptance":
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


cast = Operator(
    "cast",
    inputs={
        "x": ks.tensors("*"),
        "dtype": ks.dtype("float16", ("float32", "bfloat16", "float64", *FLOAT8)),
    },
    oracle=reference_cast,
    error_model=accept_cast,
    ranks=range(5),
    defaults=MOVES,
    dtypes=EVERY_DTYPE,
    tolerance=Tolerance(
        Structure.EXACT,
        "y == RNE(x), and -0 stays -0",
        "one rounding to nearest even; beyond the range of dtype as overflow= says",
    ),
    special_values="NaN stays NaN (of any payload), infinities and both zeros stay; in "
    "a format without infinities they are NaN or the greatest number unless overflow= "
    "says which",
)


def reference_clamp(x: Any, *, min: float, max: float) -> Any:
    """torch.clamp(x, min, max): NaN stays NaN."""
    import torch

    return torch.clamp(x, min, max)


def accept_clamp(problem: "nm.Problem") -> "nm.Acceptance":
    """Return x between bounds that may be rounded to the arithmetic's format."""
    import torch

    x = problem.tensors["x"]
    least, most = problem.number("min"), problem.number("max")
    exact = reference_clamp(x, min=least, max=most)
    if problem.format.name == "float64":
        return nm.around(problem, exact, 0.0)
    arithmetic = nm.Arithmetic.declared(problem)
    lower, upper = arithmetic.constant(least, x), arithmetic.constant(most, x)
    low = torch.minimum(torch.maximum(x, lower.low), upper.low)
    high = torch.minimum(torch.maximum(x, lower.high), upper.high)
    return nm.between(problem, exact, low, high)


clamp = Operator(
    "clamp",
    inputs={
        "x": ks.tensors("*"),
        "min": ks.scalar(-1.0, domain=(0.0, -0.1, -65504.0)),
        "max": ks.scalar(1.0, domain=(6.0, 0.1, 65504.0)),
    },
    oracle=reference_clamp,
    error_model=accept_clamp,
    ranks=range(5),
    defaults=MOVES,
    dtypes=("float64", "float32", "float16", "bfloat16"),
    tolerance=Tolerance(
        Structure.EXACT,
        "y == min(max(x, lo), hi), lo and hi rounded to float32 or not",
        "clamping selects one of its operands and rounds nothing but its bounds",
    ),
    special_values="NaN stays NaN, infinities become the bounds; +0 and -0 are equal",
)


def reference_copy(x: Any) -> Any:
    """x.clone()."""
    return x.clone()


def accept_copy(problem: "nm.Problem") -> "nm.Acceptance":
    """Return the exact acceptance, signs of zeros included."""
    return nm.moved(problem, reference_copy(problem.tensors["x"]))


copy = Operator(
    "copy",
    inputs={"x": ks.tensors("*")},
    oracle=reference_copy,
    homogeneous={"x": 1},
    error_model=accept_copy,
    ranks=range(5),
    defaults=MOVES,
    dtypes=EVERY_DTYPE,
    tolerance=Tolerance(
        Structure.EXACT, "y == x, and -0 stays -0", "a copy only moves bits"
    ),
    special_values="NaN stays NaN (of any payload), infinities and both zeros stay",
)


def reference_elu(x: Any, *, alpha: float) -> Any:
    """torch.where(x > 0, x, alpha * torch.expm1(x))."""
    import torch

    return torch.where(x > 0, x, alpha * torch.expm1(x.clamp(max=0)))


def accept_elu(problem: "nm.Problem") -> "nm.Acceptance":
    """Return x, or alpha times the union of expm1(x) and exp(x) - 1.

    exp(x) - 1 cancels near 0: its error is absolute, 5 u exp(x). With
    algorithm="expm1" only the relative error of expm1 is admitted.
    """
    arithmetic = nm.Arithmetic.declared(problem)
    x, alpha = problem.tensors["x"], problem.number("alpha")
    seen = arithmetic.read(x)
    below = arithmetic.read(x.clamp(max=0))
    made = nm.expm1(below, arithmetic)
    if problem.declaration.algorithm != "expm1":
        made = made.union(arithmetic.rounded(nm.exp(below, arithmetic) + -1.0))
    made = arithmetic.rounded(made * arithmetic.constant(alpha, x))
    made = seen.where(x > 0, made)
    return arithmetic.accepted(problem, reference_elu(x, alpha=alpha), made)


elu = Operator(
    "elu",
    inputs={
        "x": ks.tensors("*"),
        "alpha": ks.scalar(1.0, domain=(0.5, 1.6732632423543772)),
    },
    oracle=reference_elu,
    error_model=accept_elu,
    ranks=range(5),
    algorithms={"expm1": "accurate near 0: exp(x) - 1 is not formed"},
    tolerance=Tolerance(
        Structure.INTERVAL,
        "y == x where x > 0; else alpha exp(x) (4u|x| + 5u) + 3u |y|; with "
        'algorithm="expm1" 8u |y|',
        "the errors of exp (2 ulp and its argument), of the subtraction, which "
        "cancels near 0, of the product and of alpha; or of expm1 (2 ulp)",
    ),
    special_values="NaN stays NaN, +Inf stays, -Inf becomes -alpha",
)


def reference_exp(x: Any) -> Any:
    """torch.exp(x)."""
    import torch

    return torch.exp(x)


def accept_exp(problem: "nm.Problem") -> "nm.Acceptance":
    """Return exp(x -/+ (4 u |x| + 5 u)): exp itself, or exp2(x log2 e)."""
    return nm.enclosed(problem, reference_exp, nm.exp)


exp = Operator(
    "exp",
    inputs={"x": ks.tensors("*")},
    oracle=reference_exp,
    error_model=accept_exp,
    ranks=range(5),
    tolerance=Tolerance(
        Structure.INTERVAL,
        "exp(x -/+ (4u|x| + 5u)); with approx 13u for 5u",
        "2 ulp from correctly rounded in CUDA's and HIP's documents; the product x "
        "log2(e) and its constant where exp2 is used; `__expf` fits in it",
    ),
    special_values="NaN stays NaN, +Inf stays, -Inf becomes 0; overflow to +Inf",
)


def reference_gelu_tanh(x: Any) -> Any:
    """The product x * sigmoid(2 t), which is x / 2 * (1 + tanh t); 0 at -Inf."""
    import torch

    return nm.at_the_limit(x, x * torch.sigmoid(2 * nm.gelu_tanh_argument(x)))


def accept_gelu_tanh(problem: "nm.Problem") -> "nm.Acceptance":
    """Return x / 2 (1 + tanh t), whose error below 0 is absolute."""
    return nm.activated(problem, reference_gelu_tanh, nm.gelu_tanh, doubles=True)


gelu_tanh = Operator(
    "gelu_tanh",
    inputs={"x": ks.tensors("*")},
    oracle=reference_gelu_tanh,
    error_model=accept_gelu_tanh,
    ranks=range(5),
    tolerance=Tolerance(
        Structure.INTERVAL,
        "|x|/2 (12u s + 8u |t| sech^2 t + 2u) + 3u |y|, s = sigmoid(2t), "
        "t = sqrt(2/pi) (x + 0.044715 x^3); with approx |x|/2 2^-11 more",
        "tanh to 2 ulp, or by exponentials; its argument with eight roundings; 1 + "
        "tanh cancels below 0, so that the error is absolute there",
    ),
    special_values="NaN stays NaN, +Inf stays; -Inf becomes NaN, as -Inf * 0, or 0; "
    "undecided where 2 x overflows",
)


def reference_gelu(x: Any) -> Any:
    """The product x / 2 * erfc(-x / sqrt(2)): x Phi(x); 0 at -Inf."""
    import torch

    return nm.at_the_limit(x, 0.5 * x * torch.erfc(x * -(0.5**0.5)))


def accept_gelu(problem: "nm.Problem") -> "nm.Acceptance":
    """Return x / 2 (1 + erf(x / sqrt 2)), whose error below 0 is absolute.

    With algorithm="tanh_form" the kernel claims the tanh approximation: that
    function's acceptance, up to 4.7e-4 away.
    """
    if problem.declaration.algorithm == "tanh_form":
        return accept_gelu_tanh(problem)
    return nm.activated(problem, reference_gelu, nm.gelu, doubles=True)


gelu = Operator(
    "gelu",
    inputs={"x": ks.tensors("*")},
    oracle=reference_gelu,
    error_model=accept_gelu,
    ranks=range(5),
    algorithms={"tanh_form": "the tanh approximation, as gelu_tanh computes it"},
    tolerance=Tolerance(
        Structure.INTERVAL,
        "|x|/2 (9u |erf z| + 6u |z| erf'(z) + u) + 3u |y|, z = x / sqrt(2); with "
        "approx |x|/2 1.5e-7 more",
        "erf to 4 ulp, its argument rounded twice; 1 + erf cancels below 0, so that "
        "the error is absolute there",
    ),
    special_values="NaN stays NaN, +Inf stays; -Inf becomes NaN, as -Inf * 0, or 0; "
    "undecided where 2 x overflows",
)


def reference_geglu(gate: Any, up: Any) -> Any:
    """torch.nn.functional.gelu(gate) * up."""
    return reference_gelu(gate) * up


def accept_geglu(problem: "nm.Problem") -> "nm.Acceptance":
    """Return gelu's interval times up, in either order of the products.

    With algorithm="tanh_form", the tanh approximation's.
    """
    if problem.declaration.algorithm == "tanh_form":
        return nm.gated(problem, reference_gelu_tanh, nm.gelu_tanh, growth=2)
    return nm.gated(problem, reference_gelu, nm.gelu, growth=2)


geglu = Operator(
    "geglu",
    inputs={"gate": ks.tensors("*"), "up": ks.tensors("*")},
    oracle=reference_geglu,
    error_model=accept_geglu,
    chain=("gelu", "mul"),
    ranks=range(5),
    algorithms={"tanh_form": "gelu by its tanh approximation, as gelu_tanh"},
    tolerance=Tolerance(
        Structure.INTERVAL,
        "|up| E_gelu(gate) + 2u |y|",
        "gelu's error, scaled, and one more product, in either order",
    ),
    special_values="those of gelu(gate), then of a product: 0 * Inf is NaN, also "
    "where gelu(gate) may vanish; undecided where gate * up overflows",
)


def reference_leaky_relu(x: Any, *, negative_slope: float) -> Any:
    """torch.nn.functional.leaky_relu(x, negative_slope)."""
    import torch

    return torch.nn.functional.leaky_relu(x, negative_slope)


def accept_leaky_relu(problem: "nm.Problem") -> "nm.Acceptance":
    """Return x, or x s with the slope and the product rounded once each.

    A product in the output's own format is rounded by the store alone.
    """
    arithmetic = nm.Arithmetic.declared(problem)
    x = problem.tensors["x"]
    slope = problem.number("negative_slope")
    seen = arithmetic.read(x)
    made = arithmetic.last(seen * arithmetic.constant(slope, x))
    made = seen.where(x > 0, made)
    y = reference_leaky_relu(x, negative_slope=slope)
    return arithmetic.accepted(problem, y, made)


leaky_relu = Operator(
    "leaky_relu",
    inputs={
        "x": ks.tensors("*"),
        "negative_slope": ks.scalar(0.01, domain=(0.25, 0.2, 0.5)),
    },
    oracle=reference_leaky_relu,
    homogeneous={"x": 1},
    error_model=accept_leaky_relu,
    ranks=range(5),
    tolerance=Tolerance(
        Structure.INTERVAL,
        "y == x where x > 0; else RNE(s x -/+ E), E = u |s x| for a slope s that the "
        "format lacks, and u |s x| for a product rounded before the store",
        "the slope and the product are each rounded once; subnormals may be 0 unless "
        "preserved",
    ),
    special_values="NaN stays NaN, infinities stay",
)


def reference_log(x: Any) -> Any:
    """torch.log(x): -Inf at both zeros, NaN below."""
    import torch

    return torch.log(x)


def accept_log(problem: "nm.Problem") -> "nm.Acceptance":
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


log = Operator(
    "log",
    inputs={"x": ks.tensors("*")},
    oracle=reference_log,
    error_model=accept_log,
    ranks=range(5),
    tolerance=Tolerance(
        Structure.INTERVAL,
        "5u |log x|; with approx 7u |log x|, and 2^-21.41 for x in [0.5, 2]",
        "2 ulp from correctly rounded, the larger of CUDA's and HIP's documented "
        "errors; log2(x) ln 2 fits in it",
    ),
    special_values="-Inf at +0 and -0, NaN below 0 and at NaN, +Inf stays; a "
    "subnormal that may be flushed gives -Inf too",
)


def reference_mul(a: Any, b: Any) -> Any:
    """The product a * b."""
    return a * b


def accept_mul(problem: "nm.Problem") -> "nm.Acceptance":
    """Return the correctly rounded product, of operands that may be flushed.

    Products of float32 numbers are exact in float64.
    """
    arithmetic = nm.Arithmetic.declared(problem)
    a, b = problem.tensors["a"], problem.tensors["b"]
    seen_a, seen_b = arithmetic.read(a), arithmetic.read(b)
    made = arithmetic.single(seen_a * seen_b)
    classes = nm.product_classes(a, seen_a, b, seen_b)
    return arithmetic.accepted(problem, reference_mul(a, b), made, classes=classes)


mul = Operator(
    "mul",
    inputs={"a": ks.tensors("*"), "b": ks.tensors("*")},
    oracle=reference_mul,
    homogeneous={"a": 1, "b": 1},
    error_model=accept_mul,
    ranks=range(5),
    tolerance=Tolerance(
        Structure.EXACT,
        "y == RNE(ab)",
        "one operation; a float32 product of 16-bit numbers is exact, or so small that "
        "it becomes 0; subnormal operands and results may be 0 unless preserved",
    ),
    special_values="NaN stays NaN, 0 * Inf is NaN, and so is a subnormal that may be "
    "flushed times Inf; overflow to the infinity",
)


def reference_relu(x: Any) -> Any:
    """torch.relu(x): x where x > 0, else 0; NaN stays NaN."""
    import torch

    return torch.relu(x)


def accept_relu(problem: "nm.Problem") -> "nm.Acceptance":
    """Return the exact acceptance: relu only selects."""
    return nm.around(problem, reference_relu(problem.tensors["x"]), 0.0)


relu = Operator(
    "relu",
    inputs={"x": ks.tensors("*")},
    oracle=reference_relu,
    homogeneous={"x": 1},
    error_model=accept_relu,
    ranks=range(5),
    defaults=MOVES,
    dtypes=EVERY_DTYPE,
    tolerance=Tolerance(
        Structure.EXACT,
        "y == max(x, 0)",
        "relu selects one of its operands and rounds nothing; +0 and -0 are equal",
    ),
    special_values="NaN stays NaN, +Inf stays, -Inf becomes 0",
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


def accept_rope(problem: "nm.Problem") -> "nm.Acceptance":
    """Return the sum of two products, each rounded or fused with the addition.

    The error is absolute in |x cos| + |x' sin|: where they cancel, that of either
    product remains.
    """
    import torch

    t, interleaved = problem.tensors, bool(problem.scalars["interleaved"])
    arithmetic = nm.Arithmetic.declared(problem)
    x, other = t["x"], turned(t["x"], interleaved=interleaved)
    cos, sin = (
        table.unsqueeze(1)
        for table in tables(
            t["cos"], t["sin"], interleaved=interleaved, repeats=problem.axis("repeats")
        )
    )
    terms, classes, overflows = [], [], []
    for a, b in ((x, cos), (other, sin)):
        seen_a, seen_b = arithmetic.read(a), arithmetic.read(b)
        # The rounded product holds the exact one that a fused addition takes.
        term = arithmetic.rounded(seen_a * seen_b)
        size = torch.maximum(-term.low, term.high)
        terms.append(term)
        classes.append(nm.product_classes(a, seen_a, b, seen_b))
        overflows.append((size > arithmetic.format.max_finite) & torch.isfinite(a * b))
    return arithmetic.accepted(
        # The tables as they lie beside x.
        replace(problem, tensors={"x": x, "cos": cos, "sin": sin}),
        x * cos + other * sin,
        arithmetic.last(terms[0] + terms[1]),
        classes=nm.added_classes(*classes),
        ambiguous=overflows[0] | overflows[1],
    )


rope = Operator(
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
    error_model=accept_rope,
    batch="B",
    shape_class="D % 2 == 0 and E == D // repeats and 1 <= repeats and repeats <= 2",
    tolerance=Tolerance(
        Structure.INTERVAL,
        "RNE(y - E) <= y <= RNE(y + E), E = u (|x cos| + |x' sin|) + u |y|",
        "two products and their sum, each rounded, or one product fused with the "
        'sum; with intermediates="output" u is that of the output\'s format for the '
        "products, and the sum is rounded once",
    ),
    special_values="NaN and infinities as in IEEE 754, 0 * Inf is NaN, and so are "
    "opposite infinities; undecided where a product overflows",
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


rope_positions = Operator(
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
    tolerance=Tolerance(
        Structure.INTERVAL,
        "as the running-error shadow derives it from the reference, four times; other "
        "columns exactly",
        "two products and their sum, each rounded, or one product fused with the sum",
    ),
    special_values="NaN and infinities as in IEEE 754, 0 * Inf is NaN; undecided where "
    "a product overflows",
)


def reference_rope_sections(
    x: Any, cos: Any, sin: Any, *, first: int, second: int
) -> Any:
    """Rope whose pairs i take their angles from one of three tables.

    Pairs below `first` from the first table, `second` further ones from the second,
    the rest from the third; pairs are columns i and i + E, as in Qwen2-VL (2024).
    """
    import torch

    def joined(table: Any) -> Any:
        ends = (0, first, first + second, table.shape[-1])
        parts = [table[i, ..., ends[i] : ends[i + 1]] for i in range(3)]
        return torch.cat(parts + parts, -1).unsqueeze(-2)

    return x * joined(cos) + turned(x, interleaved=False) * joined(sin)


rope_sections = Operator(
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
    tolerance=Tolerance(
        Structure.INTERVAL,
        "as the running-error shadow derives it from the reference, four times",
        "two products and their sum, each rounded, or one product fused with the sum",
    ),
    special_values="NaN and infinities as in IEEE 754, 0 * Inf is NaN; undecided where "
    "a product overflows",
)


def reference_sigmoid(x: Any) -> Any:
    """torch.sigmoid(x)."""
    import torch

    return torch.sigmoid(x)


def accept_sigmoid(problem: "nm.Problem") -> "nm.Acceptance":
    """Return sigmoid(x -/+ (4 u |x| + 5 u)) (1 -/+ 6 u), 0 where exp(-x) overflows.

    With algorithm="tanh_form": 0.5 + 0.5 tanh(x / 2), whose error is absolute.
    """
    by_tanh = problem.declaration.algorithm == "tanh_form"
    bounds = nm.sigmoid_by_tanh if by_tanh else nm.sigmoid
    return nm.enclosed(problem, reference_sigmoid, bounds)


sigmoid = Operator(
    "sigmoid",
    inputs={"x": ks.tensors("*")},
    oracle=reference_sigmoid,
    error_model=accept_sigmoid,
    ranks=range(5),
    algorithms={"tanh_form": "0.5 + 0.5 tanh(x / 2): absolute error below 0"},
    tolerance=Tolerance(
        Structure.INTERVAL,
        "s(1-s)(4u|x| + 5u) + 6u s, and 0 where s < 2^-125",
        "the errors of exp (2 ulp and its argument), of one addition and one division "
        "(2 ulp); exp(-x) overflows, or its reciprocal is flushed, far below 0",
    ),
    special_values="NaN stays NaN, +Inf becomes 1, -Inf becomes 0",
)


def reference_silu(x: Any) -> Any:
    """The product x * torch.sigmoid(x); 0 at -Inf."""
    import torch

    return nm.at_the_limit(x, x * torch.sigmoid(x))


def accept_silu(problem: "nm.Problem") -> "nm.Acceptance":
    """Return x times the sigmoid's interval, the product rounded.

    With algorithm="tanh_form": x (0.5 + 0.5 tanh(x / 2)), whose error is absolute.
    """
    by_tanh = problem.declaration.algorithm == "tanh_form"
    bounds = nm.silu_by_tanh if by_tanh else nm.silu
    return nm.activated(problem, reference_silu, bounds)


silu = Operator(
    "silu",
    inputs={"x": ks.tensors("*")},
    oracle=reference_silu,
    error_model=accept_silu,
    ranks=range(5),
    algorithms={"tanh_form": "x (0.5 + 0.5 tanh(x / 2)): absolute error below 0"},
    tolerance=Tolerance(
        Structure.INTERVAL,
        "|x| s(1-s)(4u|x| + 5u) + 8u |y|, and 0 where s < 2^-125",
        "the errors of exp (2 ulp and its argument), of one addition, one division "
        "(2 ulp) and the product; exp(-x) overflows far below 0",
    ),
    special_values="NaN stays NaN, +Inf stays; -Inf becomes NaN, as -Inf * 0, or 0",
)


def reference_softplus(x: Any, *, beta: float, threshold: float) -> Any:
    """torch.nn.functional.softplus: x where beta x > threshold."""
    import torch

    z = beta * x
    soft = torch.logaddexp(z, torch.zeros_like(z)) / beta
    return torch.where(z > threshold, x, soft)


def accept_softplus(problem: "nm.Problem") -> "nm.Acceptance":
    """Return log(1 + exp(z)) / beta for z = beta x, or x, or both at the threshold.

    The relative errors of exp and of log1p; besides, one absolute unit where
    1 + exp(z) is rounded, unless algorithm="log1p" is declared.
    """
    arithmetic = nm.Arithmetic.declared(problem)
    x = problem.tensors["x"]
    beta, threshold = problem.number("beta"), problem.number("threshold")
    seen = arithmetic.read(x)
    scale = arithmetic.constant(beta, x)
    z = seen * scale
    if beta != 1:
        z = arithmetic.rounded(z)
    accurate = problem.declaration.algorithm == "log1p"
    made = nm.log1p_exp(z, arithmetic, accurate=accurate).scaled(1 / beta)
    if beta != 1:
        made = arithmetic.rounded(made, 1 + nm.DIVISION_ERROR)
    linear = (z.high > threshold) | (x == float("inf"))
    curved = z.low <= threshold
    # Within rounding of the threshold either branch is right.
    made = made.union(seen).where(linear & curved, seen.where(linear, made))
    y = reference_softplus(x, beta=beta, threshold=threshold)
    # exp overflows before the threshold only in a narrow arithmetic.
    top = arithmetic.format.max_finite
    overflows = curved & (z.high.clamp(max=threshold).exp() > top)
    return arithmetic.accepted(problem, y, made, ambiguous=overflows)


softplus = Operator(
    "softplus",
    inputs={
        "x": ks.tensors("*"),
        "beta": ks.scalar(1.0, domain=(2.0, 0.5, 0.1)),
        "threshold": ks.scalar(20.0, domain=(5.0,)),
    },
    oracle=reference_softplus,
    error_model=accept_softplus,
    ranks=range(5),
    algorithms={"log1p": "accurate below 0: 1 + exp(beta x) is not rounded"},
    tolerance=Tolerance(
        Structure.INTERVAL,
        "s(z)(4u|z| + 5u) / beta + 6u |y| + u / beta, s the sigmoid; 6u |y| more if "
        'beta is not 1; with algorithm="log1p" without u / beta',
        "the errors of exp (2 ulp and its argument) and of the logarithm (2 ulp), "
        "absolute where 1 + exp(z) is rounded, of beta x and the division",
    ),
    special_values="NaN stays NaN, +Inf stays, -Inf becomes 0",
)


def reference_swiglu(gate: Any, up: Any) -> Any:
    """torch.nn.functional.silu(gate) * up."""
    return reference_silu(gate) * up


def accept_swiglu(problem: "nm.Problem") -> "nm.Acceptance":
    """Return silu's interval times up, in either order of the products."""
    by_tanh = problem.declaration.algorithm == "tanh_form"
    bounds = nm.silu_by_tanh if by_tanh else nm.silu
    return nm.gated(problem, reference_silu, bounds, growth=1)


swiglu = Operator(
    "swiglu",
    inputs={"gate": ks.tensors("*"), "up": ks.tensors("*")},
    oracle=reference_swiglu,
    error_model=accept_swiglu,
    chain=("silu", "mul"),
    ranks=range(5),
    algorithms={"tanh_form": "silu by tanh: absolute error for negative gates"},
    tolerance=Tolerance(
        Structure.INTERVAL,
        "|up| E_silu(gate) + 2u |y|",
        "silu's error, scaled, and one more product, in either order",
    ),
    special_values="those of silu(gate), then of a product: 0 * Inf is NaN, also "
    "where silu(gate) may vanish; undecided where gate * up overflows",
)


def reference_tanh(x: Any) -> Any:
    """torch.tanh(x)."""
    import torch

    return torch.tanh(x)


def accept_tanh(problem: "nm.Problem") -> "nm.Acceptance":
    """Return tanh(x) (1 -/+ 5 u), exactly 1 where it saturates.

    With algorithm="exp_form": 2 sigmoid(2x) - 1 or (1 - e) / (1 + e), which cancel
    near 0.
    """
    by_exp = problem.declaration.algorithm == "exp_form"
    bounds = nm.tanh_by_exp if by_exp else nm.tanh
    return nm.enclosed(problem, reference_tanh, bounds)


tanh = Operator(
    "tanh",
    inputs={"x": ks.tensors("*")},
    oracle=reference_tanh,
    error_model=accept_tanh,
    ranks=range(5),
    algorithms={"exp_form": "2 sigmoid(2x) - 1 and the like: absolute error near 0"},
    tolerance=Tolerance(
        Structure.INTERVAL,
        "5u |y|; 0 beyond 45; with approx 2^-11 |y|",
        "2 ulp from correctly rounded in CUDA's and HIP's documents; "
        "`tanh.approx.f32` has a relative error of 2^-11",
    ),
    special_values="NaN stays NaN, infinities become -1 and 1",
)


def reference_transpose(x: Any) -> Any:
    """x.transpose(-1, -2), of any strides."""
    return x.transpose(-1, -2)


def accept_transpose(problem: "nm.Problem") -> "nm.Acceptance":
    """Return the exact acceptance, signs of zeros included."""
    return nm.moved(problem, reference_transpose(problem.tensors["x"]).contiguous())


transpose = Operator(
    "transpose",
    inputs={"x": ks.tensors("* M N")},
    oracle=reference_transpose,
    homogeneous={"x": 1},
    error_model=accept_transpose,
    defaults=MOVES,
    dtypes=EVERY_DTYPE,
    tolerance=Tolerance(
        Structure.EXACT,
        "y[..., j, i] == x[..., i, j], and -0 stays -0",
        "a transposition only moves bits",
    ),
    special_values="NaN stays NaN (of any payload), infinities and both zeros stay",
)


def reference_where(mask: Any, x: Any, y: Any) -> Any:
    """torch.where(mask, x, y)."""
    import torch

    return torch.where(mask, x, y)


def accept_where(problem: "nm.Problem") -> "nm.Acceptance":
    """Return the exact acceptance, signs of zeros included.

    What is not selected has no part in it: neither its NaN nor its infinity.
    """
    return nm.moved(problem, reference_where(**problem.tensors))


where = Operator(
    "where",
    inputs={"mask": ks.masks("*"), "x": ks.tensors("*"), "y": ks.tensors("*")},
    oracle=reference_where,
    homogeneous={"x y": 1},
    error_model=accept_where,
    ranks=range(5),
    defaults=MOVES,
    dtypes=EVERY_DTYPE,
    tolerance=Tolerance(
        Structure.EXACT,
        "the bits of x or of y, and -0 stays -0",
        "a selection only moves bits",
    ),
    special_values="NaN (of any payload), infinities and both zeros as selected; those "
    "not selected do not show",
)
