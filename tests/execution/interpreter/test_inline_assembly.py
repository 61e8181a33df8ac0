"""Straight lines of PTX in the interpreter."""

import numpy as np
import pytest

from kfuzz.execution.interpreter.inline_assembly import run
from kfuzz.execution.interpreter.language import NoForm

SOFTPLUS = """{
    .reg .pred p;  // beyond 20 it is x
    setp.gt.f32 p, $1, 20.;
    @p mov.f32 $0, $1;
    @!p mul.f32 $0, $1, 0f3FB8AA3B;
    @!p ex2.approx.ftz.f32 $0, $0;
    @!p add.f32 $0, $0, 1.0;
    @!p lg2.approx.ftz.f32 $0, $0;
    @!p mul.f32 $0, $0, 0.6931471805599453;
}"""
X = np.float32([-3, 0, 1, 19, 21, 90])


def test_predicates_choose_lane_by_lane() -> None:
    (got,) = run(SOFTPLUS, [X], [np.float32])
    assert np.allclose(got, np.logaddexp(0, X.astype(np.float64)), rtol=1e-6)
    assert got.dtype == np.float32


def test_integers_and_bits() -> None:
    bits = np.int32([1, -2, 2**30])
    text = "shl.b32 t, $1, 1; not.b32 u, t; and.b32 $0, u, 0xff;"
    (got,) = run(text, [bits], [np.int32])
    assert got.tolist() == [~2 & 255, 3, 255]
    (got,) = run("shr.s32 $0, $1, 40;", [bits], [np.int32])
    assert got.tolist() == [0, -1, 0]
    text = "setp.lt.f32 p, $1, $2; selp.f32 $0, $1, $2, p;"
    (got,) = run(text, [X, -X], [np.float32])
    assert got.tolist() == np.minimum(X, -X).tolist()


def test_what_waits_for_other_launches_does_nothing() -> None:
    text = "griddepcontrol.launch_dependents; // dummy $0"
    (got,) = run(text, [], [np.int32])
    assert got.tolist() == [0]


@pytest.mark.parametrize(
    "text",
    ["mov.u64 $0, %globaltimer;", "ld.global.f32 $0, [$1];", "bra done;",
     "fma.rn.f16x2 $0, $1, $1, $1;", "setp.gt.f32 p|q, $1, $1; selp.f32 $0, $1, $1, p;",
     "mov.f64 $0, $1;"],
)  # fmt: skip
def test_what_has_no_form_is_named(text: str) -> None:
    with pytest.raises(NoForm):
        run(text, [X], [np.float32])
