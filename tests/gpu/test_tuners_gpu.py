"""Tuners that libraries bring, where kernels are compiled: one configuration a call."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.testing import do_bench

from kfuzz.execution.calls.tuning import held
from kfuzz.execution.interpreter.watch import watch

pytestmark = pytest.mark.gpu
BLOCKS = (64, 128, 256)
LISTED = list(BLOCKS)
BEST: dict[int, int] = {}


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


def named(made: Any) -> Callable[[Tensor], None]:
    def function(out: Tensor) -> None:
        if out.numel() not in BEST:
            times = [do_bench(lambda b=b: launch(made, out, b)) for b in LISTED]
            BEST[out.numel()] = LISTED[times.index(min(times))]
        launch(made, out, BEST[out.numel()])

    return function


FORMS = {"a subclass": subclass, "lists and caches": named}


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
            held(function, (LISTED, BEST))(out)
        seen.append(out[0].item())
        assert out.tolist() == [seen[-1]] * 1024
        assert compiled(made) == number + 1
    assert set(seen) == set(map(float, BLOCKS))
