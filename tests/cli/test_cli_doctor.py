"""`kfuzz doctor`: what this machine has and lacks."""

import pytest

from kfuzz.app import main
from kfuzz.cli import doctor as doctor_module
from kfuzz.cli.doctor import Health

pytestmark = pytest.mark.usefixtures("project")


@pytest.mark.parametrize(("health", "code"), [(Health.OK, 0), (Health.BROKEN, 5)])
def test_doctor_exits_5_where_no_kernel_can_run(
    health: Health,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    child = doctor_module.Check("child process", health, "text", "a way out")
    monkeypatch.setattr(doctor_module, "_in_children", lambda: iter([child]))
    assert main(["doctor"]) == code
    lines = capsys.readouterr().out.splitlines()
    assert f"{health:<7}  child process: text. a way out" in lines
    assert all(line.split()[0] in list(Health) for line in lines)


@pytest.mark.slow
def test_doctor_tries_everything_for_real(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    out = capfd.readouterr().out
    for name in (
        "child process", "guard pages", "triton interpreter", "corpus"
    ):  # fmt: skip
        assert f"ok       {name}: " in out
    assert "untrusted code: contained: memory" in out
