"""`kfuzz judge` on a GPU: pairs for any device, those for GPUs, and a real size."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kfuzz.core.verdict import ATTRIBUTED, Verdict
from kfuzz.execution.processes.child import Zygote
from kfuzz.features.judge.sandbox.sandbox import zygote_for
from tests.features.judge.judging import ROOT, judged
from tests.features.judge.test_pairs import CHEATS, HONEST, PAIRS, PARTS, cheat

pytestmark = pytest.mark.gpu

DEVICE = "cuda:0"
OWN = PAIRS.with_name("pairs_gpu")
# What gives each of them away.
ON_GPU = {
    "side_stream": {"C-ORD-03", "K-MEM-02"},
    "tf32": {"C-PRC-01", "C-CMP-03"},  # at 512 terms the bound holds it too
    "triton_relu": {"K-VAL-01", "C-CMP-03", "C-EXC-01"},
    "triton_softmax": {"C-CMP-03"},
}
# A thread and the host's copy are one another's there: either class names it.
ELSEWHERE = {"thread": {"C-ORD-03", "K-VAL-01", "K-MEM-02"}}


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    with zygote_for(DEVICE, output=lambda piece: None) as zygote:
        yield zygote


def tell(text: str) -> None:
    """Say what a run came to: pytest shows it with a failure, or with -s."""
    sys.stdout.write(f"{text}\n")


def test_every_pair_is_expected_somewhere() -> None:
    assert {p.stem for p in OWN.glob("*/*.py")} - PARTS == set(ON_GPU)


@pytest.mark.parametrize("name", [*ON_GPU, *CHEATS])
def test_a_cheat_is_falsified(name: str, zygote: Zygote, tmp_path: Path) -> None:
    files = cheat(name, OWN if name in ON_GPU else PAIRS)
    made = judged(*files, zygote, tmp_path, device=DEVICE)
    tell(f"{name}: {made.elapsed_s:.1f} s, {made.reason}, {made.coverage}")
    assert made.verdict is Verdict.VIOLATES, made
    [finding] = [f for f in made.findings if f.state in ATTRIBUTED]
    expected = ON_GPU.get(name) or CHEATS[name] | ELSEWHERE.get(name, set())
    assert finding.signature.contract in expected, finding.failure.message


@pytest.mark.parametrize("name", [*ON_GPU, *HONEST])
def test_an_honest_one_conforms(name: str, zygote: Zygote, tmp_path: Path) -> None:
    pair = (OWN if name in ON_GPU else PAIRS) / name
    files = pair / "reference.py", pair / "honest.py"
    made = judged(*files, zygote, tmp_path, device=DEVICE)
    tell(f"{name}: {made.elapsed_s:.1f} s, {made.reason}, {made.coverage}")
    assert made.verdict is Verdict.CONFORMS, (made.reason, made.findings, made.notices)
    assert made.coverage.benchmarked
    assert made.coverage.elsewhere
    if name.startswith("triton"):
        assert any(name.removeprefix("triton_") in kernel for kernel in made.launched)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one CUDA device at most")
def test_a_kernel_on_another_gpu_finds_it_current(tmp_path: Path) -> None:
    files = OWN / "triton_relu" / "reference.py", OWN / "triton_relu" / "honest.py"
    with zygote_for("cuda:1", output=lambda piece: None) as zygote:
        made = judged(*files, zygote, tmp_path, device="cuda:1")
    assert made.verdict is Verdict.CONFORMS, (made.reason, made.findings, made.notices)


def test_the_command_line_judges_a_real_size(tmp_path: Path) -> None:
    pair = OWN / "triton_relu"
    command = [
        sys.executable, "-m", "kfuzz", "judge", str(pair / "reference.py"),
        str(pair / "honest.py"), "--format", "json", "--device", DEVICE,
        "--corpus", str(tmp_path),
    ]  # fmt: skip
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, capture_output=True, text=True, env=env, cwd=ROOT, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)
    coverage = document["coverage"]
    tell(f"{document['elapsed_s']} s, {coverage}, {document['launched']}")
    assert document["verdict"] == "conforms"
    assert coverage["benchmarked"] >= 3
    assert coverage["elsewhere"]
    assert any("relu_kernel" in name for name in document["launched"])
