import ctypes
import struct
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from kfuzz.contracts import operators as ops
from kfuzz.contracts.classes import CLASSES
from kfuzz.core.recipe import Case, Plant, TensorSpec
from kfuzz.core.verdict import CaseReport, Kind, Verdict
from tests.helpers.judged_cases import judged, row_case, spec, x_case

VALUE_CLASSES = {
    "K-VAL-01", "C-CMP-03", "C-PRC-01", "C-PRC-02", "C-EXC-01", "K-MEM-02",
}  # fmt: skip


def attributed(report: CaseReport) -> tuple[str, Kind]:
    assert report.failure is not None, report
    assert report.verdicts[report.failure.contract] is Verdict.VIOLATES
    others = set(report.verdicts.values()) - {Verdict.CONFORMS, Verdict.VIOLATES}
    assert not others
    assert list(report.verdicts.values()).count(Verdict.VIOLATES) == 1
    return report.failure.contract, report.failure.kind


def test_a_correct_kernel_conforms_to_all_that_its_case_decides() -> None:
    report = judged(ops.softmax, torch.softmax, row_case("randn", (4, 33)))
    assert report.failure is None
    assert report.refusal is None
    assert set(report.verdicts.values()) == {Verdict.CONFORMS}
    silent = {
        "C-CMP-01", "C-CMP-02", "C-EXC-01", "C-EXC-02", "C-ORD-02", "C-ORD-03",
        "C-PRC-03", "C-PRC-04", "K-BLD-01", "K-GRD-01", "K-OWN-01",
    }  # fmt: skip
    assert set(report.verdicts) == set(CLASSES) - silent


def test_nan_swallowed_is_an_exception_policy_broken() -> None:
    def swallowing(x: Tensor, dim: int) -> Tensor:
        return torch.amax(torch.nan_to_num(x, nan=-1e30), dim)

    nan = (Plant((1, 3), 0x7FC00000),)
    report = judged(ops.amax, swallowing, row_case("randn", (4, 33), plants=nan))
    assert attributed(report) == ("C-EXC-01", Kind.NAN_MISSING)
    assert report.failure is not None
    assert report.failure.index == (1,)


def test_overflow_without_the_row_maximum_is_avoidable() -> None:
    def no_max(x: Tensor, dim: int) -> Tensor:
        e = torch.exp(x.float())
        return (e / e.sum(dim, keepdim=True)).to(x.dtype)

    report = judged(ops.softmax, no_max, row_case("big_logits", (4, 32)))
    assert attributed(report) == ("C-PRC-02", Kind.NAN_UNEXPECTED)


def layer_norm_case(family: str, shape: tuple[int, int], *, seed: int = 2) -> Case:
    n = shape[1]
    return Case(
        {
            "x": spec(family, shape, axes=("d0", "N"), seed=seed),
            "weight": spec("ones", (n,), axes=("N",)),
            "bias": spec("zeros", (n,), axes=("N",)),
        },
        {"eps": 1e-5},
    )


def one_pass(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    wide = x.float()
    mean = wide.mean(-1, keepdim=True)
    v = (wide * wide).mean(-1, keepdim=True) - mean * mean
    y = (wide - mean) * torch.rsqrt(v.clamp(min=0) + eps)
    return (y * weight.float() + bias.float()).to(x.dtype)


def test_one_pass_variance_is_avoidable_cancellation() -> None:
    # Not every draw has its mean far enough above its spread.
    cases = (layer_norm_case("offset", (4, 64), seed=seed) for seed in range(1, 9))
    reports = (judged(ops.layer_norm, one_pass, case) for case in cases)
    report = next(r for r in reports if r.failure is not None)
    assert attributed(report) == ("C-PRC-02", Kind.VALUE)


def one_pass_groups(
    x: Tensor, weight: Tensor, bias: Tensor, num_groups: int, eps: float
) -> Tensor:
    rows = x.unflatten(1, (num_groups, -1)).flatten(2)
    made = one_pass(rows, torch.ones(()), torch.zeros(()), eps)
    return made.reshape(x.shape) * weight[:, None] + bias[:, None]


def one_group_for_all(
    x: Tensor, weight: Tensor, bias: Tensor, num_groups: int, eps: float
) -> Tensor:
    return torch.nn.functional.group_norm(x, 1, weight, bias, eps)


@pytest.mark.parametrize(
    ("function", "family", "attribution"),
    [
        (one_pass_groups, "offset", "C-PRC-02"),
        (one_group_for_all, "randn", "K-VAL-01"),
    ],
)
def test_a_group_is_centred_as_a_whole(
    function: Callable[..., Tensor], family: str, attribution: str
) -> None:
    parameters = {
        "weight": spec("ones", (6,), axes=("C",)),
        "bias": spec("zeros", (6,), axes=("C",)),
    }
    inputs = (
        spec(family, (2, 6, 1), axes=("B", "C", "L"), seed=seed) for seed in range(1, 9)
    )
    scalars = {"num_groups": 2, "eps": 1e-5}
    cases = (Case({"x": x, **parameters}, scalars) for x in inputs)
    reports = (judged(ops.group_norm, function, case) for case in cases)
    report = next(r for r in reports if r.failure is not None)
    assert attributed(report) == (attribution, Kind.VALUE)


def sum_in_half(x: Tensor, dim: int) -> Tensor:
    total = torch.zeros(x.sum(dim).shape, dtype=x.dtype)
    for part in x.unbind(dim):
        total = total + part
    return total


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_narrow_accumulator_is_named(dtype: str) -> None:
    report = judged(ops.sum, sum_in_half, row_case("uniform01", (4, 256), dtype))
    assert attributed(report) == ("C-PRC-01", Kind.VALUE)
    assert report.failure is not None
    assert f"a {dtype} accumulator" in report.failure.message
    declared = judged(
        ops.sum, sum_in_half, row_case("uniform01", (4, 64), dtype), accumulator=dtype,
        dtypes=dtype,
    )  # fmt: skip
    assert declared.failure is None


def one_number(value: float) -> Callable[..., TensorSpec]:
    """Return a maker of specs of one float32 number."""
    data = struct.pack("<f", value)
    return lambda *axes: TensorSpec((1,) * len(axes), axes, "float32", values=data)


def test_an_algorithm_that_may_be_declared_is_named_before_a_narrow_format() -> None:
    def by_tanh(gate: Tensor, up: Tensor) -> Tensor:
        return torch.nn.functional.gelu(gate, approximate="tanh") * up

    one = one_number(1.0)
    case = Case({"gate": one(), "up": one()})
    report = judged(ops.geglu, by_tanh, case)
    assert attributed(report) == ("C-PRC-01", Kind.VALUE)
    assert report.failure is not None
    assert 'as algorithm="tanh_form" allows' in report.failure.message
    assert "accumulator" not in report.failure.message
    assert judged(ops.geglu, by_tanh, case, algorithm="tanh_form").failure is None


def test_no_accumulator_is_blamed_where_nothing_is_summed() -> None:
    case = Case({"x": one_number(0.7)()})
    report = judged(ops.sigmoid, lambda x: torch.sigmoid(x.half()).float(), case)
    assert attributed(report) == ("C-PRC-01", Kind.VALUE)
    assert report.failure is not None
    assert "as float16 intermediates may give it" in report.failure.message
    assert "accumulator" not in report.failure.message


def test_truncated_operands_are_named() -> None:
    def tf32(a: Tensor, b: Tensor) -> Tensor:
        def cut(x: Tensor) -> Tensor:
            bits = x.contiguous().view(torch.int32) & ~0x1FFF
            return bits.view(torch.float32)

        return cut(a) @ cut(b)

    case = Case(
        {
            "a": spec("randn", (16, 32), axes=("M", "K")),
            "b": spec("randn", (32, 16), axes=("K", "N"), seed=4),
        }
    )
    report = judged(ops.matmul, tf32, case)
    assert attributed(report) == ("C-PRC-01", Kind.VALUE)
    assert judged(ops.matmul, tf32, case, accumulator="tf32").failure is None


def test_a_dropped_tail_shows_only_at_unfriendly_shapes() -> None:
    def whole_tiles(x: Tensor, dim: int) -> Tensor:
        n = x.shape[dim]
        return torch.sum(x.narrow(dim, 0, n - n % 4), dim)

    report = judged(ops.sum, whole_tiles, row_case("exact_int", (4, 67)))
    assert attributed(report) == ("C-CMP-03", Kind.VALUE)
    assert report.failure is not None
    assert report.failure.cause.startswith("passes at x [")


def test_strides_that_are_ignored_are_no_matter_of_the_size() -> None:
    def packed(x: Tensor, dim: int) -> Tensor:
        flat = torch.as_strided(x, (x.numel(),), (1,), x.storage_offset())
        return torch.sum(flat.view(x.shape), dim)

    case = row_case("randn", (4, 8), strides=(1, 4))
    report = judged(ops.sum, packed, case)
    assert attributed(report) == ("C-CMP-03", Kind.VALUE)
    assert report.failure is not None
    assert report.failure.cause == "passes with contiguous tensors"


def test_a_wrong_value_leaves_what_bytes_and_metadata_promise() -> None:
    def doubled(x: Tensor, dim: int) -> Tensor:
        return torch.sum(x, dim) * 2

    report = judged(ops.sum, doubled, row_case("exact_int", (4, 64)))
    assert report.verdicts == {
        "K-LIV-01": Verdict.CONFORMS,
        "K-MEM-01": Verdict.CONFORMS,
        "K-MET-01": Verdict.CONFORMS,
        "K-MEM-03": Verdict.CONFORMS,
        "K-MEM-04": Verdict.CONFORMS,
        "K-VAL-01": Verdict.VIOLATES,
    }


@pytest.mark.parametrize("seed", [2, 3])  # one under each poison
def test_an_unwritten_element_follows_the_poison(seed: int) -> None:
    def first_rows(x: Tensor) -> Tensor:
        y = torch.empty_like(x)
        y[:-1] = torch.relu(x[:-1])
        return y

    report = judged(ops.relu, first_rows, x_case("randn", (4, 8), seed=seed))
    assert attributed(report) == ("K-MEM-02", Kind.UNWRITTEN)
    assert report.failure is not None
    assert report.failure.index == (3, 0)
    assert report.failure.elements == 8


def test_a_write_behind_an_argument_is_found() -> None:
    def spilling(x: Tensor) -> Tensor:
        y = torch.relu(x)
        ctypes.c_float.from_address(x.data_ptr() + 4 * x.numel()).value = 7.0
        return y

    report = judged(ops.relu, spilling, x_case("randn", (4, 8)))
    assert attributed(report) == ("K-MEM-01", Kind.WRITE_OUTSIDE)
    assert report.failure is not None
    assert report.failure.output == "x"


def test_a_write_into_the_slack_of_strides_is_found() -> None:
    def flooding(x: Tensor) -> Tensor:
        y = torch.relu(x)
        torch.as_strided(x, (1,), (1,), x.storage_offset() + 1).fill_(7.0)
        return y

    case = x_case("randn", (4, 8), strides=(16, 2))
    assert attributed(judged(ops.relu, flooding, case)) == (
        "K-MEM-01", Kind.WRITE_OUTSIDE,
    )  # fmt: skip


def overwriting(x: Tensor) -> Tensor:
    return x.clamp_(min=0)


def test_an_overwritten_input_is_charged_unless_declared() -> None:
    case = x_case("randn", (4, 8))
    report = judged(ops.relu, overwriting, case)
    assert attributed(report) == ("K-MEM-03", Kind.INPUT_MODIFIED)
    assert judged(ops.relu, overwriting, case, inplace="x").failure is None


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda y: y.half(), Kind.WRONG_DTYPE),
        (lambda y: y.unsqueeze(0), Kind.WRONG_SHAPE),
        (lambda y: y.tolist(), Kind.WRONG_TYPE),
        (lambda y: None, Kind.WRONG_TYPE),
        (lambda y: y.to("meta"), Kind.WRONG_DEVICE),
        (lambda y: y.to_sparse(), Kind.WRONG_TYPE),
    ],
)
def test_metadata_is_judged_before_values(
    change: Callable[[Tensor], object], kind: Kind
) -> None:
    report = judged(ops.relu, lambda x: change(torch.relu(x)), x_case("randn", (4, 8)))
    assert attributed(report) == ("K-MET-01", kind)


def raising(x: Tensor) -> Tensor:
    raise RuntimeError("no luck\nand more")


def test_raising_in_the_core_domain_is_a_violation() -> None:
    report = judged(ops.relu, raising, x_case("randn", (4, 8)))
    assert attributed(report) == ("K-LIV-01", Kind.RAISES)
    assert report.failure is not None
    assert report.failure.detail == "RuntimeError"
    assert "no luck" in report.failure.message
    assert "raising" in report.failure.trace


BREADTH = [
    (x_case("randn", (8,)), "rank 1", {}),
    (x_case("randn", (2, 3, 4)), "rank 3", {}),
    (x_case("randn", (0, 4)), "zero-size input", {"shape_class": "N >= 0"}),
    (x_case("randn", (4, 8), "float16"), "dtype float16", {"dtypes": "float16"}),
    (
        x_case("randn", (4, 8), strides=(1, 4)), "non-contiguous input",
        {"layouts": "any"},
    ),
    (x_case("randn", (4, 8), offset=3), "storage offset", {"layouts": "any"}),
    (x_case("nan1", (4, 8)), "non-finite input", {"nonfinite": "propagate"}),
]  # fmt: skip


@pytest.mark.parametrize(("case", "reason", "claims"), BREADTH)
def test_raising_beyond_the_core_domain_is_a_refusal_until_declared(
    case: Case, reason: str, claims: dict[str, object]
) -> None:
    report = judged(ops.relu, raising, case)
    assert report.failure is None
    assert report.refusal == reason
    assert Verdict.VIOLATES not in report.verdicts.values()
    if claims:
        declared = judged(ops.relu, raising, case, **claims)
        assert attributed(declared) == ("K-LIV-01", Kind.RAISES)


def test_another_dimension_is_refused_until_declared() -> None:
    def last_only(x: Tensor, dim: int) -> Tensor:
        assert dim in (-1, x.dim() - 1)
        return torch.sum(x, dim)

    case = replace(row_case("randn", (4, 8)), scalars={"dim": 0})
    report = judged(ops.sum, last_only, case)
    assert report.failure is None
    assert report.refusal == "dim other than the last"
    declared = judged(ops.sum, last_only, case, dims={0})
    assert attributed(declared) == ("K-LIV-01", Kind.RAISES)


def test_a_failure_of_memory_is_an_error_of_the_machine() -> None:
    def greedy(x: Tensor) -> Tensor:
        raise MemoryError("too much")

    report = judged(ops.relu, greedy, x_case("randn", (4, 8)))
    assert report.failure is None
    assert report.error is not None


def test_nothing_decided_never_conforms_in_value() -> None:
    """Float16 sums of 4,096 terms: the bound is vacuous."""
    case = row_case("randn", (2, 4096), "float16")
    report = judged(ops.sum, torch.sum, case, accumulator="float16", dtypes="float16")
    assert report.failure is None
    for name in VALUE_CLASSES & set(report.verdicts):
        assert report.verdicts[name] is Verdict.UNDER_SPECIFIED


def test_only_the_classes_in_force_are_judged() -> None:
    report = judged(
        ops.relu, overwriting, x_case("randn", (4, 8)), classes={"K-VAL-01"}
    )
    assert report.failure is None
    assert report.verdicts == {"K-VAL-01": Verdict.CONFORMS}
