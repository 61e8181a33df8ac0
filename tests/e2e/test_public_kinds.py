"""Ten kinds of faults from public threads: one finding a fault, none without it."""

from pathlib import Path

import pytest

from kfuzz.core.event import Event, KernelFinished
from kfuzz.core.finding import Finding
from kfuzz.core.verdict import FAILING
from tests.helpers.searches import searched

pytestmark = pytest.mark.slow

FILE = Path(__file__).with_name("public_kinds.py")
# What each breaks, in one word or another; the first is what a maintainer calls it.
CONTRACTS = {
    "address": ("K-REF-01", "C-ORD-02"),
    "empty": ("C-EXC-01", "K-VAL-01"),
    "window": ("K-VAL-01", "C-CMP-03"),
    "table": ("K-VAL-01",),
    "dilated": ("K-VAL-01", "C-CMP-03"),
    "cancelled": ("C-PRC-01", "C-PRC-02", "K-VAL-01"),
    "dense": ("K-MEM-01", "K-VAL-01", "C-CMP-03"),
    "dropped": ("K-VAL-01",),
    "divided": ("K-VAL-01", "C-PRC-02", "C-EXC-01"),
    "cut": ("K-VAL-01", "C-PRC-01"),
}


def run_of(name: str, folder: Path) -> list[Event]:
    device = "interpret" if name.endswith("dense") else "cpu"
    return searched(
        f"{FILE}::{name}", root=FILE.parents[2], corpus=folder, seed=12, device=device,
        max_cases=200,
    )  # fmt: skip


def finished(events: list[Event]) -> KernelFinished:
    [kernel] = [e for e in events if isinstance(e, KernelFinished)]
    return kernel


def failing(events: list[Event]) -> list[Finding]:
    return [f for f in finished(events).findings if f.state in FAILING]


def _marked(name: str) -> object:
    several = pytest.mark.xfail(reason="by chance it shows in several ways, each told")
    return pytest.param(name, marks=[several] if name == "address" else [])


@pytest.mark.parametrize("name", [_marked(name) for name in CONTRACTS])
def test_a_fault_is_one_finding(name: str, tmp_path: Path) -> None:
    [found] = failing(run_of(f"faulty_{name}", tmp_path))
    assert found.signature.contract in CONTRACTS[name]
    assert found.input_elements <= 40
    stored = [path.parent for path in tmp_path.glob("*/*/finding.json")]
    assert stored == [tmp_path / found.folder]


@pytest.mark.parametrize("name", CONTRACTS)
def test_its_repair_has_none(name: str, tmp_path: Path) -> None:
    kernel = finished(run_of(f"fixed_{name}", tmp_path))
    assert not kernel.findings
    assert not kernel.uncompared


def test_two_faults_stay_two(tmp_path: Path) -> None:
    """Ordinary numbers mend what NaN shows, and NaN is not what a size needs."""
    found = failing(run_of("twice", tmp_path))
    assert len({f.id for f in found}) == 2
    assert sum(f.signature.contract == "C-EXC-01" for f in found) == 1


def test_what_few_elements_show_by_chance_is_confirmed_with_more(
    tmp_path: Path,
) -> None:
    """The address of the seed serves as seed: each process may be right or wrong."""
    path = FILE.parents[1] / "benchmarks" / "public_kinds" / "dropout_seed.py"
    events = searched(
        f"{path}::faulty", root=FILE.parents[2], corpus=tmp_path, seed=11,
        device="interpret", max_cases=60,
    )  # fmt: skip
    assert {f.signature.contract for f in failing(events)} == {"K-REF-01"}
