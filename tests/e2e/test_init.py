"""`kfuzz init`, from the command line, and the action for CI."""

import json
import os
import subprocess

import jsonschema
import pytest
import yaml

from tests.e2e.project import ROOT, Project

pytest.importorskip("kfuzz.features")

LIBRARY = """
import torch
import triton
import triton.language as tl


@triton.jit
def _softmax(x, y, n, B: tl.constexpr):
    at = tl.program_id(0) * n + tl.arange(0, B)
    inside = tl.arange(0, B) < n
    v = tl.load(x + at, mask=inside, other=-float("inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, 0))
    tl.store(y + at, e / tl.sum(e, 0), mask=inside)


class RowSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        y, n = torch.empty_like(x), x.shape[-1]
        if x.numel():
            _softmax[(x.numel() // n,)](x, y, n, triton.next_power_of_2(n))
        return y


def my_softmax(scores):
    return RowSoftmax.apply(scores)


@triton.jit
def _odd(x, y, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 3 - 1, mask=at < n)


def odd(x):
    y = torch.empty_like(x)
    _odd[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), 64)
    return y


def no_kernel(x):
    return x
"""

CALAMITIES = """
import ctypes
import os
import sys


def a_aborts(x):
    os.abort()
    return my_softmax(x)


def a_leaves(x):
    os._exit(0)
    return my_softmax(x)


def a_quits(x):
    sys.exit(0)
    return my_softmax(x)


def a_writes(x):
    ctypes.memset(x.data_ptr() - (1 << 40), 1, 1)
    return my_softmax(x)


"""


@pytest.mark.slow
def test_a_package_is_bound_checked_and_set_up(project: Project) -> None:
    project.write("library/__init__.py", "")
    project.write("library/folder/kernels.py", LIBRARY)  # without an __init__
    project.write("library/folder/tests/test_it.py", "import os\nos._exit(7)\n")
    project.write("library/odd.py", "raise type('Skipped', (BaseException,), {})\n")
    done = project.kfuzz("init", "library")
    assert done.returncode == 0, done.stderr
    assert "library.folder.kernels.my_softmax: ops.softmax" in done.stdout
    assert "check my_softmax: ok in" in done.stdout
    assert (
        "kfuzz_library.py: 2 kernels, launched by 2 functions: 1 bound and checked "
        "(1 ok, 0 with violations to look at), 1 for a person to name"
    ) in done.stdout
    text = (project.folder / "kfuzz_library.py").read_text()
    assert "def my_softmax(x):\n    return library.folder.kernels.my_softmax(x)" in text
    assert "# def odd(x):" in text
    settings = (project.folder / "pyproject.toml").read_text()
    assert settings == '[tool.kfuzz]\ntargets = ["kfuzz_library.py"]\n'
    for name in ("kfuzz.yml", "kfuzz-nightly.yml"):
        flow = (project.folder / ".github" / "workflows" / name).read_text()
        assert "pip install kfuzz pytest" in flow
        assert yaml.safe_load(flow)["jobs"]
    again = project.kfuzz("init", "library")
    assert again.returncode == 2
    assert "kfuzz_library.py: is there already" in again.stderr
    run = project.kfuzz("run", "--max-cases", "5", "--seed", "1")
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.slow
def test_a_function_that_ends_the_process_costs_itself_alone(project: Project) -> None:
    project.write("library.py", CALAMITIES + LIBRARY)
    done = project.kfuzz("init", "library")
    assert done.returncode == 0, done.stderr
    for name in ("aborts", "leaves", "writes"):
        assert f"library.a_{name}: ended the process\n" in done.stdout
    assert "library.a_quits: no operator agrees\n" in done.stdout
    assert "check my_softmax: ok in" in done.stdout
    assert "by 6 functions: 1 bound and checked (1 ok" in done.stdout
    text = (project.folder / "kfuzz_library.py").read_text()
    assert "# library.a_aborts\n#     on x: ?\n# TODO: name the operator." in text


@pytest.mark.slow
def test_a_package_that_ends_its_import_is_named(project: Project) -> None:
    project.write("library.py", "import os\nos.abort()\n")
    done = project.kfuzz("init", "library")
    assert done.returncode == 2
    assert "library: its import ends with exit code -6" in done.stderr


TESTS = """
import torch
import torch.nn.functional as F


def rounded(x):
    return x.exp()


def test_them():
    x = torch.linspace(-3, 3, 24, dtype=torch.bfloat16).reshape(4, 6)
    expected = F.softmax(x.float(), dim=-1).to(x.dtype)
    torch.testing.assert_close(
        torch.softmax(x, -1), expected, rtol=1e-2, atol=1e-2
    )
    assert torch.allclose(rounded(x), torch.exp(x), rtol=1e-4, atol=0)
    torch.testing.assert_close(x * 3, x + x + x, rtol=1e-1, atol=1e-2)
    if len(x) > 4:
        assert torch.allclose(x, x)
"""


@pytest.mark.slow
def test_tolerances_are_listed_and_replaced(project: Project) -> None:
    project.write("tests/test_it.py", TESTS)
    listed = project.kfuzz("init", "--tolerances", "tests", "--write")
    assert listed.returncode == 0, listed.stderr
    rows = [r for r in listed.stdout.splitlines() if r.startswith("tests/test_it.py")]
    places = [row.split()[0].rpartition(":")[2] for row in rows]
    assert places == ["13", "16", "17", "19"]
    assert "softmax" in rows[0]
    assert "x the bound" in rows[0]
    assert "exp; below half a spacing of bfloat16 at" in rows[1]
    assert "no operator recognised" in rows[2]
    assert "was not run" in rows[3]
    assert "2 replaced by kfuzz.assert_conforms" in listed.stdout
    text = (project.folder / "tests/test_it.py").read_text()
    assert 'kfuzz.assert_conforms(torch.softmax(x, -1), "softmax", x, dim=-1)' in text
    assert 'kfuzz.assert_conforms(rounded(x), "exp", x)' in text
    assert "torch.testing.assert_close(x * 3" in text
    again = project.python("-m", "pytest", "-q", "tests")
    assert "1 passed" in again.stdout


LOSSES = '''"""Doc.

import kfuzz
"""
import torch


def rounded(x):
    return torch.exp(x)


def test_losses():
    x = torch.linspace(-3, 3, 24)
    assert not torch.allclose(torch.exp(x), x + 1, atol=1e-3)
    ok = torch.allclose(rounded(x), torch.exp(x), atol=1e-3)
    assert torch.allclose(rounded(x), torch.exp(x), atol=1e-3), "why"
    y = torch.exp(x)
    torch.testing.assert_close(
        y, torch.exp(x), atol=1e-3, rtol=0
    )


for import_below in ():
    pass
import math
'''


@pytest.mark.slow
def test_only_statements_are_replaced_and_nothing_else_changes(
    project: Project,
) -> None:
    project.write("tests/test_it.py", LOSSES)
    place = project.folder / "tests" / "test_crlf.py"
    place.write_bytes(LOSSES.replace("\n", "\r\n").encode())
    project.write("tests/latin.py", "x = 1\n")
    (project.folder / "tests" / "latin.py").write_bytes(b"x = '\xe9'\n")
    done = project.kfuzz("init", "--tolerances", "tests", "--write")
    assert done.returncode == 0, done.stderr
    assert "2 replaced by kfuzz.assert_conforms" in done.stdout
    assert "tests/latin.py" in done.stdout
    wanted = LOSSES.replace("import torch\n", "import torch\nimport kfuzz\n")
    last = LOSSES[LOSSES.index("torch.testing") : LOSSES.index("\n\n\nfor")]
    wanted = wanted.replace(last, 'kfuzz.assert_conforms(y, "exp", x)')
    assert (project.folder / "tests/test_it.py").read_text() == wanted
    assert place.read_bytes() == wanted.replace("\n", "\r\n").encode()


def test_a_skill_is_installed_once(project: Project) -> None:
    done = project.kfuzz("init", "--agent", "--into", "skills")
    assert done.returncode == 0, done.stderr
    text = (project.folder / "skills/kfuzz/SKILL.md").read_text()
    head = yaml.safe_load(text.split("---")[1])
    assert head["name"] == "kfuzz"
    assert head["description"]
    again = project.kfuzz("init", "--agent", "--into", "skills")
    assert again.returncode == 2
    assert "skills/kfuzz/SKILL.md: is there already" in again.stderr


ACTION = yaml.safe_load((ROOT / ".github/actions/kfuzz/action.yml").read_text())


def test_the_action_is_one_that_runners_take() -> None:
    schema = json.loads((ROOT / "tests/data/github-action.schema.json").read_text())
    jsonschema.validate(ACTION, schema)


@pytest.mark.parametrize(
    ("changed", "chosen"),
    [
        ("kernels/softmax.py", ["bind_softmax.py"]),
        ("bind_norm.py", ["bind_norm.py::rms"]),
        ("bound/more.py", ["bound"]),
        ("README.md", []),
    ],
)
def test_the_action_searches_what_a_pull_request_changes(
    project: Project, changed: str, chosen: list[str]
) -> None:
    project.write("bind_softmax.py", "from kernels.softmax import row_softmax")
    project.write("bind_norm.py", "import kernels.norm")
    project.write("bound/more.py", "import kernels.other")

    def git(*words: str) -> str:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words]
        done = subprocess.run(
            command, cwd=project.folder, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    git("init", "-q")
    git("remote", "add", "origin", ".")
    git("add", "-A")
    git("commit", "-qm", "before")
    before = git("rev-parse", "HEAD")
    project.write(changed, "# changed\n")
    git("add", "-A")
    git("commit", "-qm", "after")
    output = project.folder / "output"
    environment = {
        "TARGETS": "bind_softmax.py\nbind_norm.py::rms\nbound\n",
        "BASE": before,
        "GITHUB_OUTPUT": str(output),
    }
    script = ACTION["runs"]["steps"][0]["run"]
    subprocess.run(
        ["bash", "-c", script], cwd=project.folder, check=True,
        env=os.environ | environment,
    )  # fmt: skip
    assert output.read_text().splitlines() == ["targets<<KFUZZ", *chosen, "KFUZZ"]
