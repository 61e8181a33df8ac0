"""Tuners that libraries bring, where kernels are compiled: one configuration a call."""

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.testing import do_bench, do_bench_cudagraph

from kfuzz.execution.calls.tuners import choosing
from kfuzz.execution.interpreter.watch import watch

pytestmark = pytest.mark.gpu
BLOCKS = (64, 128, 256)


def store(out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, BLOCK * 1.0, mask=at < n)


def launch(made: Any, out: Tensor, block: int) -> None:
    made[(triton.cdiv(out.numel(), block),)](out, out.numel(), BLOCK=block)


def subclass(made: Any) -> Callable[[Tensor], None]:
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

    def function(out: Tensor) -> None:
        n = out.numel()
        tuner[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](out, n)

    return function


def asking(bench: Callable[..., Any]) -> Callable[[Any], Callable[[Tensor], None]]:
    def made_by(made: Any) -> Callable[[Tensor], None]:
        best: dict[int, int] = {}

        def function(out: Tensor) -> None:
            if out.numel() not in best:
                times = [bench(lambda b=b: launch(made, out, b)) for b in BLOCKS]
                best[out.numel()] = BLOCKS[times.index(min(times))]
            launch(made, out, best[out.numel()])

        return function

    return made_by


def looping(made: Any) -> Callable[[Tensor], None]:
    listed = [{"BLOCK": block} for block in BLOCKS]
    best: dict[int, int] = {}

    def function(out: Tensor) -> None:
        if out.numel() not in best:
            times = []
            for config in listed:
                began = time.perf_counter()
                launch(made, out, config["BLOCK"])
                torch.cuda.synchronize()
                times.append(time.perf_counter() - began)
            best[out.numel()] = listed[times.index(min(times))]["BLOCK"]
        launch(made, out, best[out.numel()])

    return function


FORMS = {
    "a subclass": subclass,
    "do_bench": asking(do_bench),
    "do_bench_cudagraph": asking(do_bench_cudagraph),
    "a loop": looping,
}


def compiled(made: Any) -> int:
    return sum(len(caches[0]) for caches in made.device_caches.values())


@pytest.mark.parametrize("form", FORMS)
def test_a_first_call_compiles_one_configuration(form: str) -> None:
    made = triton.jit(store)
    function = FORMS[form](made)
    seen = []
    for number in range(3):
        out = torch.zeros(1024, device="cuda")
        with watch(config=number):
            choosing(function, function)(out)
        seen.append(out[0].item())
        assert out.tolist() == [seen[-1]] * 1024
        assert compiled(made) == number + 1
    assert set(seen) == set(map(float, BLOCKS))
