"""A stand-in for the engine, an empty project, and bursts as of compiled kernels."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import kfuzz.engine
from tests.unit.command_line import Engine


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    fake = Engine()
    parts = {
        "campaign": SimpleNamespace(run=fake.run),
        "replay": SimpleNamespace(replay=fake.replay),
        "shrink": SimpleNamespace(shrink=fake.shrink),
        "script": SimpleNamespace(script=lambda found, target: f"# {found.id}\n"),
    }
    for name, module in parts.items():
        monkeypatch.setattr(kfuzz.engine, name, module, raising=False)
        monkeypatch.setitem(sys.modules, f"kfuzz.engine.{name}", module)
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
    from kfuzz.execution import bursts
    from tests.unit import burst_kernels

    monkeypatch.setenv("TRITON_INTERPRET", "0")
    monkeypatch.setattr(bursts, "is_delicate", lambda: False)
    monkeypatch.setattr(bursts, "APART", 2)  # of so few
    burst_kernels.KEPT.clear()
    yield
    burst_kernels.KEPT.clear()
