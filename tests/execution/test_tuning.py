"""Triton's own autotuner over kernels that are not compiled: chosen, and measuring.

A launch is a Python function here; what surrounds it is what a GPU's is.
"""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
import triton
from torch import Tensor
from triton.runtime.errors import OutOfResources

from kfuzz.execution.calls.tuning import CALLS, Measuring
from kfuzz.execution.interpreter.watch import Launches, interpreting, watch

BLOCKS = (4, 8, 2, 16)


def add_block(x: Tensor, n: int, BLOCK: int) -> None:
    x[:n] += BLOCK


class Compiled:
    """What stands below an autotuner: it notes its launches."""

    def __init__(self, refused: tuple[int, ...] = ()) -> None:
        self.fn = add_block
        self.arg_names = ["x", "n", "BLOCK"]
        self.refused = refused
        self.launched: list[int] = []

    def run(self, *args: Any, grid: object, warmup: bool, **named: Any) -> None:
        block = named["BLOCK"]
        if block in self.refused:
            raise OutOfResources(1, 0, "shared memory")
        if block < 0:
            raise ValueError("a mistake of the kernel's")
        self.launched.append(block)
        add_block(*args, block)


@pytest.fixture(autouse=True)
def compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    assert not interpreting()


def tuned(
    below: Compiled, hook: Callable[..., None] | None = None, **options: Any
) -> Any:
    made = [triton.Config({"BLOCK": b}, pre_hook=hook) for b in BLOCKS]
    return triton.autotune(made, key=["n"], **options)(below)


def call(
    kernel: Any, config: int, measuring: Measuring | None = None
) -> tuple[float, Launches]:
    x = torch.zeros(8)
    with watch(config=config, measuring=measuring) as seen:
        kernel.run(x, 8, grid=(1,), warmup=False)
    return x[0].item(), seen


@pytest.mark.parametrize("number", range(6))
def test_one_configuration_is_launched_once_and_nothing_is_timed(number: int) -> None:
    below = Compiled()
    value, seen = call(tuned(below), number)
    assert below.launched == [BLOCKS[number % 4]]
    assert value == BLOCKS[number % 4]
    assert (seen.config.split(",")[0], seen.configs) == (f"BLOCK: {int(value)}", 4)


def test_what_the_device_refuses_is_passed_over_for_the_next() -> None:
    below = Compiled(refused=(8, 2))
    _, seen = call(tuned(below), 1)
    assert below.launched == [16]
    assert "BLOCK: 16" in seen.config
    with pytest.raises(OutOfResources):
        call(tuned(Compiled(refused=BLOCKS)), 0)


def test_a_mistake_in_a_configuration_is_no_refusal() -> None:
    kernel = tuned(Compiled())
    kernel.configs = [triton.Config({"BLOCK": -1}), triton.Config({"BLOCK": 4})]
    with pytest.raises(ValueError, match="a mistake"):
        call(kernel, 0)


def test_hooks_of_the_configuration_and_of_the_autotuner_run_once() -> None:
    seen: list[object] = []

    def of_config(arguments: Mapping[str, Any]) -> None:
        seen.append(("config", arguments["BLOCK"]))

    def of_tuner(arguments: Mapping[str, Any], reset_only: bool = False) -> None:
        seen.append(("tuner", arguments["BLOCK"], reset_only))

    call(tuned(Compiled(), of_config, pre_hook=of_tuner), 2)
    assert seen == [("tuner", 2, True), ("config", 2)]


def test_pruning_decides_what_is_chosen_from() -> None:
    def small(configs: Any, named: Any, **_: Any) -> Any:
        return [c for c in configs if c.kwargs["BLOCK"] <= 4]

    below = Compiled()
    kernel = tuned(below, prune_configs_by={"early_config_prune": small})
    for number in range(3):
        call(kernel, number)
    assert below.launched == [4, 2, 4]


# Measuring --------------------------------------------------------------------


def test_a_first_call_tries_configurations_and_takes_the_chosen_one() -> None:
    below = Compiled()
    kernel = tuned(below, restore_value=["x"])
    kernel.cache["known"] = kernel.configs[0]
    with Measuring(most=4) as measuring:
        value, seen = call(kernel, 1, measuring)
        tried = [b for b in BLOCKS for _ in range(CALLS)]
        assert below.launched == [*tried, 8]
        assert (value, "BLOCK: 8," in seen.config) == (8, True)
        below.launched.clear()
        assert call(kernel, 1, measuring)[0] == 8
        assert below.launched == [8]
    assert kernel.cache == {"known": kernel.configs[0]}
    assert "do_bench" not in vars(kernel)


def test_what_is_not_restored_stays_in_the_arguments_of_the_first_call() -> None:
    with Measuring(most=2) as measuring:
        kernel = tuned(Compiled())
        assert call(kernel, 3, measuring)[0] == CALLS * (4 + 16) + 16
        assert call(kernel, 3, measuring)[0] == 16


def test_a_second_call_resets_nothing() -> None:
    x = torch.zeros(8)
    kernel = tuned(Compiled(), reset_to_zero=["x"])
    with Measuring(most=4) as measuring:
        for expected in (4, 8):
            with watch(config=0, measuring=measuring):
                kernel.run(x, 8, grid=(1,), warmup=False)
            assert x[0].item() == expected


@pytest.mark.parametrize("most", [1, 2, 3, 4, 9])
@pytest.mark.parametrize("number", [0, 2, 3])
def test_no_more_are_tried_than_asked_for(most: int, number: int) -> None:
    below = Compiled()
    with Measuring(most) as measuring:
        call(tuned(below, restore_value=["x"]), number, measuring)
    tried = {BLOCKS[(number + i) % 4] for i in range(min(most, 4))}
    assert set(below.launched) == tried
    assert below.launched[-1] == BLOCKS[number]


def test_refused_configurations_lose() -> None:
    below = Compiled(refused=(4, 8))
    with Measuring(most=4) as measuring:
        call(tuned(below, restore_value=["x"]), 0, measuring)
    assert below.launched == [2, 2, 16, 16, 2]


def test_a_benchmark_of_the_kernels_own_is_not_asked() -> None:
    def own(*_: object, **__: object) -> list[float]:
        raise AssertionError("it times")

    below = Compiled()
    with Measuring(most=2) as measuring:
        call(tuned(below, do_bench=own, cache_results=True), 0, measuring)
    assert len(below.launched) == 2 * CALLS + 1
