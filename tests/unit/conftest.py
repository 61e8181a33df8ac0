"""Fixtures of the command line: a stand-in for the engine, an empty project."""

import sys
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
        "script": SimpleNamespace(script=lambda found: f"# {found.id}\n"),
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
