"""What references are held to on GPUs that round operands, and where they draw."""

from typing import Any

import pytest
import torch
from torch import Tensor

import kfuzz
from kfuzz.features.monitor import references as reference_subject
from kfuzz.features.monitor.subjects import NoDraws, Outside, tf32_allowed
from tests.helpers import monitors
from tests.helpers.monitors import SECONDS

fresh = monitors.fresh


def truncated(x: Tensor) -> Tensor:
    """Return float32 data as TF32 holds it."""
    return (x.view(torch.int32) & -(1 << 13)).view(torch.float32)


def layer(x: Tensor, w: Tensor) -> Tensor:
    return torch.relu(x @ w)


def convolved(x: Tensor, w: Tensor) -> Tensor:
    return torch.conv2d(x, w)


def recurrent(x: Tensor, w: Tensor) -> Tensor:
    return torch.gru_cell(x, torch.zeros_like(x), w, w)


@pytest.mark.parametrize("reference", [layer, convolved, recurrent])
@pytest.mark.parametrize("kind", ["matmul", "convolution", "recurrence", "", "said"])
def test_tf32_is_no_violation_where_torch_may_use_it(
    monkeypatch: pytest.MonkeyPatch, reference: Any, kind: str
) -> None:
    """As on a GPU, of which only the flags are asked here."""

    allowed = frozenset() if kind in ("", "said") else frozenset({kind})
    monkeypatch.setattr(reference_subject, "tf32_allowed", lambda: allowed)
    monkeypatch.setattr(reference_subject, "on_gpu", lambda tensors: True)
    claims = {"accumulator": "float32"} if kind == "said" else {}

    def kernel(x: Tensor, w: Tensor) -> Tensor:
        y: Tensor = reference(truncated(x), truncated(w))
        return y

    made = kfuzz.monitor(reference, rate=1.0, name=f"tf32_{kind}", **claims)(kernel)
    draw = torch.Generator().manual_seed(1)
    shapes = {
        layer: ((16, 64), (64, 16)),
        convolved: ((1, 3, 9, 9), (4, 3, 5, 5)),
        recurrent: ((5, 16), (48, 16)),
    }[reference]
    made(*(torch.randn(s, generator=draw) for s in shapes))
    assert kfuzz.monitor.flush(SECONDS)
    counts = made.monitor.statistics()
    own = {layer: ["matmul"], convolved: ["convolution"]}.get(
        reference, ["matmul", "recurrence"]
    )
    assert (counts.checked, counts.errors) == (1, 0)
    assert counts.violations == (kind not in own)


@pytest.mark.usefixtures("restored")
def test_the_flags_are_read() -> None:
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = True
    assert tf32_allowed() == {"convolution", "recurrence"}
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = False
    assert tf32_allowed() == {"matmul"}


def test_a_reference_draws_nothing_from_the_caller_s_generator() -> None:
    def noisy(x: Tensor) -> Tensor:
        return torch.dropout(x, 0.5, True) + torch.rand(x.shape).mul(0.0)

    function = kfuzz.monitor(noisy, rate=1.0, name="noisy")(lambda x: x * 1.0)
    torch.manual_seed(7)
    before = torch.get_rng_state()
    function(torch.ones(8))
    assert kfuzz.monitor.flush(SECONDS)
    assert torch.equal(torch.get_rng_state(), before)
    counts = function.monitor.statistics()
    assert (counts.checked, counts.outside, counts.violations) == (0, 1, 0), counts


def test_what_has_a_generator_or_is_switched_off_draws_nothing() -> None:
    own = torch.Generator().manual_seed(3)
    q = torch.randn(1, 1, 4, 8)
    with NoDraws():
        torch.rand(4, generator=own)
        torch.nn.functional.scaled_dot_product_attention(q, q, q)
        torch.native_dropout(q, 0.5, False)
        with pytest.raises(Outside, match="native_dropout"):
            torch.native_dropout(q, 0.5, True)
