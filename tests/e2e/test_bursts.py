"""Bursts: more inputs in the same time, the same findings, and the run says so."""

import pytest

from tests.e2e.project import HEADER, Project

# In a few inputs in a thousand, and never at a size alone.
RARE = """
@kernel(ops.relu, dtypes="float32", layouts="contiguous")
def rare(x):
    y = torch.relu(x)
    if x.numel() > 2 and 1.9 < float(x.flatten()[1]) < 2.1:
        y = y + 1
    return y
"""
# Ends its process where two elements say so.
CRASHES = """
import os

@kernel(ops.relu, dtypes="float32", layouts="contiguous")
def crashes(x):
    if x.numel() > 2 and 1.8 < float(x.flatten()[1]) < 2.2:
        os.abort()
    return torch.relu(x)
"""


@pytest.mark.slow
def test_what_few_values_show_is_found_as_a_case_of_its_own(project: Project) -> None:
    project.write("kernels.py", HEADER + RARE)
    run = project.run("kernels.py", "--max-findings", "1", cases=4000)
    assert run.code == 1, run.err
    [kernel] = run.document["kernels"]
    [finding] = kernel["findings"]
    assert (finding["contract"], finding["state"]) == ("K-VAL-01", "confirmed")
    assert finding["input_elements"] == 3


@pytest.mark.slow
def test_a_burst_that_ends_its_process_is_followed_to_its_member(
    project: Project,
) -> None:
    project.write("kernels.py", HEADER + CRASHES)
    run = project.run("kernels.py", "--max-findings", "1", cases=2500)
    [kernel] = run.document["kernels"]
    [finding] = kernel["findings"]
    assert (finding["contract"], finding["kind"]) == ("K-LIV-01", "crash")
    assert finding["state"] == "confirmed"
