"""C-CMP-02 of tuners that libraries bring: one faulty configuration, or none."""

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor

from kfuzz.contracts import operators as ops
from kfuzz.core.budget import Depth
from kfuzz.core.recipe import Case
from kfuzz.core.verdict import CaseReport, Verdict
from kfuzz.execution.interpreter.watch import interpreting
from tests.helpers.judged_cases import bench_of, spec
from tests.helpers.tiers import usual

pytestmark = pytest.mark.skipif(
    not interpreting(), reason="Triton compiles kernels here"
)
BLOCKS = (8, 16, 32)


@triton.jit
def relu(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(y + at, tl.maximum(value, 0.0), mask=at < n)


@triton.jit
def relu_wrong_with_sixteen(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n, other=0.0)
    least = 0.0
    if BLOCK == 16:
        least = 2.0
    tl.store(y + at, tl.maximum(value, least), mask=at < n)


def launch(made: Any, x: Tensor, config: dict[str, int]) -> Tensor:
    y, n = torch.empty_like(x), x.numel()
    made[(triton.cdiv(n, config["BLOCK"]),)](x.contiguous(), y, n, **config)
    return y


# A kernel, and what its binding names in `tuners=`.
Tuned = tuple[Callable[[Tensor], Tensor], tuple[Any, ...]]


def subclass(made: Any) -> Tuned:
    class Library(triton.runtime.Autotuner):
        def run(self, *args: Any, **kwargs: Any) -> Any:
            self.nargs = dict(zip(self.arg_names, args, strict=False))
            config = self.configs[0]
            if len(self.configs) > 1:
                found = {
                    c: self._bench(*args, config=c, **kwargs) for c in self.configs
                }
                config = min(found, key=lambda c: found[c])
            return self.fn.run(*args, **kwargs, **config.all_kwargs())

    listed = [triton.Config({"BLOCK": block}) for block in BLOCKS]
    tuner = Library(made, made.arg_names, listed, ["n"], None, None)

    def function(x: Tensor) -> Tensor:
        y, n = torch.empty_like(x), x.numel()
        tuner[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x.contiguous(), y, n)
        return y

    return function, ()


def looping(made: Any) -> Tuned:
    listed = [triton.Config({"BLOCK": block}) for block in BLOCKS]
    best: dict[object, Any] = {}

    def function(x: Tensor) -> Tensor:
        if x.shape not in best:
            times = {}
            for config in listed:
                began = time.perf_counter()
                launch(made, x, config.kwargs)
                times[config] = time.perf_counter() - began
            best[x.shape] = min(times, key=lambda c: times[c])
        return launch(made, x, best[x.shape].kwargs)

    return function, (listed, best)


FORMS = {"a subclass": subclass, "a loop": looping}


def judged(tuned: Tuned, configs: range) -> list[CaseReport]:
    function, tuners = tuned
    evaluator = bench_of(ops.relu, function, sizes="interpret", tuners=tuners)
    return [
        evaluator.judge(Case({"x": spec("ones", (3, 7))}, config=number), Depth.FULL)
        for number in configs
    ]


@pytest.mark.parametrize("form", [usual(f, is_usual=f != "a loop") for f in FORMS])
def test_a_fault_of_one_configuration_is_charged_to_it(form: str) -> None:
    reports = judged(FORMS[form](relu_wrong_with_sixteen), range(6))
    failures = [r.failure for r in reports if r.failure is not None]
    assert len(failures) == 2
    for failure in failures:
        assert failure.contract == "C-CMP-02"
        assert "BLOCK: 16" in failure.message


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_the_same_case_is_judged_alike_whatever_was_judged_before(form: str) -> None:
    made = relu_wrong_with_sixteen
    failing = [r.failure is not None for r in judged(FORMS[form](made), range(4))]
    assert set(failing) == {True, False}
    for number, fails in list(enumerate(failing))[1:]:
        [alone] = judged(FORMS[form](made), range(number, number + 1))
        assert (alone.failure is not None) == fails


@pytest.mark.parametrize("form", FORMS)
def test_a_right_kernel_is_charged_with_nothing(form: str) -> None:
    for report in judged(FORMS[form](relu), range(4)):
        assert report.failure is None
        assert report.verdicts["C-CMP-02"] is Verdict.CONFORMS
