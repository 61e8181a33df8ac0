"""The line of a finding, from a run and from the corpus."""

import json

import pytest

from tests.e2e.project import HEADER, WRONG, Project

TRITON = """
import triton
import triton.language as tl


@triton.jit
def doubling(x, y, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offs < n
    part = tl.load(x + offs, mask=inside, other=0.0)
    part = tl.where(part < 0, part, part)
    tl.store(y + offs, part, mask=inside)


@kernel(ops.relu)
def wrong(x):
    given = x.contiguous()
    y = torch.empty_like(given)
    if n := y.numel():
        doubling[(triton.cdiv(n, 64),)](given, y, n, BLOCK=64)
    return y
"""
FAULT = "    part = tl.where(part < 0, part, part)"


def test_a_run_and_the_corpus_name_the_line(project: Project) -> None:
    text = HEADER + TRITON
    project.write("kernels.py", text)
    words = ("--device", "interpret", "--max-findings", "1")
    run = project.run("kernels.py", *words, "--locate", cases=20)
    assert run.code == 1, run.err
    [finding] = run.findings("wrong")
    line = finding["line"]
    truth = text.splitlines().index(FAULT) + 1
    assert (line["file"], line["line"]) == ("kernels.py", truth), line
    assert "pass" in line["evidence"]
    [stored] = project.findings()
    assert stored["line"]["line"] == truth
    page = project.kfuzz("show", finding["id"])
    assert f"kernels.py:{truth} (" in page.stdout
    assert FAULT.strip() in page.stdout


@pytest.mark.slow
def test_it_is_located_later(project: Project) -> None:
    text = HEADER + TRITON
    project.write("kernels.py", text)
    project.write("other.py", HEADER + WRONG.replace("wrong", "plain"))
    words = ("--device", "interpret", "--max-findings", "1")
    assert project.run("kernels.py", *words, cases=20).code == 1
    assert project.run("other.py", *words, cases=60).code == 1
    before = {f["target"]["name"]: f for f in project.findings()}
    assert not any("line" in f for f in before.values())
    for name, source in (("wrong", FAULT), ("plain", "    if n & (n - 1):")):
        told = project.kfuzz("show", before[name]["id"], "--locate", "--format", "json")
        assert told.returncode == 0, told.stderr
        assert json.loads(told.stdout)["line"]["source"] == source


CUDA = """
from kfuzz import cuda_source

MODULE = cuda_source("__global__ void f() {}")
"""


@pytest.mark.slow
def test_of_cuda_sources_it_is_said_that_none_is_looked_for(project: Project) -> None:
    file = project.write("other.py", HEADER + CUDA + WRONG)
    assert project.run("other.py", "--max-findings", "1", cases=60).code == 1
    [stored] = project.findings()
    told = project.kfuzz("show", stored["id"], "--locate", "--format", "json")
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout)["line"] is None
    assert "no line: of kernels in CUDA C++ no line is looked for" in told.stderr
    before = file.read_text()
    told = project.kfuzz("repair", stored["id"], "--apply")
    assert told.returncode == 2, told.stdout
    assert "in CUDA C++" in told.stderr
    assert file.read_text() == before


@pytest.mark.slow
def test_a_patch_is_found_and_written_when_asked_for(project: Project) -> None:
    text = HEADER + TRITON
    file = project.write("kernels.py", text)
    words = ("--device", "interpret", "--max-findings", "1", "--no-locate")
    assert project.run("kernels.py", *words, cases=20).code == 1
    [stored] = project.findings()
    told = project.kfuzz("repair", stored["id"], "--max-time", "5s", "--format", "json")
    assert told.returncode == 0, told.stderr
    document = json.loads(told.stdout)
    assert document["applied"] is None
    assert file.read_text() == text
    [patch] = document["patches"]
    assert f"-{FAULT}\n" in patch["diff"]
    assert ", 0 findings, " in patch["statement"]
    [stored] = project.findings()
    assert stored["patches"] == document["patches"]
    told = project.kfuzz("repair", stored["id"], "--max-time", "5s", "--apply")
    assert told.returncode == 0, told.stderr
    assert file.read_text() != text
    assert "part = tl.where(part < 0, part, part)" not in file.read_text()
    assert project.run("kernels.py", *words, cases=60).code == 0
