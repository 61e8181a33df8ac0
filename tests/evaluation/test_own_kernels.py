"""K-OWN-01: results that torch's own operators compute."""

import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from kfuzz.contracts import operators as ops
from kfuzz.contracts.suite import contracts_of
from kfuzz.contracts.witnesses.relu import triton_relu
from kfuzz.core.declaration import Declaration
from kfuzz.core.finding import Target
from kfuzz.core.recipe import Case, TensorSpec
from kfuzz.core.verdict import Failure, Kind, Verdict
from kfuzz.engine.scripts import script
from kfuzz.execution.interpreter.watch import interpreting
from kfuzz.execution.memory.allocations import GuardedAllocations
from kfuzz.execution.memory.poison import Poison
from tests.helpers.findings import finding
from tests.helpers.judged_cases import judged, row_case, x_case

LIBRARY = torch.library.Library("kfuzz_test_own", "DEF")
LIBRARY.define("relu(Tensor x) -> Tensor")
LIBRARY.impl("relu", lambda x: x.clamp(min=0), "CPU")


def called(function: Callable[[Tensor], object]) -> list[str]:
    """Return the operators charged while a function of a tensor runs."""
    mode, x = GuardedAllocations("cpu", Poison.NAN), torch.rand(4, 6).t()
    with torch.no_grad(), mode:
        function(x)
    return list(mode.foreign)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.empty_like(x).copy_(x),
        lambda x: (
            x.contiguous().view(-1)[3:].reshape(3, 7).transpose(0, 1).expand(7, 3)
        ),
        lambda x: x.clone(memory_format=torch.preserve_format).t_().unsqueeze_(0),
        lambda x: (torch.zeros_like(x), torch.ones(3), torch.full((2,), 7.0)),
        lambda x: (torch.empty(3).fill_(1), x.new_zeros(2), torch.arange(4)),
        lambda x: (x.size(), x.stride(), x.is_contiguous(), x.data_ptr(), x.dim()),
        lambda x: (x[0, 0].item(), x.detach().numpy(), x.untyped_storage().nbytes()),
        lambda x: torch.empty(0).resize_(4).set_(x.untyped_storage(), 0, (4,), (1,)),
        lambda x: (x.to("cpu"), x.to(x.dtype), x.view(torch.int32), x.split(2, 1)),
        lambda x: torch.tensor([1.0, 2.0]).narrow(0, 0, 1),
        lambda x: torch.ops.kfuzz_test_own.relu(x),
    ],
)
def test_bookkeeping_is_the_kernels_own(function: Callable[[Tensor], object]) -> None:
    assert called(function) == []


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x: torch.softmax(x, -1), "aten::_softmax"),
        (lambda x: x @ x.t(), "aten::mm"),
        (lambda x: torch.add(x, 1, out=torch.empty_like(x)), "aten::add"),
        (lambda x: x.clone().clamp_(min=0), "aten::clamp_"),
        (lambda x: x.half(), "aten::_to_copy"),
        (lambda x: torch.empty(6, 4, dtype=torch.half).copy_(x), "aten::copy_"),
        (lambda x: torch.rand(2), "aten::rand"),
        (lambda x: x[torch.arange(2)], "aten::index"),
        (lambda x: bool(torch.isfinite(x).all()), "aten::abs"),
    ],
)
def test_what_computes_is_named(
    function: Callable[[Tensor], object], name: str
) -> None:
    assert called(function)[0] == name


def helped(x: Tensor, dim: int = -1) -> Tensor:
    try:
        raise RuntimeError("no such tile")
    except RuntimeError:
        return torch.softmax(x.double(), dim).to(x.dtype)


def test_a_fallback_to_torch_is_charged_by_name() -> None:
    case = row_case("randn", (4, 33))
    assert judged(ops.softmax, helped, case).failure is None
    report = judged(ops.softmax, helped, case, own_kernels_only=True)
    failure = report.failure
    assert failure is not None
    assert (failure.contract, failure.kind) == ("K-OWN-01", Kind.FOREIGN_OPERATOR)
    assert failure.detail == "aten::_softmax"
    assert failure.message.startswith(
        "computes with torch's own aten::_softmax, and aten::_to_copy"
    )
    assert report.verdicts["K-MEM-01"] is Verdict.CONFORMS


def test_memory_comes_first_and_values_come_last() -> None:
    def spoiling(x: Tensor) -> Tensor:
        return x.clamp_(min=0).clone()

    def wrong(x: Tensor) -> Tensor:
        return torch.relu(x) + 1

    case = x_case("randn", (4, 6))
    first = judged(ops.relu, spoiling, case, own_kernels_only=True).failure
    assert first is not None
    assert first.contract == "K-MEM-03"
    last = judged(ops.relu, wrong, case, own_kernels_only=True).failure
    assert last is not None
    assert (last.contract, last.detail) == ("K-OWN-01", "aten::relu")


@pytest.mark.skipif(not interpreting(), reason="needs the interpreter")
def test_launches_are_the_kernels_own() -> None:
    for case in (x_case("randn", (4, 6), strides=(1, 4)), x_case("nan1", (3, 40))):
        report = judged(ops.relu, triton_relu.function, case, own_kernels_only=True)
        assert report.failure is None, report.failure
        assert report.verdicts["K-OWN-01"] is Verdict.CONFORMS


def test_only_who_declares_it_is_bound() -> None:
    assert "K-OWN-01" not in contracts_of(ops.softmax)
    claims = Declaration(own_kernels_only=True)
    assert "K-OWN-01" in contracts_of(ops.softmax, claims)


@pytest.mark.parametrize(
    ("kind", "detail", "body", "mended"),
    [
        (
            Kind.FOREIGN_OPERATOR, "aten::_softmax", "return x.softmax(dim)",
            "return x.clone()",
        ),
        (
            Kind.FOREIGN_OPERATOR, "aten::_to_copy", "return x.half()",
            "return x.to('cpu', copy=True)",
        ),
        (Kind.NONFINITE_ACCEPTED, "", "return x", "raise ValueError"),
    ],
)  # fmt: skip
def test_a_script_shows_it(
    kind: Kind,
    detail: str,
    body: str,
    mended: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["repro.py"])
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    spec = TensorSpec((2, 3), ("M", "N"), "float32", values=bytes(24))
    made: Any = finding(
        kernel="mine",
        case=Case({"x": spec}, {"dim": -1}),
        failure=Failure("K-OWN-01", kind, "it fails", detail=detail),
        target=Target("kernels.py", "mine"),
    )
    Path("repro.py").write_text(script(made))
    for line, code in ((body, 1), (mended, 0)):
        Path("kernels.py").write_text(f"def mine(x, dim=-1):\n    {line}\n")
        with pytest.raises(SystemExit) as end:
            runpy.run_path("repro.py")
        assert end.value.code == code
