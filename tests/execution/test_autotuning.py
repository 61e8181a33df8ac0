"""Autotuned kernels in Triton's interpreter: each configuration, by number."""

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor

from kfuzz.execution.interpreter.watch import Launches, interpreting, watch

pytestmark = pytest.mark.skipif(
    not interpreting(), reason="Triton compiles kernels here"
)
BLOCKS = (4, 8, 2)
CONFIGS = [triton.Config({"BLOCK": b}) for b in BLOCKS]


@triton.autotune(CONFIGS, key=["n"])
@triton.jit
def store_block(out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, BLOCK * 1.0, mask=at < n)


@triton.autotune(CONFIGS, key=["n"], reset_to_zero=["out"])
@triton.heuristics({"TWICE": lambda args: 2 * args["BLOCK"]})
@triton.jit
def add_twice(out, n, BLOCK: tl.constexpr, TWICE: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + at, TWICE * 1.0, mask=at < n)


def only_small(configs, named_args, **kwargs):
    return [c for c in configs if c.kwargs["BLOCK"] <= named_args["n"]]


@triton.autotune(CONFIGS, key=[], prune_configs_by={"early_config_prune": only_small})
@triton.jit
def store_pruned(out, n, BLOCK: tl.constexpr):
    tl.store(out + tl.arange(0, BLOCK), BLOCK * 1.0)


@triton.autotune(CONFIGS, key=["n"])
@triton.jit
def needs_eight(out, n, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK >= 8)
    tl.store(out + tl.arange(0, BLOCK), BLOCK * 1.0)


@triton.autotune(CONFIGS, key=["n"])
@triton.jit
def fails(out, n, BLOCK: tl.constexpr):
    tl.store(out, n.shape)


def run(kernel, config: int, n: int = 8, value: float = 0.0) -> tuple[Tensor, Launches]:
    out = torch.full((8,), value)
    with watch(config=config) as seen:
        kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](out, n)
    return out, seen


@pytest.mark.parametrize(("number", "block"), list(enumerate(BLOCKS * 2)))
def test_the_number_chooses_whatever_ran_before(number: int, block: int) -> None:
    out, seen = run(store_block, number)
    assert out.tolist() == [float(block)] * 8
    assert f"BLOCK: {block}," in seen.config
    assert seen.programs == 8 // block


def test_heuristics_and_hooks_see_the_configuration() -> None:
    for number, block in enumerate(BLOCKS):
        out, _ = run(add_twice, number, value=100.0)
        assert out.tolist() == [2.0 * block] * 8


def test_only_what_pruning_leaves_is_counted() -> None:
    found = [run(store_pruned, number, n=4)[0].max().item() for number in range(3)]
    assert found == [4.0, 2.0, 4.0]


def test_a_configuration_that_a_static_assertion_refuses_is_passed_over() -> None:
    out, seen = run(needs_eight, 2)
    assert out.tolist() == [8.0] * 8
    assert "BLOCK: 8," in seen.config
    with pytest.raises(Exception, match="tuple"):
        run(fails, 0)


def test_the_autotuner_keeps_its_cache_and_its_configurations() -> None:
    store_block.cache["known"] = CONFIGS[1]
    run(store_block, 0)
    assert store_block.cache == {"known": CONFIGS[1]}
    assert store_block.configs == CONFIGS
    del store_block.cache["known"]
