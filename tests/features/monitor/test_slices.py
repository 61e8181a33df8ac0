"""Large calls that `assert_conforms` sees in slices: judged as they are whole."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import kfuzz
from kfuzz.features.monitor import judged as slices

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
        slices, "conforms", lambda *call: seen.append(own(*call)) or seen[-1]
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
