"""A limit of a kernel is one line and no finding; what looks like one is a finding."""

from typing import Any

import pytest

from tests.e2e.project import HEADER, Project

ABOVE = """
@kernel(ops.softmax{claims})
def kernel_under_test(x, dim):
    n = x.shape[dim]
    if {wrong}:
        raise RuntimeError(f"n = {{n}} exceeds the blocksize 200")
    return torch.softmax(x, dim)
"""
OFFSETS = """
from kfuzz.contracts.witnesses.classes.reach import relu_offsets_overflow

# A kernel of Triton's in which row * stride is a product of 32 bits.
overflows = relu_offsets_overflow.function


@kernel(ops.relu{claims})
def kernel_under_test(x):
    return overflows(x){result}
"""
WIDER = """
@kernel(ops.log_softmax{claims})
def kernel_under_test(x, dim):
    y = torch.log_softmax(x.float(), dim)
    return {result}
"""


def device_of(text: str) -> str:
    return "interpret" if "offsets" in text else "cpu"


def searched(
    project: Project, text: str, cases: int = 300
) -> tuple[int, dict[str, Any]]:
    """Search a kernel; return the exit code and the kernel's part of the JSON."""
    project.write("kernels.py", HEADER + text)
    run = project.run("kernels.py", "--device", device_of(text), cases=cases)
    return run.code, run.kernel("kernel_under_test")


def explained(project: Project) -> str:
    [finding] = project.findings()
    return "\n".join(finding["explanation"]["lines"])


def only_limit(project: Project, text: str, cases: int = 300) -> dict[str, Any]:
    """Check that a run shows one limit and no finding, and return it."""
    code, kernel = searched(project, text, cases)
    assert kernel["findings"] == project.findings() == []
    assert code == 0
    verdicts = {tally["verdict"] for tally in kernel["contracts"].values()}
    assert "violates" not in verdicts
    [limit] = [r for r in kernel["refusals"] if r["remedy"]]
    given = ["--max-cases", str(cases), "--seed", "1", "--device", device_of(text)]
    shown = project.kfuzz("run", "kernels.py", *given).stdout
    [line] = [line for line in shown.splitlines() if limit["reason"] in line]
    assert f"to make it explicit, declare {limit['remedy']}" in line
    return dict(limit)


@pytest.mark.slow
def test_rows_above_a_size_are_a_limit(project: Project) -> None:
    text = ABOVE.format(claims=', layouts="contiguous", dims=-1', wrong="n > 200")
    limit = only_limit(project, text)
    assert limit["reason"] == "N above 200"
    assert limit["remedy"] == 'shape_class="N <= 200"'
    assert limit["example"].endswith("exceeds the blocksize 200")


def test_rows_that_a_shape_class_admits_are_a_violation(project: Project) -> None:
    claims = ', layouts="contiguous", dims=-1, shape_class="N <= 4096"'
    code, kernel = searched(project, ABOVE.format(claims=claims, wrong="n > 200"))
    assert code == 1
    [finding] = kernel["findings"]
    assert finding["contract"] == "K-LIV-01"
    assert "fails from 201 elements in a row on, passes at 200" in explained(project)
    assert not [r for r in kernel["refusals"] if "above" in r["reason"]]


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param("True", marks=pytest.mark.slow),
        pytest.param("n == 77 or x.shape[0] == 3", marks=pytest.mark.slow),
        "n > 16 and bool((x > 3).any())",
        "100 <= n <= 140",
    ],
)
def test_a_fault_that_raises_is_a_violation(project: Project, wrong: str) -> None:
    claims = ', layouts="contiguous", dims=-1'
    code, kernel = searched(project, ABOVE.format(claims=claims, wrong=wrong))
    assert code == 1
    [finding] = kernel["findings"]
    assert (finding["contract"], finding["kind"]) == ("K-LIV-01", "raises")
    assert not [r for r in kernel["refusals"] if "shape_class" in r["remedy"]]


@pytest.mark.slow
def test_values_that_are_wrong_above_a_size_are_a_violation(project: Project) -> None:
    text = """
@kernel(ops.relu, ranks=1, layouts="contiguous", nonfinite="undefined")
def kernel_under_test(x):
    y = torch.relu(x)
    if x.shape[0] > 200:
        y[200:] = 0
    return y
"""
    code, kernel = searched(project, text)
    assert code == 1
    [finding] = kernel["findings"]
    assert finding["kind"] == "value"
    assert "fails from 201 elements in a row on, passes at 200" in explained(project)


@pytest.mark.slow
def test_offsets_that_overflow_are_a_limit(project: Project) -> None:
    text = OFFSETS.format(claims="", result="")
    limit = only_limit(project, text)
    assert limit["reason"].startswith("offsets overflow 32 bits beyond 2^31 elements")
    assert "reach.py:" in limit["reason"]
    assert 'offsets="int64" makes it a contract' in limit["remedy"]


@pytest.mark.slow
def test_offsets_that_overflow_break_declared_64_bits(project: Project) -> None:
    claims = ', offsets="int64"'
    text = OFFSETS.format(claims=claims, result="")
    code, kernel = searched(project, text)
    assert code == 1
    [finding] = kernel["findings"]
    assert finding["contract"] == "K-MEM-01"
    assert "32-bit offset overflow in x" in explained(project)


@pytest.mark.slow
def test_offsets_that_are_declared_to_be_short_need_no_line(project: Project) -> None:
    claims = ', offsets="int32"'
    code, kernel = searched(project, OFFSETS.format(claims=claims, result=""))
    assert code == 0
    assert not [r for r in kernel["refusals"] if "offsets" in r["remedy"]]


@pytest.mark.slow
def test_wrong_values_are_found_beside_offsets_that_overflow(project: Project) -> None:
    code, kernel = searched(project, OFFSETS.format(claims="", result=" * 1.5"))
    assert code == 1
    assert "value" in {finding["kind"] for finding in kernel["findings"]}


@pytest.mark.slow
def test_a_wider_result_is_a_limit(project: Project) -> None:
    limit = only_limit(project, WIDER.format(claims="", result="y"), 100)
    assert limit["remedy"].startswith('results={"y": "float32"} of its operator')


@pytest.mark.slow
def test_a_declared_wider_result_needs_no_line(project: Project) -> None:
    text = """
import dataclasses

wide = dataclasses.replace(ops.log_softmax, results={"y": "float32"})
"""
    text += WIDER.format(claims="", result="y").replace("ops.log_softmax", "wide")
    code, kernel = searched(project, text)
    assert (code, kernel["refusals"]) == (0, [])
    assert kernel["contracts"]["K-MET-01"]["verdict"] == "conforms"
    text = text.replace("return y", "return y.to(x.dtype)")
    code, kernel = searched(project, text)
    assert code == 1
    assert kernel["findings"][0]["kind"] == "wrong_dtype"


@pytest.mark.slow
def test_a_wrong_value_in_a_wider_type_is_a_violation(project: Project) -> None:
    text = WIDER.format(claims="", result="y * 1.5")
    code, kernel = searched(project, text)
    assert code == 1
    assert kernel["findings"][0]["kind"] in ("value", "nan_unexpected")


@pytest.mark.parametrize(
    "result",
    [
        pytest.param("y.half()", marks=pytest.mark.slow),
        pytest.param("y.bfloat16()", marks=pytest.mark.slow),
        "y.long()",
    ],
)
def test_another_type_is_a_violation(project: Project, result: str) -> None:
    code, kernel = searched(project, WIDER.format(claims="", result=result))
    assert code == 1
    assert "wrong_dtype" in {finding["kind"] for finding in kernel["findings"]}
