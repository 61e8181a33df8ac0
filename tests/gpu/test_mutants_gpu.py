"""Mutants of the benchmarks on a GPU: they compile, and known ones are charged."""

from pathlib import Path
from typing import Any

import pytest

from kfuzz.targets.load import Source, load
from tests.benchmarks.mutants import in_child
from tests.benchmarks.mutants.in_child import Comparison
from tests.benchmarks.mutants.mutator import FAMILIES, Mutant, mutants, written
from tests.benchmarks.peers.subject import Budget, Subject

pytestmark = pytest.mark.gpu


def by_id(id: str) -> Mutant:
    return next(m for m in mutants() if m.id == id)


def compared(folder: Path, mutant: Mutant, file: str, cases: int) -> dict[str, Any]:
    asked = Comparison.within(
        folder, mutant.specimen.name, file, backend="cuda", seconds=20.0, cases=cases
    )
    return in_child.compared(asked)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_mutant_of_each_family_compiles(family: str, tmp_path: Path) -> None:
    own = [m for m in mutants() if m.rule.family == family and "cuda" in m.backends]
    # Not the first: the last kernels are the shorter ones.
    mutant = own[-1]
    written(tmp_path, [mutant])
    source = Source(file=tmp_path / mutant.file, only=(mutant.specimen.name,))
    kernel = load(source, root=tmp_path)[0].kernel
    witness = mutant.specimen.witness
    subject = Subject(kernel, witness.shapes, witness.dtype, "cuda:0")
    found = in_child.starts(subject, Budget(60.0), 0)
    assert (found.message, found.cases) == ("", 1), f"{mutant.id}\n{mutant.diff}"


@pytest.mark.parametrize(
    "id",
    [
        "triton_softmax/wrong-fill/1",
        "triton_sum/narrowed-between-tiles/1",
        "triton_matmul/operands-in-tf32/1",
        "triton_relu/nan-swallowed/1",
    ],
)
def test_a_known_mutant_is_charged_and_its_kernel_is_not(
    id: str, tmp_path: Path
) -> None:
    mutant = by_id(id)
    written(tmp_path, [mutant])
    told = compared(tmp_path, mutant, mutant.file, 600)
    assert told["charged"], f"{mutant.diff}\n{told}"
    own = f"{mutant.specimen.name}.py"
    correct = compared(tmp_path, mutant, own, 60)
    assert not correct["charged"], correct
    assert correct["differing"] == 0, correct
    assert correct["cases"] > 0
