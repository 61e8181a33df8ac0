"""Large calls that `assert_conforms` sees in slices: judged as they are whole."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import kfuzz
from kfuzz.contracts.binding import kernel
from kfuzz.contracts.operators import OPERATORS
from kfuzz.contracts.oracle import accept, pose
from kfuzz.core.declaration import Declaration
from kfuzz.core.recipe import Case
from kfuzz.evaluation.drawing import search_round, strategy_of
from kfuzz.evaluation.large import part_of, row_axis
from kfuzz.execution.device.backends import backend_of
from kfuzz.execution.values.fills import logical_values
from kfuzz.features.monitor import references
from kfuzz.features.monitor import subjects as slices
from kfuzz.strategies.parameters import IndexParameter

CPU = torch.device("cpu")
F = torch.nn.functional
ROWS, N, AT_ONCE = 37, 512, 1 << 12  # five slices, the last one not full

Given = tuple[tuple[Any, ...], dict[str, Any]]
CALLS: dict[str, Callable[[Tensor, Tensor], tuple[Tensor, Given]]] = {
    "softmax": lambda x, w: (x.double().softmax(-1), ((x,), {"dim": -1})),
    "layer_norm": lambda x, w: (
        F.layer_norm(x.double(), (N,), w.double(), w.double()), ((x, w, w), {}),
    ),
    "silu": lambda x, w: (F.silu(x.double()), ((x,), {})),
    "add": lambda x, w: (x.double() + x.double().flip(0), ((x, x.flip(0)), {})),
    "matmul": lambda x, w: (
        x.double() @ x[:2].double().T, ((x, x[:2].T.contiguous()), {}),
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "AT_ONCE", AT_ONCE)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", CALLS)
def test_one_wrong_element_of_a_large_result_is_found(
    name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, N, generator=generator).to(dtype)
    exact, (tensors, scalars) = CALLS[name](x, x[0])
    y = exact.to(dtype)
    seen = []
    own = slices.conforms
    monkeypatch.setattr(
        references, "conforms", lambda *call: seen.append(own(*call)) or seen[-1]
    )
    kfuzz.assert_conforms(y, name, *tensors, **scalars)
    kfuzz.assert_conforms(y.T.contiguous().T, name, *tensors, **scalars)
    assert seen == [True, True]
    y[-1, -1] = y[-1, -1] * 1.1 + 0.1
    place = rf"y\[{ROWS - 1}, {y.shape[1] - 1}\].*\n.*worst.*\n.*1 of {y.numel()} "
    with pytest.raises(AssertionError, match=place):
        kfuzz.assert_conforms(y, name, *tensors, **scalars)
    with pytest.raises(AssertionError, match="shape"):
        kfuzz.assert_conforms(y[:-1], name, *tensors, **scalars)


def test_what_slices_do_not_decide_is_judged_whole() -> None:
    x = torch.randn(ROWS, N)
    x[3, 4] = float("nan")
    y = x.softmax(-1)
    kfuzz.assert_conforms(y, "softmax", x, dim=-1)
    kfuzz.assert_conforms(x.softmax(0), "softmax", x, dim=0)
    y[3] = 0.0
    with pytest.raises(AssertionError, match=r"y\[3, "):
        kfuzz.assert_conforms(y, "softmax", x, dim=-1)


OFTEN = ("add", "cumsum", "gelu", "layer_norm", "matmul", "rms_norm", "softmax")


def sliced() -> list[Any]:
    """The operators that are ever seen in slices."""
    return [
        pytest.param(name, marks=() if name in OFTEN else pytest.mark.slow)
        for name, operator in sorted(OPERATORS.items())
        if not any(
            p.domain or isinstance(p, IndexParameter) for p in operator.tensors.values()
        )
    ]


@pytest.mark.parametrize("name", sliced())
def test_rows_are_accepted_what_they_are_in_the_whole(name: str) -> None:
    operator, claims = OPERATORS[name], Declaration()
    bound = kernel(operator, name=f"rows_of_{name}")(lambda *args, **kwargs: None)
    strategy = strategy_of(bound, backend_of(CPU).limits.sizes)
    assert strategy is not None
    found: list[Case] = []
    search_round(strategy, found.append, cases=5, seed_value=5)
    for case in found:
        axis = row_axis(operator, case, lambda spec: True)
        values = {n: logical_values(case, n, CPU) for n in case.tensors}
        if axis is None or sum(x.numel() for x in values.values()) > 1 << 13:
            continue
        flat = {n: x.reshape(-1) for n, x in values.items()}

        def accepted(start: int, stop: int) -> Any:
            part = part_of(case, axis, start, stop, lambda n, a, b: flat[n][a:b])  # noqa: B023
            return accept(operator, pose(operator, part.case, part.values, claims))

        rows = case.dims[axis] if axis else case.lead.numel
        if rows < 2:
            continue
        whole, parts = accepted(0, rows), (accepted(0, 1), accepted(1, rows))
        for output, a in whole.items():
            for field in ("low", "high", "undecided"):
                one, other = (getattr(p[output], field) for p in parts)
                wanted = getattr(a, field).double()
                sizes = zip(one.shape, wanted.shape, strict=True)
                at = next((i for i, (m, n) in enumerate(sizes) if m != n), None)
                if at is None:  # a loss over all rows is never cut
                    continue
                made = torch.cat([one, other], at).double()
                torch.testing.assert_close(
                    made, wanted, rtol=1e-9, atol=1e-300, equal_nan=True
                )
