"""Races in Triton's interpreter: each planted one is seen, and no twin has any."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from kfuzz.core.recipe import Case, TensorSpec
from kfuzz.execution.calls.results import Invocation, Options, execute
from kfuzz.execution.interpreter.races import RaceLog
from kfuzz.execution.interpreter.watch import interpreting
from kfuzz.execution.memory.poison import Poison
from kfuzz.execution.memory.slots import Arena
from kfuzz.numerics.run import Run
from tests.benchmarks.planted_races.kernels import PAIRS, Pair

pytestmark = pytest.mark.skipif(
    not interpreting(), reason="Triton compiles kernels here"
)
N = 40


def run(pair: Pair, *, race: bool, **options: Any) -> Run:
    """Call one kernel of a pair on numbers of which no two are equal."""
    values: dict[str, Tensor] = {}
    specs = {}
    for name, given in pair.inputs.items():
        axes = tuple(given.dims.split())
        shape = (N,) * len(axes)
        if given.role == "index":
            values[name] = (torch.arange(N) * 7 % N).int() // 2
        else:
            values[name] = (torch.arange(N ** len(axes)) * 1009 % 1601 + 1).float()
        values[name] = values[name].reshape(shape)
        dtype = str(values[name].dtype).removeprefix("torch.")
        specs[name] = TensorSpec(shape, axes, dtype, values=bytes(0))
    asked = Invocation(pair.make(race), Case(specs), {}, 16, Poison.NAN)
    made = execute(
        asked, values, arena=Arena("cpu"), fresh=Poison.NAN, options=Options(**options)
    )
    assert made.raised is None, made.raised
    return made


@pytest.mark.parametrize("name", PAIRS)
def test_a_planted_race_is_seen_with_both_parties_and_its_twin_has_none(
    name: str,
) -> None:
    pair = PAIRS[name]
    found = [a for a in run(pair, race=True).accesses if a.where == "race"]
    assert found
    for access in found:
        assert access.program != access.other
        assert "store" in {access.access, access.other_access} or (
            {access.access, access.other_access} == {"load", "atomic"}
        )
        for line in (access.line, access.other_line):
            assert line.startswith("tests/benchmarks/planted_races/kernels.py:")
    assert run(pair, race=False).accesses == ()
