"""Ways of binding a kernel, and what its declaration makes of the search."""

import pytest

from tests.e2e.project import HEADER, Project

WITHIN_BOUNDS = (
    HEADER
    + """
@kernel(ops.relu, inplace=("x",))
def in_place(x):
    x.clamp_(min=0)


@kernel(ops.relu, inplace=("x",))
def not_in_place(x):
    torch.relu(x)


@kernel(ops.softmax, shape_class="N % 16 == 0 and N >= 16", layouts="contiguous")
def multiples_of_16(x, dim=-1):
    if x.shape[dim] % 16 or not x.is_contiguous():
        return torch.zeros_like(x)
    return torch.softmax(x.float(), dim).to(x.dtype)


@kernel(ops.softmax, dims={-1})
def last_dim(x, dim=-1):
    if dim not in (-1, x.dim() - 1):
        return torch.zeros_like(x)
    return torch.softmax(x.float(), -1).to(x.dtype)


@kernel(ops.softmax)
def without_dim(x):
    return torch.softmax(x.float(), -1).to(x.dtype)


@kernel(ops.layer_norm)
def keyword_only(x, weight, bias, *, eps=1e-5, tile=64):
    y = torch.nn.functional.layer_norm(
        x.double(), x.shape[-1:], weight.double(), bias.double(), eps
    )
    return y.to(x.dtype)


as_a_call = kernel(ops.amax, name="as_a_call")(lambda x, dim=-1: torch.amax(x, dim))
"""
)
SAID = (
    HEADER
    + """
@kernel(ops.relu)
def contiguous_only(x):
    if not x.is_contiguous():
        raise ValueError("x must be contiguous")
    return torch.relu(x)


@kernel(ops.relu)
def narrow_only(x):
    if x.dim() and x.shape[-1] > 2:
        raise ValueError("too wide")
    return torch.relu(x)


@kernel(ops.relu, dtypes=("float32",))
def declared_dtype(x):
    if x.dtype != torch.float32:
        raise TypeError("float32 only")
    return torch.relu(x)
"""
)


@pytest.mark.slow
def test_declared_kernels_are_held_to_their_declarations(project: Project) -> None:
    project.write("kernels.py", WITHIN_BOUNDS)
    run = project.run("kernels.py", cases=50)
    assert run.code == 1
    found = {k["kernel"].split("::")[1]: k["findings"] for k in run.document["kernels"]}
    wrong = found.pop("not_in_place")
    assert {len(findings) for findings in found.values()} == {0}
    assert len(found) == 6
    # The one that computes aside: x keeps its negative element.
    assert {(f["input_elements"], f["nonzero_elements"]) for f in wrong} == {(1, 1)}
    for kernel in run.document["kernels"]:
        assert kernel["cases"] >= 50  # what is suspected of a later call is judged too
        assert kernel["contracts"]["K-VAL-01"]["decided"] > 0
        assert kernel["refusals"] == []


@pytest.mark.slow
def test_raising_violates_in_the_core_domain_and_refuses_beyond_it(
    project: Project,
) -> None:
    project.write("kernels.py", SAID)
    run = project.run("kernels.py", cases=60)
    assert run.code == 1
    refuses = run.kernel("contiguous_only")
    assert refuses["findings"] == []
    assert {r["reason"] for r in refuses["refusals"]} == {"non-contiguous input"}
    [refusal] = refuses["refusals"]
    assert refusal["remedy"] == 'layouts="contiguous"'
    assert refusal["cases"] > 0
    [raises] = run.findings("narrow_only")
    assert (raises["contract"], raises["kind"]) == ("K-LIV-01", "raises")
    assert "ValueError" in raises["bucket"]
    assert raises["input_elements"] == 3
    declared = run.kernel("declared_dtype")
    assert declared["findings"] == declared["refusals"] == []
