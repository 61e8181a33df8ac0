"""`kfuzz diff` and `bisect` through the command: what differs, and since when."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.project import HEADER, MENDED, WRONG, Project, strict

PLAIN = """
import torch

def gate(x):
    return x * torch.sigmoid(x)

def gate_by_exp(x):
    return x / (1 + torch.exp(-x))

def scaled(x, eps=1e-6):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)

def scaled_by_more(x, eps=1e-6):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 10 * eps)

def key(x):
    return (x.nan_to_num(0, 0, 0) * 0).long() + 2**53

def next_key(x):
    return key(x) + 1
"""
PAIRS = """
import torch

def both(x):
    return x.exp(), x.sum(-1)

def both_wrong(x):
    return x.exp(), x.sum(-1) * (1 if x.shape[-1] < 5 else 1.001)

def half(x):
    if x.dtype is not torch.float16:
        raise TypeError("float16 alone")
    return x * 2

def half_by_sum(x):
    return half(x) / 2 + x

def half_of_short(x):
    return half(x) * (1 if x.numel() < 5 else 2)

def none(x):
    raise ValueError("nothing is taken")
"""
ROWS = """
import torch
import triton
import triton.language as tl


@triton.jit
def _sums(x, y, n, B: tl.constexpr, FORM: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, B)
    v = tl.load(x + row * n + at, mask=at < n - (FORM == 2), other=0.0).to(tl.float32)
    if FORM == 1:
        s = tl.sum(tl.where(at % 2 == 0, v, 0.0), 0)
        s += tl.sum(tl.where(at % 2 == 1, v, 0.0), 0)
    else:
        s = tl.sum(v, 0)
    tl.store(y + row, s)


def _summed(x, form):
    x, n = x.contiguous(), x.shape[-1] if x.dim() else 1
    y = torch.empty(x.shape[:-1], dtype=x.dtype, device=x.device)
    if y.numel():
        _sums[(y.numel(),)](x, y, n, triton.next_power_of_2(max(n, 1)), form)
    return y


def added(x):
    return _summed(x, 0)


def added_in_turn(x):
    return _summed(x, 1)


def added_without_last(x):
    return _summed(x, 2)
"""
WORDS = ("--max-cases", "60", "--format", "json")


def _diff(project: Project, old: str, new: str, *words: str) -> tuple[int, dict]:  # type: ignore[type-arg]
    done = project.kfuzz("diff", old, new, *WORDS, *words)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, strict(done.stdout)


@pytest.mark.slow
def test_forms_are_equal_within_bounds_and_not_in_bits(project: Project) -> None:
    project.write("plain.py", PLAIN)
    two = "plain.py::gate", "plain.py::gate_by_exp"
    code, made = _diff(project, *two)
    assert (code, made["rule"], made["difference"]) == (0, "reference", None)
    assert made["counts"]["within"] > 5
    assert _diff(project, *two, "--bits")[1]["difference"]["kind"] == "bits"
    code, made = _diff(project, "plain.py::gate", "plain.py::gate")
    assert (code, made["counts"]) == (0, {"equal": 60})
    code, made = _diff(project, "plain.py::scaled", "plain.py::scaled_by_more")
    assert (code, made["difference"]["kind"]) == (1, "value")
    assert made["difference"]["case"]["tensors"]["x"]["shape"] == [1]
    assert _diff(project, "plain.py::key", "plain.py::next_key")[0] == 1


@pytest.mark.slow
def test_a_sum_may_be_reordered_and_lose_no_term(project: Project) -> None:
    project.write("rows.py", ROWS)
    code, made = _diff(project, "rows.py::added", "rows.py::added_in_turn")
    assert (code, made["rule"]) == (0, "open")
    code, made = _diff(project, "rows.py::added", "rows.py::added_without_last")
    assert (code, made["difference"]["old"], made["difference"]["new"]) == (1, "1", "0")


@pytest.mark.slow
def test_releases_of_one_module_name_are_told_apart(project: Project) -> None:
    for version, body in (
        (1, "torch.relu(x)"),
        (2, "torch.relu(x) + (x.numel() == 3)"),
    ):
        home = f"releases/rectified-{version}.0"
        project.write(f"{home}/rectified-{version}.0.dist-info/METADATA",
            f"Metadata-Version: 2.1\nName: rectified\nVersion: {version}.0\n",
        )  # fmt: skip
        text = f"import torch\n\ndef relu(x):\n    return {body}\n"
        project.write(f"{home}/rectified.py", text)
    old, new = (f"rectified=={v}.0::rectified:relu" for v in (1, 2))
    there = "--environment", "releases"
    assert _diff(project, old, old, *there)[1]["counts"] == {"equal": 60}
    code, made = _diff(project, old, new, *there, "--operator", "relu")
    assert (code, made["rule"]) == (1, "named")
    assert made["difference"]["outside"] == "new"
    done = project.kfuzz("diff", old, new.replace("2.0", "3.0"), *there)
    assert done.returncode == 2
    assert "there: 1.0, 2.0" in done.stderr


@pytest.mark.slow
def test_the_first_revision_that_fails_is_found(found: Project) -> None:
    def git(*words: str) -> str:
        who = {
            f"GIT_{a}_{b}": "n"
            for a in ("AUTHOR", "COMMITTER")
            for b in ("NAME", "EMAIL")
        }
        done = subprocess.run(
            ["git", *words], cwd=found.folder, env={**os.environ, **who},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout.strip()

    git("init", "-q")
    revisions = []
    for text in (MENDED, MENDED + "# more\n", WRONG, WRONG + "raise OSError\n", WRONG):
        Path(found.folder, "kernels.py").write_text(
            HEADER + text + f"# {len(revisions)}\n"
        )
        git("add", "kernels.py", "pyproject.toml")
        git("commit", "-qm", f"number {len(revisions)}")
        revisions.append(git("rev-parse", "HEAD"))
    [document] = found.findings()
    name = str(document["id"])
    done = found.kfuzz("bisect", name, "--good", "HEAD~4")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(revisions[2])
    assert len(git("worktree", "list").splitlines()) == 1
    done = found.kfuzz("bisect", name, "--good", "HEAD~2")
    assert (done.returncode, "exits with 1 there" in done.stderr) == (2, True)
    assert found.kfuzz("diff", "git:HEAD:kernels.py::wrong", "kernels.py::wrong",
        "--max-cases", "20").returncode == 0  # fmt: skip
    code = found.kfuzz("diff", f"git:{revisions[0]}:kernels.py::wrong",
        "kernels.py::wrong", "--max-cases", "60").returncode  # fmt: skip
    assert code == 1
    git("checkout", "-q", revisions[3])
    assert found.kfuzz("replay").returncode == 125


@pytest.mark.slow
def test_findings_are_replayed_in_environments(found: Project) -> None:
    done = found.kfuzz("replay", "--environment", sys.prefix, "--format", "json")
    assert done.returncode == 1
    [row] = strict(done.stdout)["environments"]
    assert (row["results"][0]["outcome"], row["exit"]) == ("FAILS", 1)
    version = row["has"]["torch"]
    words = "--environment", sys.prefix, "--versions"
    assert found.kfuzz("replay", *words, "torch==0.1..0.9").returncode == 4
    done = found.kfuzz("replay", *words, f"torch=={version}")
    assert (done.returncode, version in done.stdout) == (1, True)
    found.write("empty/bin/python", "#!/bin/sh\necho no kfuzz >&2\nexit 1\n").chmod(
        0o755
    )
    done = found.kfuzz("replay", "--environment", "empty")
    assert (done.returncode, "no kfuzz" in done.stdout) == (125, True)


@pytest.mark.slow
def test_each_result_of_a_tuple_is_compared(project: Project) -> None:
    project.write("pairs.py", PAIRS)
    done = project.kfuzz("diff", "pairs.py::both", "pairs.py::both_wrong")
    assert done.returncode == 1, done.stderr
    assert "differ: value in y1" in done.stdout


@pytest.mark.slow
def test_what_takes_no_float64_is_compared_in_its_own_formats(project: Project) -> None:
    project.write("pairs.py", PAIRS)
    words = ("diff", "pairs.py::half", "--max-cases", "20")
    done = project.kfuzz(*words, "pairs.py::half_by_sum")
    assert done.returncode == 0, done.stderr
    assert "equal in bits over" in done.stdout
    assert "not compared: the kernel raises TypeError: float16 alone" in done.stdout
    done = project.kfuzz(*words, "pairs.py::half_of_short")
    assert (done.returncode, "differ: value in y" in done.stdout) == (1, True)


@pytest.mark.slow
def test_why_no_case_could_be_compared_is_printed(project: Project) -> None:
    project.write("pairs.py", PAIRS)
    words = ("diff", "pairs.py::none", "pairs.py::none")
    done = project.kfuzz(*words, "--max-cases", "3")
    assert done.returncode == 4
    assert "no value is promised for these numbers. give --operator" in done.stderr
    assert "time was up" in project.kfuzz(*words, "--max-time", "0.01s").stderr
