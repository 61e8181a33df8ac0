"""`replay --script`: one file that needs torch and the kernel's own file alone."""

import pytest

from tests.e2e.project import HEADER, Project

# Each way of failing: the kernel, and what to replace to mend it.
BROKEN = {
    "value": (
        "softmax", "x",
        "    y = torch.softmax(x.double(), -1)\n"
        "    tail = x.shape[-1] & (x.shape[-1] - 1)\n"
        "    return (y * 2 if tail else y).to(x.dtype)\n",
        ("y * 2", "y * 1"),
    ),
    "nan_missing": (
        "relu", "x",
        "    return torch.where(x.isnan(), 0 * torch.ones_like(x), torch.relu(x))\n",
        ("0 *", "float('nan') *"),
    ),
    "unwritten": (
        "softmax", "x",
        "    y = torch.empty(x.shape, dtype=x.dtype)\n"
        "    y[..., :16] = torch.softmax(x.double(), -1)[..., :16]\n    return y\n",
        (":16", ":"),
    ),
    "input_modified": (
        "relu", "x", "    return x.clamp_(min=0).clone()\n", ("clamp_", "clamp"),
    ),
    "wrong_dtype": (
        "relu", "x", "    return torch.relu(x).float()\n", (".float()", ""),
    ),
    "wrong_shape": (
        "amax", "x, dim", "    return torch.amax(x, dim, keepdim=True)\n",
        (", keepdim=True", ""),
    ),
    "raises": (
        "relu", "x",
        "    if x.numel() > 2:\n        raise ValueError('no')\n"
        "    return torch.relu(x)\n",
        ("> 2", "< 0"),
    ),
    "crash": (
        "relu", "x",
        "    if x.numel() > 2:\n        import os\n        os.abort()\n"
        "    return torch.relu(x)\n",
        ("> 2", "< 0"),
    ),
}  # fmt: skip


# The others take the same way.
USUAL = ("value",)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=() if kind in USUAL else pytest.mark.slow)
        for kind in BROKEN
    ],
)
def test_a_script_fails_until_the_kernel_is_mended(kind: str, project: Project) -> None:
    operator, parameters, body, (bad, good) = BROKEN[kind]
    head = f"\n@kernel(ops.{operator})\ndef broken({parameters}):\n"
    kernels = project.write("kernels.py", HEADER + head + body)
    run = project.run("kernels.py", "--max-findings", "1")
    [finding] = run.findings("broken")
    assert finding["kind"] == kind
    done = project.kfuzz("replay", finding["id"], "--script", "repro.py")
    assert done.returncode == 0
    text = (project.folder / "repro.py").read_text()
    assert "import kfuzz" not in text
    assert "from kfuzz" not in text
    failing = project.python("repro.py")
    assert failing.returncode == (-6 if kind == "crash" else 1), failing.stderr
    kernels.write_text(kernels.read_text().replace(bad, good))
    passing = project.python("repro.py")
    # Of memory that torch's own switch does not fill it cannot say that all is well.
    ended = (0, 2) if kind == "unwritten" else (0,)
    assert passing.returncode in ended, passing.stdout + passing.stderr
