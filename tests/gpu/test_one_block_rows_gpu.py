"""Kernels that take a row as one block, each length compiled, on a GPU."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kfuzz.core.budget import Depth
from kfuzz.core.event import FindingSaved, KernelFinished, RunFinished
from kfuzz.core.recipe import Case, Fill, TensorSpec
from kfuzz.core.verdict import Verdict
from kfuzz.engine.workers.runner import Runner, runner_of
from kfuzz.engine.workers.zygotes import Backend
from kfuzz.targets.load import load_all
from tests.helpers.searches import searched

pytestmark = pytest.mark.gpu
TARGETS = Path(__file__).parent / "targets"
ROWS = TARGETS / "one_block_rows.py"
SOFTMAX = f"{ROWS}::softmax_4_warps"
# Each has a compiled kernel of its own: the block, and what n is divisible by.
LENGTHS = (2, 3, 5, 16, 17, 32, 33, 64, 70, 128, 130, 256, 300, 512, 515, 1024, 1030,
           2048, 2100, 4096)  # fmt: skip


def cases() -> list[Case]:
    made = []
    for seed, n in enumerate(LENGTHS):
        fill = Fill("randn", 2 * seed + 1)
        spec = TensorSpec((3, n), ("d0", "d1"), "float32", fill=fill)
        made.append(Case({"x": spec}, {"dim": -1}))
    return made


def compiled(cache: Path) -> int:
    """Return how often the user's kernel lies in a cache of Triton's."""
    return len(list(cache.glob("*/softmax_row.json")))


@pytest.fixture
def runner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Runner, Path]]:
    cache = tmp_path / "cache"
    monkeypatch.setenv("TRITON_CACHE_DIR", str(cache))
    [loaded] = load_all((SOFTMAX,), root=TARGETS)
    backend = Backend("cuda")
    made = runner_of(loaded, backend, root=TARGETS, expired=lambda: False)
    try:
        yield made, cache
    finally:
        made.close()
        backend.close()


def verdicts(runner: Runner) -> list[dict[str, Verdict]]:
    """Return what one call of each case tells: further ones have other sizes."""
    return [dict(runner.judge(case, Depth.BASE).verdicts) for case in cases()]


def test_a_child_that_compiles_by_itself_says_the_same(
    runner: tuple[Runner, Path],
) -> None:
    judging, cache = runner
    by_itself = verdicts(judging)
    assert compiled(cache) == len(LENGTHS)
    judging.close()
    assert verdicts(judging) == by_itself  # of a child that finds all in the cache
    assert compiled(cache) == len(LENGTHS)


@pytest.mark.slow
def test_correct_rows_of_one_block_have_no_finding(tmp_path: Path) -> None:
    finished, found, ended = [], [], []
    for event in searched(ROWS, corpus=tmp_path, seed=3, max_time=300.0, device="cuda"):
        if isinstance(event, KernelFinished):
            finished.append(event)
        elif isinstance(event, FindingSaved):
            found.append(event.finding.signature)
        elif isinstance(event, RunFinished):
            ended.append(event)
    assert not found
    assert len(ended) == 1
    assert len(finished) == 20
    assert all(event.cases >= 100 for event in finished)
