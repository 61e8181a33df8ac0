"""torch.compile against eager execution; a backend stands for the compiler."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import kfuzz
from kfuzz import strategies as ks
from kfuzz.core.errors import BuildError
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CaseReport, Kind
from tests.helpers.judged_cases import judged, spec

Backend = Callable[[Any, list[Any]], Callable[..., Any]]


def gated(x: Tensor, gate: Tensor, *, scale: float = 0.5) -> Tensor:
    """Return silu(gate) x scale."""
    return nn.functional.silu(gate) * x * scale


GATED = kfuzz.reference(gated, eager=True)


def case(shape: tuple[int, ...], dtype: str = "float32", **scalars: Any) -> Case:
    made = {
        name: spec("randn", shape, dtype, seed=seed)
        for seed, name in enumerate(("x", "gate"))
    }
    return Case(made, scalars)


def right(module: Any, inputs: list[Any]) -> Callable[..., Any]:
    return module.forward


def wrong(module: Any, inputs: list[Any]) -> Callable[..., Any]:
    """Fuse silu to its sigmoid alone."""
    for node in list(module.graph.nodes):
        if "silu" in str(node.target):
            with module.graph.inserting_after(node):
                made = module.graph.call_function(torch.sigmoid, (node.args[0],))
            node.replace_all_uses_with(made)
            module.graph.erase_node(node)
    module.recompile()
    return module.forward


def report(backend: Backend, made: Case) -> CaseReport:
    # As torch keeps code by the function: one that no other test has compiled.
    def own(x: Tensor, gate: Tensor, *, scale: float = 0.5) -> Tensor:
        return nn.functional.silu(gate) * x * scale

    compiled_one = kfuzz.compiled(own, backend=backend)
    return judged(GATED, compiled_one, made)


def test_a_right_compiler_is_clean_in_every_dtype_and_rank() -> None:
    forms = ("float32", (4, 33)), ("float16", (2, 3, 5)), ("bfloat16", ())
    for dtype, shape in forms:
        made = report(right, case(shape, dtype, scale=0.5))
        assert made.failure is made.error is made.unsupported is None
        assert made.verdicts["C-CMP-01"] == "conforms"


def test_a_wrong_fusion_is_charged_to_the_chain() -> None:
    failure = report(wrong, case((4, 33), scale=0.5)).failure
    assert failure is not None
    assert (failure.contract, failure.kind) == ("C-CMP-01", Kind.VALUE)
    assert "gated in eager mode, with each result stored" in failure.message


def test_what_the_compiler_raises_is_the_kernels() -> None:
    def refuses(module: Any, inputs: list[Any]) -> Callable[..., Any]:
        raise NotImplementedError("no rule for silu")

    failure = report(refuses, case((4, 33), scale=0.5)).failure
    assert failure is not None
    assert (failure.contract, failure.kind) == ("K-LIV-01", Kind.RAISES)
    assert "no rule for silu" in failure.message + failure.trace


def test_a_machine_that_cannot_compile_is_an_error_of_the_run() -> None:
    class InvalidCxxCompiler(RuntimeError):
        pass

    def lacks(module: Any, inputs: list[Any]) -> Callable[..., Any]:
        raise InvalidCxxCompiler("No working C++ compiler found in cpp.cxx: g++")

    with pytest.raises(BuildError, match="cannot compile own here: No working C"):
        report(lacks, case((4, 33), scale=0.5))


def test_eager_execution_in_place_of_compiled_is_an_error_of_the_run() -> None:
    def never(x: Tensor) -> Tensor:
        return x.sin()

    made = kfuzz.compiled(never, backend=right)
    with (
        torch.compiler.set_stance("force_eager"),
        pytest.raises(BuildError, match="compiled nothing of never"),
    ):
        made(torch.ones(3))


@pytest.mark.slow
def test_more_shapes_than_torch_compiles_by_default_are_compiled() -> None:
    counted: list[int] = []

    def counting(module: Any, inputs: list[Any]) -> Callable[..., Any]:
        counted.append(len(inputs))
        return module.forward

    def own(x: Tensor) -> Tensor:
        return x.sin() * x.shape[0]

    made = kfuzz.compiled(own, backend=counting, dynamic=False)
    for n in range(2, 22):
        x = torch.randn(n)
        assert torch.allclose(made(x), x.sin() * n)
    assert len(counted) == 20


def test_a_module_is_compiled_and_judged_in_the_dtype_of_the_case() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(8, 5), nn.ReLU())
    operator = kfuzz.reference(
        module, {"input": ks.tensors("M K")}, name="layer", shape_class="K == 8",
        eager=True,
    )  # fmt: skip
    made = kfuzz.compiled(module, backend=right)
    for dtype in ("float32", "bfloat16"):
        x = spec("randn", (4, 8), dtype, axes=("M", "K"))
        found = judged(operator, made, Case({"input": x}))
        assert found.failure is found.error is None
        assert found.verdicts["C-CMP-01"] == "conforms"
