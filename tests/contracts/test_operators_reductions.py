from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from kfuzz.numerics.compare import compare
from tests.helpers import correct_reductions as correct
from tests.helpers.impostors import (
    Algorithm,
    Posed,
    Setup,
    case_of,
    is_refused,
    pose_case,
    posed,
)
from tests.helpers.subjects.reductions import (
    LONG,
    SUBJECTS,
    plain,
)


def refused(
    name: str, dtype: str, wrong: Algorithm, family: str, setup: Setup, **claims: Any
) -> bool:
    """Whether an algorithm is refused on a family with some seed."""
    return is_refused(SUBJECTS[name], dtype, wrong, family, setup, **claims)


REDUCING = [n for n in SUBJECTS if n not in ("cumsum", "log_softmax", "l2_normalize")]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", REDUCING)
def test_a_dropped_tail_is_refused(name: str, dtype: str) -> None:
    honest = SUBJECTS[name].honest

    def dropped(x: Tensor, **scalars: object) -> Tensor:
        return honest(x[..., :-1], **scalars)

    family = {"amin": "negative", "prod": "randn"}.get(name, "tail_big")
    setup = SUBJECTS[name].ordinary if name == "prod" else plain((4, 65))
    if name == "var":
        setup = plain((4, 65), correction=1)
    assert refused(name, dtype, dropped, family, setup) or name == "amin"
    if name == "amin":
        # The last of few is the least often enough.
        assert refused(name, dtype, dropped, family, plain((64, 3)))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_faults_in_ties_and_nans_of_argmax_are_refused(dtype: str) -> None:
    def last(x: Tensor, *, dim: int) -> Tensor:
        return x.shape[dim] - 1 - torch.argmax(x.flip(dim), dim)

    def skipping(x: Tensor, *, dim: int) -> Tensor:
        return torch.argmax(x.nan_to_num(nan=-torch.inf), dim)

    def narrow(x: Tensor, *, dim: int) -> Tensor:
        return torch.argmax(x, dim).to(torch.int32).to(torch.int64) + 1

    setup = plain((8, 33))
    assert refused("argmax", dtype, last, "ties", setup)
    assert not refused("argmax", dtype, last, "ramp", plain((8, 5)))
    assert refused("argmax", dtype, skipping, "nan1", setup)
    assert refused("argmax", dtype, narrow, "randn", setup)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_one_pass_variance_is_refused(dtype: str) -> None:
    def one_pass(x: Tensor, *, dim: int, correction: int) -> Tensor:
        n, wide = x.shape[dim], x.float()
        v = (wide * wide).mean(dim) - wide.mean(dim) ** 2
        return (v * n / (n - correction)).to(x.dtype)

    setup = plain((4, 512), correction=1)
    assert refused("var", dtype, one_pass, "offset_ulp", setup)
    assert not refused("var", dtype, one_pass, "randn", setup)


def test_the_other_correction_is_refused() -> None:
    def population(x: Tensor, *, dim: int, correction: int) -> Tensor:
        return torch.var(x, dim, correction=1 - correction)

    for family in ("randn", "uniform01", "balanced"):
        setup = plain((4, 64), correction=1)
        assert refused("var", "float32", population, family, setup)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", ["logsumexp", "log_softmax"])
def test_a_forgotten_maximum_is_refused(name: str, dtype: str) -> None:
    def plainly(x: Tensor, *, dim: int) -> Tensor:
        log = torch.log(torch.exp(x.float()).sum(dim, keepdim=True))
        made = log.squeeze(dim) if name == "logsumexp" else x.float() - log
        return made.to(x.dtype)

    for family in ("big_logits", "neg_logits", "offset"):
        assert refused(name, dtype, plainly, family, plain())
    assert not refused("logsumexp", dtype, SUBJECTS["logsumexp"].honest, "randn", LONG)


def test_log_softmax_from_the_logsumexp_needs_its_declaration() -> None:
    wrong = correct.acting(correct.lse_form)
    assert refused("log_softmax", "float32", wrong, "offset", LONG)
    for case in posed(SUBJECTS["log_softmax"], "float32"):
        declared = pose_case(SUBJECTS["log_softmax"], case.case, algorithm="lse_form")
        assert not declared.refuses(declared.run(wrong)), str(case)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_faulty_scans_are_refused(dtype: str) -> None:
    def suffix(x: Tensor, *, dim: int) -> Tensor:
        wide = x.float()
        total = wide.sum(dim, keepdim=True)
        return (total - wide.flip(dim).cumsum(dim).flip(dim) + wide).to(x.dtype)

    def exclusive(x: Tensor, *, dim: int) -> Tensor:
        return (x.float().cumsum(dim) - x.float()).to(x.dtype)

    def no_carry(x: Tensor, *, dim: int) -> Tensor:
        return torch.cat([part.cumsum(dim) for part in x.split(32, dim)], dim)

    def spoiling(x: Tensor, *, dim: int) -> Tensor:
        y = x.cumsum(dim)
        return torch.where(x.isnan().any(dim, keepdim=True), torch.nan, y)

    assert refused("cumsum", dtype, suffix, "tail_big", LONG)
    assert refused("cumsum", dtype, exclusive, "randn", plain())
    assert refused("cumsum", dtype, no_carry, "uniform01", plain())
    assert refused("cumsum", dtype, spoiling, "nan1", plain())


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_an_epsilon_that_is_added_to_the_norm_is_refused(dtype: str) -> None:
    def added(x: Tensor, *, dim: int, eps: float) -> Tensor:
        wide = x.float()
        norm = (wide * wide).sum(dim, keepdim=True).sqrt() + eps
        return (wide / norm).to(x.dtype)

    assert refused("l2_normalize", dtype, added, "randn", plain(eps=0.5))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["mean", "logsumexp", "log_softmax", "l2_normalize"])
def test_intermediates_in_the_output_format_are_admitted_where_declared(
    name: str, dtype: str
) -> None:
    """Sums in float32, everything else rounded to the output's format."""

    def mean(x: Tensor, *, dim: int) -> Tensor:
        return torch.sum(x, dim) / x.shape[dim]

    def logsumexp(x: Tensor, *, dim: int) -> Tensor:
        top = x.amax(dim, keepdim=True)
        top = torch.where(top.isinf(), torch.zeros_like(top), top)
        return torch.log(torch.exp(x - top).sum(dim)) + top.squeeze(dim)

    def log_softmax_(x: Tensor, *, dim: int) -> Tensor:
        d = x - x.amax(dim, keepdim=True)
        return d - torch.log(torch.exp(d).sum(dim, keepdim=True))

    def l2_normalize(x: Tensor, *, dim: int, eps: float) -> Tensor:
        return torch.nn.functional.normalize(x, 2.0, dim, eps)

    kernels = {
        "mean": mean, "logsumexp": logsumexp, "log_softmax": log_softmax_,
        "l2_normalize": l2_normalize,
    }  # fmt: skip
    strict = 0
    for case in posed(SUBJECTS[name], dtype):
        if next(iter(case.values.values())).numel() == 0:
            continue
        results = case.run(kernels[name])
        declared = replaced(case, name, intermediates="output")
        assert not declared.refuses(results), str(case)
        strict += case.refuses(results)
    assert strict > 5


@pytest.mark.parametrize(("accumulator", "lacks"), [("tf32", 13), ("tf32x3", 2)])
@pytest.mark.parametrize("name", ["mean", "cumsum"])
def test_terms_of_the_bits_that_matrix_units_read_are_admitted_where_declared(
    name: str, accumulator: str, lacks: int
) -> None:
    def of_rounded(x: Tensor, *, dim: int) -> Tensor:
        bits = x.view(torch.int32)
        up = (1 << (lacks - 1)) - 1 + ((bits >> lacks) & 1)
        rounded = ((bits + up) & -(1 << lacks)).view(torch.float32)
        terms = torch.where(x.isfinite() & rounded.isfinite(), rounded, x)
        made: Tensor = getattr(torch, name)(terms, dim)
        return made

    strict = 0
    for case in posed(SUBJECTS[name], "float32"):
        results = case.run(of_rounded)
        declared = replaced(case, name, accumulator=accumulator)
        assert not declared.refuses(results), str(case)
        strict += case.refuses(results)
    assert strict > 5


def replaced(case: Posed, name: str, **claims: object) -> Posed:
    return pose_case(SUBJECTS[name], case.case, **claims)


def test_an_index_is_compared_exactly() -> None:
    case = pose_case(
        SUBJECTS["argmax"],
        case_of(SUBJECTS["argmax"], "float32", "onehot_tail", plain((1, 4097))),
    )
    acceptance = case.accepted["y"]
    assert acceptance.output.dtype is torch.int64
    for index, missed in ((4096, False), (4095, True), (4097, True), (-1, True)):
        made = compare(torch.tensor([[index]]), acceptance)
        assert bool(made.missed) is missed


def test_products_beyond_float64_are_judged() -> None:
    """Twenty factors of 2^100 overflow in every order; mixed ones may or may not."""
    subject = SUBJECTS["prod"]
    made = case_of(subject, "float32", "ones", plain((1, 20)))
    values = np.full((1, 20), 2.0**100, dtype=np.float32)

    def judged(x: np.ndarray, y: float) -> str:
        spec = replace(made.tensors["x"], fill=None, values=x.tobytes())
        case = pose_case(subject, made.with_tensor("x", spec))
        found = case.compare({"y": torch.tensor([y])})["y"].outcomes
        return {0: "ok", 1: "undecided"}.get(int(found), "miss")

    assert judged(values, float("inf")) == "ok"
    assert judged(values, 3e38) == "miss"
    values[0, ::2] = 2.0**-100
    assert judged(values, 1.0) == "undecided"
    assert judged(values, float("inf")) == "undecided"
    assert judged(values, 0.0) == "undecided"
    values[0, :] = 1.0
    values[0, 3] = 3.0
    assert judged(values, 3.0) == "ok"
    assert judged(values, float(np.nextafter(np.float32(3), np.float32(4)))) == "miss"
