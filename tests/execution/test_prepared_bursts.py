"""Bursts: memory that is prepared for what kernels allocate, and kept."""

import threading

import pytest
import torch
from torch import Tensor

from kfuzz.core.recipe import TensorSpec
from kfuzz.execution.memory.slots import Arena
from tests.helpers import burst_kernels as kernels
from tests.helpers.burst_runs import (
    FILL,
    MEMBERS,
    PLAIN,
    marked,
    run,
    suspects,
    touched,
    values_of,
)

pytestmark = pytest.mark.usefixtures("compiled")


def test_what_another_structure_allocates_otherwise_is_guarded() -> None:
    def relu(x: Tensor) -> Tensor:
        small = x.shape[1] < 6
        return kernels.relu(x) if small else kernels.past_captured(x)

    arena = Arena("cpu")
    for columns in (4, 5, 6):
        spec = TensorSpec((4, columns), ("a", "b"), "float32", fill=FILL)
        x = values_of(spec, 20)
        x[[0, 3, 17], 0, 0] = 7
        made = run(relu, x, spec, arena=arena)
        assert touched(made) == ([0, 3, 17] if columns == 6 else [])


@pytest.mark.parametrize("bad", ["thread", "gradient"])
def test_what_cannot_be_prepared_is_guarded(bad: str) -> None:
    def call(x: Tensor) -> Tensor:
        if bad == "thread":
            aside = threading.Thread(target=torch.empty, args=(3,))
            aside.start()
            aside.join()
        if bad == "gradient":
            torch.empty(3, requires_grad=True)
        return kernels.past_own(x)

    x, arena = marked(0, 1, 5), Arena("cpu")
    for number in range(2):
        made = run(call, x, arena=arena)
        assert touched(made) == [0, 1, 5], number


def test_a_call_that_is_made_again_gets_its_arguments_again() -> None:
    x = marked(4, 6)

    def clamp(given: Tensor) -> Tensor:
        kernels.relu_extra(given)
        return given.sub_(1)

    made = run(clamp, x, inplace=("x",))
    assert torch.equal(made.outputs["y"], x - 1)


def test_many_calls_that_allocate_otherwise() -> None:
    x = values_of(PLAIN, 40)
    x[5:, 0, 0] = 7
    made = run(kernels.relu_extra, x)
    assert suspects(made, x) == set()
    made = run(kernels.past_extra, x)
    assert touched(made) == list(range(5, 40))


def test_memory_that_a_kernel_keeps_stays_as_it_is() -> None:
    kept: list[tuple[Tensor, Tensor]] = []

    def keep(x: Tensor) -> Tensor:
        out = kernels.relu(x)
        kept.append((out, out.clone()))
        return out

    arena = Arena("cpu")
    for seed in range(3):
        run(keep, values_of(PLAIN, seed=seed), arena=arena)
    assert len(kept) == 3 * MEMBERS
    assert all(torch.equal(now, then) for now, then in kept)
