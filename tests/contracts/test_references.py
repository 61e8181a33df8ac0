"""`kfuzz.reference` with what real kernels take: each kind, right and wrong."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import kfuzz
from kfuzz import strategies as ks
from kfuzz.contracts.binding import BoundKernel
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.oracle import accept
from kfuzz.core.budget import Depth
from kfuzz.core.codec import decode, encode
from kfuzz.core.declaration import Declaration
from kfuzz.core.errors import BindingError
from kfuzz.core.recipe import Case
from kfuzz.engine.confirm import fitted
from kfuzz.engine.reduce import reduce_case
from kfuzz.execution.values.fills import in_domain, logical_values
from kfuzz.numerics.acceptance import Problem
from kfuzz.numerics.compare import compare_members
from kfuzz.numerics.formats import FORMATS
from tests.helpers.in_process import InProcess, drawn
from tests.helpers.judged_cases import COUNTER
from tests.helpers.tiers import sampled

HOST = torch.device("cpu")
PAGE = Path(__file__).parents[2] / "contracts" / "operators" / "BINDING.md"


@dataclass(frozen=True)
class Kind:
    """A kind of argument: an operator that has one, a right kernel and a wrong one."""

    operator: Operator
    right: Callable[..., Any]
    wrong: Callable[..., Any]
    claims: dict[str, Any]
    least: dict[str, int]

    def bound(self, function: Callable[..., Any], name: str) -> BoundKernel:
        return kfuzz.kernel(self.operator, name=name, **self.claims)(function)


# Offsets ---------------------------------------------------------------------------


def _ragged_sums(x: Tensor, cu: Tensor, *, longest: int) -> Tensor:
    """The sum of each part."""
    ends = zip(cu[:-1].tolist(), cu[1:].tolist(), strict=True)
    return torch.stack([x[a:b].sum(0) for a, b in ends])


def _ragged_right(x: Tensor, cu: Tensor, longest: int) -> Tensor:
    number = torch.repeat_interleave(torch.arange(len(cu) - 1), cu.diff().long())
    assert longest == int(cu.diff().max())
    y = torch.zeros(len(cu) - 1, x.shape[1])
    return y.index_add_(0, number, x.float()).to(x.dtype)


def _ragged_wrong(x: Tensor, cu: Tensor, longest: int) -> Tensor:
    """An empty part takes the element that begins the next."""
    y = _ragged_right(x, cu, longest)
    empty = (cu.diff() == 0) & (cu[:-1] < len(x))
    y[empty] = x[cu[:-1][empty].long()]
    return y


# Spans -----------------------------------------------------------------------------


def _spanned(x: Tensor, spans: Tensor, *, longest: int) -> Tensor:
    """The sum of each part, gaps between them."""
    return torch.stack([x[a:b].sum(0) for a, b in spans.tolist()])


def _spanned_right(x: Tensor, spans: Tensor, longest: int) -> Tensor:
    starts, lengths = spans[:, 0], spans[:, 1] - spans[:, 0]
    y = torch.zeros(len(starts), x.shape[1])
    for i in range(longest):
        live = i < lengths
        y[live] += x[(starts + i)[live].long()].float()
    return y.to(x.dtype)


def _spanned_wrong(x: Tensor, spans: Tensor, longest: int) -> Tensor:
    """Each part goes on to the next."""
    ends = torch.cat([spans[1:, 0], spans[-1:, 1]])
    joined = torch.stack([spans[:, 0], ends], 1)
    return _spanned_right(x, joined, int(joined.diff().amax()))


# Pages -----------------------------------------------------------------------------


def _paged(cache: Tensor, pages: Tensor) -> Tensor:
    """The pages of each row, one after the other."""
    return cache[pages].flatten(1, 2)


def _paged_wrong(cache: Tensor, pages: Tensor) -> Tensor:
    """Every page is the one after the first of its row."""
    steps = torch.arange(pages.shape[1], device=pages.device)
    follow = (pages[:, :1] + steps) % len(cache) if pages.shape[1] else pages
    return cache[follow.long()].flatten(1, 2)


# Masks and domains -----------------------------------------------------------------


def _padded_sums(x: Tensor, mask: Tensor) -> Tensor:
    """Row sums of what is not padding."""
    return torch.where(mask, x, 0.0).sum(-1)


def _padded_right(x: Tensor, mask: Tensor) -> Tensor:
    counts = mask.sum(-1)  # a mask of padding is nothing but these
    live = torch.arange(x.shape[-1]) < counts[:, None]
    return torch.where(live, x.float(), 0.0).sum(-1).to(x.dtype)


def _padded_wrong(x: Tensor, mask: Tensor) -> Tensor:
    live = torch.arange(x.shape[-1]) < mask.sum(-1).amax()
    return torch.where(live, x.float(), 0.0).sum(-1).to(x.dtype)


def _expected(p: Tensor, x: Tensor) -> Tensor:
    """The mean under probabilities."""
    return (p * x).sum(-1)


def _expected_right(p: Tensor, x: Tensor) -> Tensor:
    assert bool(((p.double().sum(-1) - 1).abs() < 0.02).all())
    return (p.float() * x.float()).sum(-1).to(x.dtype)


def _expected_wrong(p: Tensor, x: Tensor) -> Tensor:
    return x.float().mean(-1).to(x.dtype)


# Lists, whole results, states ------------------------------------------------------


def _joined(xs: list[Tensor]) -> Tensor:
    """All elements of a list, doubled."""
    return torch.cat([2 * x for x in xs])


def _joined_wrong(xs: list[Tensor]) -> Tensor:
    return torch.cat([2 * x for x in (xs[0], *xs[:0:-1])])


def _stepped(x: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A state that goes in and comes out, and the sum of it in float32."""
    after = 0.5 * state + x
    return 2 * after, after, after.sum()


def _stepped_right(x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    state.mul_(0.5).add_(x.float())
    return (2 * state).to(x.dtype), state.sum()


def _stepped_wrong(x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    y = (state + 2 * x.float()).to(x.dtype)
    return y, (0.5 * state + x.float()).sum()  # the state stays as it was


def _each(xs: list[Tensor]) -> list[Tensor]:
    """Each tensor of a list, doubled."""
    return [2 * x for x in xs]


def _each_wrong(xs: list[Tensor]) -> list[Tensor]:
    return [2 * x for x in (*xs[:-1], xs[0][: len(xs[-1])])]


KINDS = {
    "offsets": Kind(
        kfuzz.reference(
            _ragged_sums,
            {
                "x": ks.tensors("T D"),
                "cu": ks.offsets("S", of="T", dtype="int32"),
                "longest": ks.longest("cu"),
            },
        ),
        _ragged_right, _ragged_wrong, {}, {"S": 3, "T": 1, "D": 1},
    ),
    "spans": Kind(
        kfuzz.reference(
            _spanned,
            {
                "x": ks.tensors("T D"),
                "spans": ks.spans("B", of="T"),
                "longest": ks.longest("spans"),
            },
            shape_class="B >= 1",
        ),
        _spanned_right, _spanned_wrong, {}, {"B": 2, "T": 1, "D": 1, "ends": 2},
    ),
    "pages": Kind(
        kfuzz.reference(
            _paged,
            {
                "cache": ks.tensors("P L"),
                "pages": ks.indices("B Q", below="P", distinct="throughout"),
            },
        ),
        lambda cache, pages: cache[pages.long()].flatten(1, 2),
        _paged_wrong, {}, {"B": 1, "Q": 2, "P": 3, "L": 1},
    ),
    "padding": Kind(
        kfuzz.reference(
            _padded_sums,
            {"x": ks.tensors("B N"), "mask": ks.masks("B N", kind="padding")},
        ),
        _padded_right, _padded_wrong, {}, {"B": 2, "N": 1},
    ),
    "probabilities": Kind(
        kfuzz.reference(
            _expected,
            {"p": ks.tensors("B C", probabilities=-1), "x": ks.tensors("B C")},
            shape_class="C >= 1",
        ),
        _expected_right, _expected_wrong, {}, {"B": 1, "C": 2},
    ),
    "lists": Kind(
        kfuzz.reference(_joined, {"xs": ks.lists(ks.tensors("N"), 3)}),
        _joined, _joined_wrong, {}, {"N0": 1, "N1": 1, "N2": 1},
    ),
    "state": Kind(
        kfuzz.reference(
            _stepped,
            {"x": ks.tensors("N"), "state": ks.tensors("N", dtype="float32")},
            outputs=("y", "state", "total"),
            results={"state": "float32", "total": "float32"},
        ),
        _stepped_right, _stepped_wrong, {"inplace": ("state",)}, {"N": 1},
    ),
    "results of lists": Kind(
        kfuzz.reference(_each, {"xs": ks.lists(ks.tensors("N"), 3)}, outputs=("ys[]",)),
        _each, _each_wrong, {}, {"N0": 1, "N1": 1},
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", sampled(KINDS, one_in=2))
def test_cases_keep_the_domain_and_a_right_kernel_conforms(kind: str) -> None:
    tried = KINDS[kind]
    kernel = tried.bound(tried.right, f"right_{kind}")
    runner = InProcess(kernel, budget="interpret")
    decided = 0
    for case in drawn(kernel, 30, budget="interpret"):
        assert kernel.operator.accepts(case, kernel.declaration)
        assert decode(Case, encode(case)) == case
        assert all(in_domain(runner.pin(case), name) for name in case.tensors)
        report = runner.evaluator.judge(case, Depth.SEARCH)
        assert report.failure is None, (report.failure, case)
        decided += "conforms" in {str(v) for v in report.verdicts.values()}
    assert decided > 24


@pytest.mark.slow
@pytest.mark.parametrize("kind", sampled(KINDS, one_in=2))
def test_a_wrong_kernel_is_found_and_its_minimum_is_a_valid_case(kind: str) -> None:
    tried = KINDS[kind]
    kernel = tried.bound(tried.wrong, f"wrong_{kind}")
    runner = InProcess(kernel, budget="interpret")

    def fails(case: Case) -> bool:
        return runner.evaluator.judge(case, Depth.SEARCH).failure is not None

    failing = next(c for c in drawn(kernel, 60, budget="interpret") if fails(c))

    def accepts(case: Case) -> bool:
        kept = all(in_domain(case, name) for name in case.tensors)
        return kept and kernel.operator.accepts(case, kernel.declaration)

    least, _ = reduce_case(
        runner.pin(failing), fails, accepts, deadline=math.inf,
        fitted=partial(fitted, kernel.operator),
    )  # fmt: skip
    assert accepts(least)
    assert fails(least)
    wanted = {axis: n for axis, n in tried.least.items() if axis in least.dims}
    assert least.dims == wanted


@pytest.mark.slow
def test_the_page_is_followed() -> None:
    source = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)[0]
    assert len(source.splitlines()) <= 60  # one screen
    for broken in (False, True):
        text = source
        if broken:  # a decay of another sequence than its own
            text = text.replace("decay[t].float()", "decay[t - starts[live]].float()")
            assert text != source
        names: dict[str, Any] = {"__name__": f"page_{broken}"}
        exec(compile(text, str(PAGE), "exec"), names)
        kernel = names["my_decayed_sums"]
        judge = InProcess(kernel, budget="interpret").evaluator.judge
        cases = drawn(kernel, 30, budget="interpret")
        failures = (judge(case, Depth.SEARCH).failure for case in cases)
        assert any(f is not None for f in failures) is broken


# Relations and offsets shrink together ---------------------------------------------


def test_a_dimension_alone_in_an_equality_is_computed() -> None:
    operator = kfuzz.reference(
        lambda x, w: x * w[: x.shape[0]].sum(),
        {"x": ks.tensors("E"), "w": ks.tensors("H D"), "g": ks.tensors("C")},
        name="related",
        shape_class="E == H * D and C % 4 == 0 and 2 <= D and D <= 8",
    )
    kernel = kfuzz.kernel(operator, name="related")(lambda x, w, g: x)
    cases = drawn(kernel, 60, budget="interpret")
    for case in cases:
        assert case.dims["E"] == case.dims["H"] * case.dims["D"]
        assert case.dims["C"] % 4 == 0
        assert 2 <= case.dims["D"] <= 8
    assert len({tuple(case.dims.values()) for case in cases}) > 10


def test_integers_bound_indices_and_name_sizes() -> None:
    def counts(expert: Tensor, x: Tensor, *, experts: int, tokens: int) -> Tensor:
        made = torch.zeros(experts, dtype=x.dtype)
        return made.index_add(0, expert, x) + tokens

    operator = kfuzz.reference(
        counts,
        {
            "expert": ks.indices("T", below="experts", rising=True),
            "x": ks.tensors("T"),
            "experts": ks.scalar(8, (1, 3)),
            "tokens": ks.size("T"),
        },
    )
    seen = set()

    def same(expert: Tensor, x: Tensor, experts: int, tokens: int) -> Tensor:
        assert (tokens == len(x) and not len(x)) or int(expert.max()) < experts
        seen.add(experts)
        made = torch.zeros(experts).index_add(0, expert.long(), x.float())
        return (made + tokens).to(x.dtype)

    kernel = kfuzz.kernel(operator, name="counts")(same)
    judge = InProcess(kernel, budget="interpret").evaluator.judge
    cases = drawn(kernel, 40, budget="interpret")
    assert all(judge(case, Depth.SEARCH).failure is None for case in cases)
    assert seen == {1, 3, 8}


def test_offsets_have_empty_parts_and_reach_the_whole() -> None:
    tried = KINDS["offsets"]
    kernel = tried.bound(tried.right, "offsets_drawn")
    empty = 0
    for case in drawn(kernel, 60, budget="interpret"):
        cu = logical_values(case, "cu", HOST)
        assert (int(cu[0]), int(cu[-1])) == (0, case.dims["T"])
        assert bool((cu.diff() >= 0).all())
        empty += bool((cu.diff() == 0).any())
    assert empty > 10


# What is judged ---------------------------------------------------------------------


def posed(**tensors: Tensor) -> Problem:
    single = {name: x[None] for name, x in tensors.items()}
    fmt = FORMATS["float32"]
    return Problem(single, {}, fmt, fmt, Declaration())


def misses(operator: Operator, y: Tensor, **tensors: Tensor) -> list[bool]:
    accepted = accept(operator, posed(**tensors))
    made = compare_members({"y": y[None]}, accepted)["y"]
    found: list[bool] = made.missed[0].tolist()
    return found


def doubles(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def _mixed(x: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    return (x * 1664525 + 1013904223) ^ (x >> 16), z * 2


def _upper(x: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    return (x * 1664525) >> 16, z * 2


def _scaled(x: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    return (x * 1664525).float() * 2.0**-31, z * 2


def _divided(x: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    return x // torch.where(z > 0, 3, -1).to(x.dtype), z * 2


def _divided_in_place(x: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 3
    y //= 3
    return y, z * 2


def _shifted_in_place(x: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    y = x.clone()
    y <<= 3
    return y, z * 2


def _tiny(x: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    return (x * 1664525).float() * 2.0**-80, z * 2


def _in_int64(function: Callable[..., Any]) -> Callable[..., Any]:
    def wide(x: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        return function(x.long(), z)[0].to(x.dtype), z * 2

    return wide


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reference", "kernel", "dtype", "conforms"),
    [
        (_mixed, _mixed, "int32", True),
        (_mixed, _in_int64(_mixed), "int32", True),
        (_mixed, lambda x, z: (_mixed(x + 1, z)[0], z * 2), "int32", False),
        (_upper, _upper, "int32", True),
        (_upper, _in_int64(_upper), "int32", True),
        (_upper, lambda x, z: (_upper(x, z)[0] + 1, z * 2), "int32", False),
        (_scaled, _scaled, "int32", True),
        (_divided, _in_int64(_divided), "int32", True),
        (_divided_in_place, _divided_in_place, "int32", True),
        (_shifted_in_place, lambda x, z: (x * 8, z * 2), "int32", True),
        (_shifted_in_place, lambda x, z: (x * 0, z * 2), "int32", False),
        (_tiny, _tiny, "int32", True),
        (lambda x, z: (x - 1, z * 2), lambda x, z: (x + 255, z * 2), "uint8", True),
        (lambda x, z: (x - 1, z * 2), lambda x, z: (x, z * 2), "uint8", False),
        # Codes are computed with in a wider type.
        (_scaled, _scaled, "int8", False),
    ],
)
def test_integers_wrap_as_in_their_own_data_type(
    reference: Any, kernel: Any, dtype: str, conforms: bool
) -> None:
    operator = kfuzz.reference(
        reference,
        name="wraps",
        inputs={"x": ks.tensors("N", dtype=dtype), "z": ks.tensors("N")},
        outputs=("y", "w"),
        results={"y": "float32" if reference in (_scaled, _tiny) else dtype},
    )
    bound = kfuzz.kernel(operator, name=f"wrapping_{next(COUNTER)}")(kernel)
    evaluator = InProcess(bound).evaluator
    reports = [evaluator.judge(case, Depth.SEARCH) for case in drawn(bound, 30)]
    failed = [r.failure for r in reports if r.failure is not None]
    assert (not failed) is conforms, failed
    assert sum("conforms" in {str(v) for v in r.verdicts.values()} for r in reports) > 5


def test_an_oracle_may_write_to_its_arguments_beside_narrow_integers() -> None:
    def in_place(x: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        return x.mul_(3), z.mul_(2)

    operator = kfuzz.reference(
        in_place,
        name="in_place",
        inputs={"x": ks.tensors("N", dtype="int32"), "z": ks.tensors("N")},
        outputs=("x", "z"),
        results={"x": "int32"},
    )
    problem = posed(x=torch.tensor([1, 2**30]), z=doubles(1, 5))
    accepted = accept(operator, problem)
    assert accepted["x"].exact.tolist() == [[3, 3 * 2**30 - 2**32]]
    assert accepted["z"].reference.tolist() == [[2, 10]]
    assert not any(bool(a.undecided.any()) for a in accepted.values())
    assert problem.tensors["z"].tolist() == [[1, 5]]


def test_what_no_number_of_a_declared_type_is_leaves_open() -> None:
    total = kfuzz.reference(
        lambda x, z: x.sum(-1),
        name="total",
        inputs={"x": ks.tensors("M N", dtype="int32"), "z": ks.tensors("M")},
        results={"y": "int32"},
    )
    top = torch.tensor([[2**31 - 1, 1], [3, 4]])
    y = torch.tensor([-(2**31), 8], dtype=torch.int32)
    assert misses(total, y, x=top, z=doubles(0, 0)) == [False, True]


@pytest.mark.slow
@pytest.mark.parametrize("right", [True, False])
def test_integers_wrap_in_the_type_of_an_index_too(right: bool) -> None:
    operator = kfuzz.reference(
        lambda x, i, z: (x * i, z * 2),
        name="by_index",
        inputs={
            "x": ks.tensors("N", dtype="int32"),
            "i": ks.indices("N", below="P", dtype="int32"),
            "z": ks.tensors("P"),
        },
        outputs=("y", "w"),
        results={"y": "int32"},
    )

    def by_index(x: Tensor, i: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        return x * i if right else x * i + 1, z * 2

    bound = kfuzz.kernel(
        operator, name=f"by_index_{next(COUNTER)}", out_of_bounds="undefined"
    )(by_index)
    evaluator = InProcess(bound).evaluator
    reports = [evaluator.judge(case, Depth.SEARCH) for case in drawn(bound, 30)]
    assert all(r.failure is None for r in reports) is right


def test_at_an_exact_kink_only_what_the_reference_gives_is_right() -> None:
    slope = kfuzz.reference(lambda p, q: 0.5 * (p - q).sign(), name="slope")
    p, q = doubles(1, 2, 3), doubles(1, 1, 4)
    assert misses(slope, torch.tensor([0.0, 0.5, -0.5]), p=p, q=q) == [False] * 3
    assert misses(slope, torch.tensor([0.25, 0.25, -0.25]), p=p, q=q) == [True] * 3
    # An argument that rounds may have either sign.
    third = kfuzz.reference(lambda x: (x / 3 * 3 - x).sign(), name="third")
    assert misses(third, torch.tensor([1.0]), x=doubles(0.7)) == [False]


def test_a_nan_of_the_references_own_making_is_not_decided() -> None:
    lerp = kfuzz.reference(lambda a, b, w: a * (1 - w) + b * w, name="mixed")
    a, b, w = doubles(1, 1, 1), doubles(float("inf"), 1, float("nan")), doubles(0, 0, 0)
    plain = torch.tensor([1.0, 1.0, 1.0])
    assert misses(lerp, plain, a=a, b=b, w=w) == [False, False, True]
    strict = kfuzz.kernel(lerp, name="strict", nonfinite="propagate")(torch.lerp)
    assert misses(strict.operator, plain, a=a, b=b, w=w) == [True, False, True]


@pytest.mark.parametrize("w", [0.001, 0.3, 0.5, 0.999])
def test_either_form_of_lerp_is_accepted(w: float) -> None:
    def lerp(a: Tensor, b: Tensor, w: float) -> Tensor:
        return torch.lerp(a, b, w)

    a = torch.randn(1 << 12, generator=torch.Generator().manual_seed(3))
    for b in (a * 1e-4, -a, a * (1 + 1e-6), a * 1e4):
        for y in (lerp(a, b, w), a + w * (b - a), (1 - w) * a + w * b):
            kfuzz.assert_conforms(y, lerp, a, b, w)
    with pytest.raises(AssertionError, match="K-VAL-01"):
        kfuzz.assert_conforms(y * (1 + 1e-5), lerp, a, b, w)


def test_a_loop_over_time_writes_no_more_than_it_says() -> None:
    def scan(x: Tensor) -> Tensor:
        y, h = torch.empty_like(x), torch.zeros_like(x[0])
        places = torch.arange(len(x))
        for t in range(len(x)):
            h = 0.5 * h + x[t]
            y[places[t : t + 1]] = h
        return y

    x = torch.randn(20, 3, dtype=torch.float64)
    made = accept(kfuzz.reference(scan), posed(x=x))["y"]
    assert not bool(made.undecided.any())
    assert bool(((made.high - made.low)[0, 1:] > 0).all())
    h, rows = torch.zeros(3), []
    for row in x.float():
        h = 0.5 * h + row
        rows.append(h)
    assert not any(map(any, misses(kfuzz.reference(scan), torch.stack(rows), x=x)))


# Errors -----------------------------------------------------------------------------


def _same(x: Tensor) -> Tensor:
    return x


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (
            lambda: kfuzz.reference(_same, {"x": ks.tensors("N", within=(1, 0))}),
            "x: no float32 number is in",
        ),
        (
            lambda: kfuzz.reference(
                _same, {"x": ks.tensors("N"), "n": ks.longest("x")}
            ),
            "'n'|n: 'x' is no parameter of offsets",
        ),
        (
            lambda: kfuzz.reference(
                _same, {"x": ks.tensors("N"), "i": ks.indices("K", below="V")}
            ),
            "i: below='V' is no dimension",
        ),
        (
            lambda: kfuzz.reference(
                _same, {"x": ks.tensors("N"), "mode": ks.scalar("a")}
            ),
            "a scalar 'mode'",
        ),
        (lambda: kfuzz.reference(_same, {}), "nothing for 'x'"),
        (lambda: ks.tensors("N", within=3), "within=3 is no interval"),
        (lambda: ks.masks("N", kind="causal"), "two named dimensions"),
        (lambda: ks.offsets("B S", of="T"), "offsets have one dimension"),
    ],
)
def test_what_is_impossible_is_refused_by_name(
    make: Callable[[], Any], match: str
) -> None:
    with pytest.raises(BindingError, match=match):
        make()


def test_a_reference_of_another_type_than_declared_is_refused_by_name() -> None:
    operator = kfuzz.reference(
        lambda x: x > 0, {"x": ks.tensors("N")}, name="flags", outputs=("y",),
        results={"y": "float32"},
    )  # fmt: skip
    with pytest.raises(
        BindingError, match="integers for 'y', which is declared float32"
    ):
        accept(operator, posed(x=doubles(1)))


@pytest.mark.slow
@pytest.mark.parametrize("a", [0.999, 0.99, 0.9])
def test_a_scalar_that_a_kernel_gets_in_float32_may_be_computed_with(a: float) -> None:
    """1 - a is the oracle's own step, which the shadow does not see."""

    def average(h: Tensor, x: Tensor, a: float) -> Tensor:
        return a * h + (1 - a) * x

    operator = Operator(
        "average",
        inputs={"h": ks.tensors("*"), "x": ks.tensors("*"), "a": ks.scalar(0.5)},
        oracle=average,
    )
    chance = torch.Generator().manual_seed(2)
    h, x = (torch.randn(1 << 14, generator=chance) for _ in range(2))
    b, weight = torch.tensor(a), torch.tensor(1 - a)
    right = [
        average(h, x, b), average(h, x, a), torch.lerp(h, x, 1 - a),
        h + (1 - b) * (x - h), b * h + weight * x,
    ]  # fmt: skip
    for y in right:
        kfuzz.assert_conforms(y, average, h, x, a)
        kfuzz.assert_conforms(y, operator, h, x, a)
    wrong = [b * h + weight * (1 + 2e-4) * x, average(h, x, b + 3e-7)]
    for y in wrong:
        for judged in (average, operator):
            with pytest.raises(AssertionError, match="K-VAL-01"):
                kfuzz.assert_conforms(y, judged, h, x, a)
    with pytest.raises(AssertionError, match="K-VAL-01"):
        kfuzz.assert_conforms(average(h, x, b), average, h, x, a, accumulator="float64")
