"""Probing kernels in children: what is read, what becomes a finding, what is drawn."""

import json
import threading
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import kfuzz
from kfuzz.app import main
from kfuzz.core.event import FindingSaved
from kfuzz.core.finding import Finding
from kfuzz.engine.config import ReplayOutcome
from kfuzz.features.lab.probe import search as readings
from kfuzz.features.lab.probe.search import KernelReadings, Probing
from kfuzz.features.lab.probe.sums import Outcome
from kfuzz.store.corpus import Corpus

HERE = Path(__file__).parents[2]
SCHEMA = json.loads((HERE / "data" / "probe.schema.json").read_text())
HEADER = """\
import torch
from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
"""
# Declares what is not so: sums stay in float16.
NARROW = """
@kernel(ops.sum, dtypes="float16", dims={-1}, shape_class="N >= 1")
def narrow(x, dim=-1):
    total = torch.zeros_like(x[..., 0])
    for column in x.unbind(-1):
        total = total + column
    return total
"""
PAIRED = """
def pairs(x):
    n = x.shape[-1]
    if n == 1:
        return x[..., 0]
    return pairs(x[..., : n - n // 2]) + pairs(x[..., n - n // 2 :])

@kernel(ops.sum, dtypes="float32", dims={-1}, shape_class="N >= 1")
def paired(x, dim=-1):
    return pairs(x)
"""


def probed(
    folder: Path, *targets: str, **settings: Any
) -> tuple[list[KernelReadings], list[Finding]]:
    """Probe, and return the readings, as a valid document too, and the findings."""
    settings = {"device": "cpu", **settings}
    probing = Probing(targets, folder, folder / "corpus", **settings)
    found = {}
    for event in probing.events(stop=threading.Event()):
        if isinstance(event, FindingSaved) and event.stage == "done":
            found[event.finding.id] = event.finding
    made = [{**readings.document(k), "findings": []} for k in probing.kernels]
    whole = {"device": probing.device, "interrupted": False, "kernels": made}
    written_down = json.loads(json.dumps({"format": 1, **whole}))
    jsonschema.validate(written_down, SCHEMA)
    return probing.kernels, list(found.values())


def written(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(HEADER + text)
    return str(path)


@pytest.mark.slow
def test_a_narrow_accumulator_is_a_finding_that_is_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "narrow.py", NARROW)
    words = "probe narrow.py --device cpu --terms 32 --format json"
    only = "--probe accumulator --probe order"
    assert main([*words.split(), *only.split()]) == 1
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, SCHEMA)
    [kernel] = document["kernels"]
    order, *_, reading = kernel["readings"]
    assert order["is"].endswith("its bits are those of additions in float16")
    assert reading["is"].startswith("11 bits, as float16")
    assert (reading["declares"], reading["verdict"]) == ("24 bits", "differs")
    assert kernel["claims"] == {"accumulator": "float16"}
    [told] = kernel["findings"]
    assert (told["contract"], told["state"]) == ("C-PRC-01", "confirmed")
    assert reading["finding"] == told["id"]
    finding = Corpus(tmp_path / "corpus").find(told["id"]).finding
    assert kfuzz.replay(finding, times=1).outcome is ReplayOutcome.FAILS

    # What it is may be declared: then nothing differs, and the finding is no more.
    honest = NARROW.replace("dims=", 'accumulator="float16", dims=')
    (tmp_path / "narrow.py").unlink()  # else there would be two kernels of one name
    target = written(tmp_path, "honest.py", honest)
    settings = {"terms": 32, "probes": ("accumulator", "order")}
    [made], findings = probed(tmp_path, target, **settings)
    assert findings == []
    assert {r.outcome for r in made.readings} == {Outcome.AS_DECLARED}
    again = kfuzz.replay(finding, times=1, target=f"{target}::narrow")
    assert again.outcome is ReplayOutcome.FIXED


@pytest.mark.slow
def test_what_is_adopted_is_what_the_kernel_is_held_to(tmp_path: Path) -> None:
    target = written(tmp_path, "paired.py", PAIRED)
    settings = {"terms": 64, "probes": ("order",)}
    kernels, _ = probed(tmp_path, target, **settings)
    lines = list(readings.reading_lines(kernels[0], adopt=True))
    assert any("balanced tree, height 6" in line for line in lines)
    assert "  accumulator='blocked(6)'," in lines
    assert "Nothing is changed" in lines[-1]
    claims = kernels[0].claims
    assert claims["shape_class"] == "(N >= 1) and N <= 64"

    listed = ", ".join(f"{key}={value!r}" for key, value in claims.items())
    adopted = PAIRED.replace('shape_class="N >= 1"', listed)
    target = written(tmp_path, "adopted.py", adopted)
    [kernel], findings = probed(tmp_path, target, **settings)
    assert findings == []
    assert kernel.readings[-1].declared == "height 6 at most"
    assert kernel.readings[-1].outcome is Outcome.AS_DECLARED
    # A serial sum of the same declaration loses more than it admits.
    serial = adopted.replace("return pairs(x)", "return sum(x.unbind(-1))")
    target = written(tmp_path, "serial.py", serial)
    [kernel], findings = probed(tmp_path, target, **settings)
    last = kernel.readings[-1]
    assert last.found.startswith("serial, height 63")
    assert last.outcome is Outcome.DIFFERS
    assert last.finding in {f.id for f in findings}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--probe", "ordre"), "did you mean 'order'"),
        (("--dtype", "float99"), "no kernel here declares float99"),
        (("torch.matmull",), "torch_matmul"),
        (
            ("torch.nn.functional.layer_norm",),
            "calls it: kfuzz.contracts.platform.torch",
        ),
    ],
)
def test_what_cannot_be_obeyed_is_said(
    words: tuple[str, ...],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.chdir(tmp_path)
    target = written(tmp_path, "kernels.py", NARROW)
    assert main(["probe", target, "--device", "cpu", *words]) == 2
    assert said in capsys.readouterr().err
