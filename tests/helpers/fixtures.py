"""A stand-in for the engine, an empty project, and bursts as of compiled kernels."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.command_line import Engine


@pytest.fixture(autouse=True)
def settings_of_torch() -> Iterator[None]:
    """Hold each test to leaving torch's settings as they were: others follow them."""
    if "torch" not in sys.modules:
        yield
        return
    from kfuzz.execution.calls import torch_state

    before = torch_state.state()
    yield
    # How many threads there are is nobody's result, and "none" means "ieee".
    same = ("number of threads", "fp32_precision (none before the call, ieee after it)")
    told = [
        t for t in torch_state.restore(before) if not any(part in t for part in same)
    ]
    assert not told, f"left changed: {', '.join(told)}"


@pytest.fixture
def restored() -> Iterator[None]:
    """Put back what a test changes of torch's settings on purpose."""
    from kfuzz.execution.calls import torch_state

    before = torch_state.state()
    yield
    torch_state.restore(before)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    fake = Engine()
    parts = {
        "cli.run.events": fake.run,
        "engine.replay.replay": fake.replay,
        "engine.replay.shrink": fake.shrink,
        "engine.scripts.script": lambda found, _: f"# {found.id}\n",
    }
    for name, part in parts.items():
        monkeypatch.setattr(f"kfuzz.{name}", part)
    return fake


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty project."""
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As where kernels are compiled and nothing traces torch's functions."""
    # Not all tests of this folder need torch.
    from kfuzz.execution.calls import batches as bursts
    from tests.helpers import burst_kernels

    monkeypatch.setenv("TRITON_INTERPRET", "0")
    monkeypatch.setattr(bursts, "has_traced", lambda: False)
    monkeypatch.setattr(bursts, "ISOLATED", 2)  # of so few
    burst_kernels.KEPT.clear()
    yield
    burst_kernels.KEPT.clear()
