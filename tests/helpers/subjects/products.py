"""Correct and faulty implementations: products."""

from dataclasses import replace

import torch

from kfuzz.contracts import operators as ops
from tests.helpers import correct_products as products
from tests.helpers.impostors import (
    Setup,
    Subject,
)

F = torch.nn.functional


CONV = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1}
ATTEND = {"causal": False, "scale": None}
SUBJECTS = {
    "bmm": Subject(
        ops.bmm,
        torch.bmm,
        (
            Setup(((2, 3, 33), (2, 33, 2))),
            Setup(((1, 1, 66), (1, 66, 3))),
            Setup(((2, 2, 0), (2, 0, 2))),
            Setup(((0, 2, 3), (0, 3, 2))),
        ),
        Setup(((2, 4, 64), (2, 64, 4))),
        {n: products.batched(f) for n, f in products.PRODUCTS.items()},
    ),
    "linear": Subject(
        ops.linear,
        products.linear(products.LINEARS["bias_first"]),
        (
            Setup(((3, 33), (2, 33), (2,))),
            Setup(((2, 2, 17), (3, 17), (3,))),
            Setup(((5,), (2, 5), (2,))),
            Setup(((2, 0), (2, 0), (2,))),
        ),
        Setup(((4, 64), (4, 64), (4,))),
        {n: products.linear(f) for n, f in products.LINEARS.items()},
    ),
    "linear_relu": Subject(
        ops.linear_relu,
        lambda *xs: torch.relu(products.linear(products.LINEARS["serial_k"])(*xs)),
        (Setup(((3, 33), (2, 33), (2,))), Setup(((2, 2, 17), (3, 17), (3,)))),
        Setup(((4, 64), (4, 64), (4,))),
        {
            n: products.linear(f, products.rectified)
            for n, f in products.LINEARS.items()
        },
    ),
    "linear_gelu": Subject(
        ops.linear_gelu,
        products.linear(products.LINEARS["wide_product"], products.gelu_double),
        (Setup(((3, 33), (2, 33), (2,))), Setup(((2, 2, 17), (3, 17), (3,)))),
        Setup(((4, 64), (4, 64), (4,))),
        {
            n: products.linear(f, products.gelu_single)
            for n, f in products.LINEARS.items()
        },
    ),
    "conv2d": Subject(
        ops.conv2d,
        products.direct,
        (
            Setup(((2, 3, 5, 4), (2, 3, 3, 2), (2,)), CONV),
            Setup(((1, 2, 3, 3), (2, 2, 3, 3), (2,)), {**CONV, "padding": 1}),
            Setup(
                ((1, 5, 5, 5), (1, 5, 2, 3), (1,)),
                {"stride": 2, "padding": 2, "dilation": 2, "groups": 1},
            ),
            Setup(((1, 6, 3, 4), (4, 3, 2, 3), (4,)), {**CONV, "groups": 2}),
            Setup(((2, 3, 3, 4), (3, 1, 3, 3), (3,)), {**CONV, "groups": 3}),
            Setup(((0, 2, 3, 3), (2, 2, 1, 1), (2,)), CONV),
        ),
        Setup(((2, 8, 5, 5), (4, 8, 3, 3), (4,)), CONV),
        {n: products.as_columns(f) for n, f in products.PRODUCTS.items()
         if n != "flushing_product"},
    ),
    "attention": Subject(
        ops.attention,
        products.ATTENTIONS["in_double"],
        (
            Setup(((1, 1, 3, 4), (1, 1, 33, 4), (1, 1, 33, 4)), ATTEND),
            Setup(
                ((1, 4, 2, 2), (1, 2, 17, 2), (1, 2, 17, 2)),
                {"causal": True, "scale": 1.0},
            ),
            Setup(
                ((2, 1, 2, 3), (2, 1, 1, 3), (2, 1, 1, 3), (2, 1)),
                {"causal": False, "scale": 0.125},
            ),
            Setup(((1, 1, 2, 3), (1, 1, 0, 3), (1, 1, 0, 3)), ATTEND),
            Setup(
                ((1, 2, 5, 2), (1, 1, 9, 2), (1, 1, 9, 2), (5, 9), (2,)),
                ATTEND | {"causal": True, "window": 3},
            ),
        ),
        Setup(((1, 2, 4, 16), (1, 2, 40, 16), (1, 2, 40, 16)), ATTEND),
        dict(products.ATTENTIONS),
        families=("randn", "uniform01", "exact_int"),
        # Scores that are infinite make NaN of their row.
        infinities=False,
        decided=0.6,
    ),
}  # fmt: skip
for _name, _form in (
    ("bmm", products.batched),
    ("linear", lambda f: products.linear(products.bias_last(f))),
):
    _units = {name: _form(f) for name, f in products.UNITS.items()}
    SUBJECTS[_name] = replace(SUBJECTS[_name], of_units=_units)
for _name in ("bmm", "linear", "linear_relu", "linear_gelu"):
    SUBJECTS[_name] = replace(SUBJECTS[_name], of_blas=True)
