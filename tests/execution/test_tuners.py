"""Tuners that libraries bring, in Triton's interpreter: one configuration a call."""

import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.testing import do_bench, do_bench_cudagraph

from kfuzz.execution.calls.autotuning import Measuring
from kfuzz.execution.calls.tuners import choosing
from kfuzz.execution.interpreter.watch import Launches, interpreting, watch
from tests.helpers.tiers import sampled

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

    best: dict[Any, Any]

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

    def __init__(self, fn: Any, bench: Callable[..., Any], **options: Any) -> None:
        self.fn, self.bench, self.options = fn, bench, options
        self.best: dict[int, Any] = {}

    def __call__(self, out: Tensor, n: int) -> None:
        if n not in self.best:
            times = {}
            for config in configs():
                call = functools.partial(self.launch, out, n, config)
                try:
                    times[config] = self.bench(call, **self.options)
                except Exception:
                    continue
            self.best[n] = min(times, key=lambda c: times[c])
        self.launch(out, n, self.best[n])

    def launch(self, out: Tensor, n: int, config: Any) -> None:
        grid = (triton.cdiv(n, config.kwargs["BLOCK"]),)
        self.fn[grid](out, n, **config.kwargs)


class Looping:
    """Goes through its configurations and looks at the clock."""

    def __init__(self, fn: Any, listed: Any) -> None:
        self.fn, self.configs = fn, listed
        self.best: Any = None

    def __call__(self, out: Tensor, n: int) -> None:
        if self.best is None:
            self.best = min(self.configs, key=lambda c: self.timed(out, n, c))
        self.launch(out, n, self.best)

    def timed(self, out: Tensor, n: int, config: Any) -> float:
        began = time.perf_counter()
        for _ in range(3):
            self.launch(out, n, config)
        return time.perf_counter() - began

    def launch(self, out: Tensor, n: int, config: Any) -> None:
        named = getattr(config, "kwargs", config)
        self.fn[(triton.cdiv(n, named["BLOCK"]),)](out, n, **named)


GLOBAL = [{"BLOCK": block} for block in BLOCKS]


@functools.cache
def best_of_global(n: int) -> Any:
    times = []
    for config in GLOBAL:
        out, began = torch.zeros(n), time.perf_counter()
        store[(triton.cdiv(n, config["BLOCK"]),)](out, n, **config)
        times.append(time.perf_counter() - began)
    return GLOBAL[times.index(min(times))]


def by_a_function(out: Tensor, n: int) -> None:
    config = best_of_global(n)
    store[(triton.cdiv(n, config["BLOCK"]),)](out, n, **config)


def autotuned(made: type, fn: Any) -> Callable[[Tensor, int], None]:
    tuner = made(fn, fn.arg_names, configs(), ["n"], None, None)

    def call(out: Tensor, n: int) -> None:
        tuner[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](out, n)

    return call


FORMS: dict[str, Callable[[Any], Callable[[Tensor, int], None]]] = {
    "its own run": functools.partial(autotuned, Own),
    "its own cache": functools.partial(autotuned, Stubborn),
    "Triton's run": functools.partial(autotuned, Delegating),
    "do_bench": lambda fn: Asking(fn, do_bench),
    "quantiles": lambda fn: Asking(fn, do_bench, quantiles=(0.5, 0.2, 0.8)),
    "do_bench_cudagraph": lambda fn: Asking(fn, do_bench_cudagraph, rep=1),
    "a loop": lambda fn: Looping(fn, configs()),
    "a loop over a tuple": lambda fn: Looping(fn, tuple(configs())),
    "a loop over keywords": lambda fn: Looping(fn, [{"BLOCK": b} for b in BLOCKS]),
}


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Note the block of each launch."""
    launched: list[int] = []
    run = triton.runtime.interpreter.InterpretedFunction.run

    def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
        launched.append(kwargs["BLOCK"])
        return run(self, *args, **kwargs)

    monkeypatch.setattr(triton.runtime.interpreter.InterpretedFunction, "run", noted)
    yield launched
    best_of_global.cache_clear()


def called(
    function: Callable[..., Any], config: int, n: int = 8
) -> tuple[Tensor, Launches]:
    out = torch.zeros(n)
    with watch(config=config) as seen:
        choosing(function, function)(out, n)
    return out, seen


@pytest.mark.parametrize("form", FORMS)
def test_a_first_call_runs_one_configuration(form: str, fresh: list[int]) -> None:
    out, seen = called(FORMS[form](store), 1)
    assert set(fresh) == {8}
    assert out.tolist() == [8.0] * 8
    assert "BLOCK: 8" in seen.config
    assert seen.configs == 3


@pytest.mark.parametrize("form", sampled(FORMS, one_in=2))
def test_every_configuration_has_its_number_whatever_ran_before(form: str) -> None:
    function = FORMS[form](store)
    ran = [called(function, number)[0][0].item() for number in range(6)]
    assert set(ran) == set(map(float, BLOCKS))
    again = [called(FORMS[form](store), number)[0][0].item() for number in range(6)]
    assert ran == again


@pytest.mark.parametrize("form", FORMS)
def test_what_is_refused_is_passed_over(form: str) -> None:
    function = FORMS[form](store_eight)
    for number in range(3):
        out, seen = called(function, number)
        assert out.tolist() == [8.0] * 8
        assert "BLOCK: 8" in seen.config


def test_a_function_that_measures_once_for_all_forgets_it(fresh: list[int]) -> None:
    ran = [called(by_a_function, number)[0][0].item() for number in range(3)]
    assert ran == [4.0, 8.0, 2.0]
    assert set(fresh[:2]) == {4}
    assert [c["BLOCK"] for c in GLOBAL] == list(BLOCKS)


@pytest.mark.parametrize("form", FORMS)
def test_outside_of_a_call_a_tuner_is_as_its_library_made_it(form: str) -> None:
    function: Any = FORMS[form](store)
    called(function, 1)
    with pytest.raises(Exception, match="driver"):
        do_bench(lambda: None)
    if isinstance(function, Looping):
        assert len(function.configs) == 3
        assert function.best is None
    if isinstance(function, Asking):
        assert function.best == {}


def test_only_what_ends_in_triton_is_made_to_measure(fresh: list[int]) -> None:
    made_to = {
        "Triton's run": {8, 2},
        "its own run": {8},
        "do_bench": {8},
        "a loop": {8},
    }
    for form, blocks in made_to.items():
        function = FORMS[form](store)
        called(function, 1)
        fresh.clear()
        with Measuring(most=2) as measuring, watch(config=1, measuring=measuring):
            choosing(function, function)(torch.zeros(8), 8)
        assert set(fresh) == blocks


# What goes through a list and is no tuner --------------------------------------


def test_the_first_that_fits_is_not_measured(fresh: list[int]) -> None:
    listed = [{"BLOCK": b} for b in (16, 4, 2)]

    def fitting(out: Tensor, n: int) -> None:
        time.perf_counter()  # as for a log
        for config in listed:
            if n % config["BLOCK"] == 0:
                store[(n // config["BLOCK"],)](out, n, **config)
                return
        raise AssertionError("none fits")

    for number in range(4):
        for n, block in ((4, 4.0), (2, 2.0)):
            out, seen = called(fitting, number, n=n)
            assert out.tolist() == [block] * n
            assert seen.configs == 0


@pytest.mark.parametrize("clock", [time.perf_counter, int])
def test_several_passes_are_all_made(
    clock: Callable[[], float], fresh: list[int]
) -> None:
    passes = [{"BLOCK": b} for b in BLOCKS]
    took: list[float] = []

    def passing(out: Tensor, n: int) -> None:
        began = clock()
        for config in passes:
            store[(1,)](out, n, **config)
        took.append(time.perf_counter() - began)

    for number in range(3):
        fresh.clear()
        out, seen = called(passing, number)
        assert fresh[-3:] == [4, 8, 2]
        assert out.tolist() == [2.0] * 2 + [8.0] * 6
        assert seen.configs == 0


def test_a_call_without_a_launch_changes_nothing() -> None:
    tuner = Looping(store, configs())

    def function(out: Tensor, n: int) -> None:
        if n == 3:
            raise ValueError("no such size")
        if n > 0:
            tuner(out, n)

    assert called(function, 1)[0].tolist() == [8.0] * 8
    assert called(function, 1, n=0)[0].tolist() == []
    with pytest.raises(ValueError, match="no such size"):
        called(function, 1, n=3)
    out, seen = called(function, 2)
    assert (out[0].item(), seen.configs) == (2.0, 3)
