"""Tuners that libraries bring, in Triton's interpreter: one configuration a call."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.testing import do_bench, do_bench_cudagraph

from kfuzz.contracts import operators as ops
from kfuzz.contracts.binding import kernel
from kfuzz.core.errors import BindingError
from kfuzz.execution.calls.tuning import Measuring, held
from kfuzz.execution.interpreter.watch import Launches, interpreting, watch

pytestmark = pytest.mark.skipif(
    not interpreting(), reason="Triton compiles kernels here"
)
BLOCKS = (4, 8, 2)


def configs() -> list[triton.Config]:
    return [triton.Config({"BLOCK": block}) for block in BLOCKS]


@triton.jit
def store(out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, BLOCK * 1.0, mask=at < n)


@triton.jit
def store_eight(out, n, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK >= 8)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, BLOCK * 1.0, mask=at < n)


class Own(triton.runtime.Autotuner):
    """Runs in its own way, and keeps what was best for ever."""

    def run(self, *args: Any, **kwargs: Any) -> Any:
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        config = self.configs[0]
        if len(self.configs) > 1:
            key = args[1]
            if key not in self.cache:
                times = {
                    c: self._bench(*args, config=c, **kwargs)
                    for c in self.prune_configs(kwargs)
                }
                self.cache[key] = min(times, key=lambda c: times[c])
            config = self.cache[key]
        self.best_config = config
        return self.fn.run(*args, **kwargs, **config.all_kwargs())


class Stubborn(Own):
    """Looks into its cache however many configurations there are."""

    def run(self, *args: Any, **kwargs: Any) -> Any:
        if args[1] not in self.cache:
            self.cache[args[1]] = self.configs[0]
        config = self.cache[args[1]]
        return self.fn.run(*args, **kwargs, **config.all_kwargs())


class Delegating(triton.runtime.Autotuner):
    def run(self, *args: Any, **kwargs: Any) -> Any:
        return super().run(*args, **kwargs)


class Asking:
    """Is none of Triton's, and asks Triton for times."""

    def __init__(self, fn: Any, bench: Callable[..., Any] = do_bench, **options: Any):
        self.fn, self.bench, self.options = fn, bench, options
        self.configs, self.best = configs(), dict[int, Any]()

    def __call__(self, out: Tensor, n: int) -> None:
        if n not in self.best:
            times = {}
            for config in self.configs:
                call = functools.partial(self.launch, out, n, config)
                try:
                    times[config] = self.bench(call, **self.options)
                except Exception:
                    continue
            self.best[n] = min(times or self.configs, key=lambda c: times.get(c, 0))
        self.launch(out, n, self.best[n])

    def launch(self, out: Tensor, n: int, config: Any) -> None:
        grid = (triton.cdiv(n, config.kwargs["BLOCK"]),)
        self.fn[grid](out, n, **config.kwargs)


def autotuned(made: type, fn: Any) -> Callable[[Tensor, int], None]:
    tuner = made(fn, fn.arg_names, configs(), ["n"], None, None)

    def call(out: Tensor, n: int) -> None:
        tuner[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](out, n)

    return call


FORMS: dict[str, Callable[[Any], Callable[[Tensor, int], None]]] = {
    "its own run": functools.partial(autotuned, Own),
    "its own cache": functools.partial(autotuned, Stubborn),
    "Triton's run": functools.partial(autotuned, Delegating),
    "named lists and caches": Asking,
}


@pytest.fixture(autouse=True)
def launched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note the block of each launch."""
    noted: list[int] = []
    run = triton.runtime.interpreter.InterpretedFunction.run

    def noting(self: Any, *args: Any, **kwargs: Any) -> Any:
        noted.append(kwargs["BLOCK"])
        return run(self, *args, **kwargs)

    monkeypatch.setattr(triton.runtime.interpreter.InterpretedFunction, "run", noting)
    return noted


def called(function: Any, config: int, n: int = 8) -> tuple[Tensor, Launches]:
    out = torch.zeros(n)
    named = (function.configs, function.best) if isinstance(function, Asking) else ()
    with watch(config=config) as seen:
        held(function, named)(out, n)
    return out, seen


@pytest.mark.parametrize("form", FORMS)
def test_each_configuration_runs_for_its_number(form: str, launched: list[int]) -> None:
    function = FORMS[form](store)
    for number in (1, 0, 2, 1):
        launched.clear()
        out, seen = called(function, number)
        assert set(launched) == {BLOCKS[number]}
        assert out.tolist() == [float(BLOCKS[number])] * 8
        assert f"BLOCK: {BLOCKS[number]}" in seen.config
        assert seen.configs == 3


@pytest.mark.parametrize("form", FORMS)
def test_what_is_refused_is_passed_over(form: str) -> None:
    function = FORMS[form](store_eight)
    for number in range(3):
        out, seen = called(function, number)
        assert out.tolist() == [8.0] * 8
        assert "BLOCK: 8" in seen.config


def test_outside_of_a_call_a_tuner_is_as_its_library_made_it() -> None:
    function = Asking(store)
    function.best[3] = function.configs[2]
    called(function, 1)
    assert len(function.configs) == 3
    assert function.best == {3: function.configs[2]}
    with pytest.raises(Exception, match="driver"):
        do_bench(lambda: None)


@pytest.mark.parametrize("bench", [do_bench, do_bench_cudagraph])
@pytest.mark.parametrize("options", [{}, {"quantiles": (0.5, 0.2)}])
def test_a_tuner_that_nobody_names_takes_the_first_that_runs(
    bench: Any, options: dict[str, Any], launched: list[int]
) -> None:
    for fn, block in ((store, 4.0), (store_eight, 8.0)):
        launched.clear()
        out = torch.zeros(8)
        with watch(config=2) as seen:
            Asking(fn, bench, **options)(out, 8)
        assert out.tolist() == [block] * 8
        assert launched == [*BLOCKS, int(block)]  # each once, not for its time
        assert seen.configs == 0


def test_only_what_ends_in_triton_is_made_to_measure(launched: list[int]) -> None:
    for form, blocks in {"Triton's run": {8, 2}, "its own run": {8}}.items():
        function = FORMS[form](store)
        called(function, 1)
        launched.clear()
        with Measuring(most=2) as measuring, watch(config=1, measuring=measuring):
            function(torch.zeros(8), 8)
        assert set(launched) == blocks


def test_a_binding_names_lists_and_dictionaries() -> None:
    with pytest.raises(BindingError, match="no list or dictionary"):
        kernel(ops.relu, tuners=((1, 2),))(torch.relu)  # type: ignore[arg-type]
