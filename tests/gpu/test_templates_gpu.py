"""Files that ask the GPU while they are imported are imported once all the same."""

from pathlib import Path

import pytest

from tests.e2e.project import HEADER, Project
from tests.e2e.test_templates import COUNTED, TWO_WRONG, imports

pytestmark = pytest.mark.gpu

# What libraries ask at their top.
ASKING = """
import triton
PROCESSORS = torch.cuda.get_device_properties(0).multi_processor_count
NAME, CAPABILITY = torch.cuda.get_device_name(), torch.cuda.get_device_capability()
TARGET = triton.runtime.driver.active.get_current_target()
SHARED = triton.runtime.driver.active.utils.get_device_properties(0)["max_shared_mem"]
assert SHARED > 1000
assert torch.cuda.is_available() and PROCESSORS > 1 and TARGET.backend == "cuda"
"""
CONTEXT = "ON_DEVICE = torch.zeros(4, device='cuda')\n"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    folder = tmp_path / "project"
    folder.mkdir()
    return Project(folder)


def test_what_asks_for_facts_can_be_forked(project: Project) -> None:
    project.write("kernels.py", COUNTED + ASKING + TWO_WRONG)
    run = project.run("kernels.py", "--device", "cuda:0")
    assert run.code == 1, run.err
    assert run.kernel("wrong")["findings"]
    assert "by itself" not in run.err
    assert imports(project) <= 3


def test_what_makes_a_context_is_imported_by_each_child(project: Project) -> None:
    project.write("kernels.py", HEADER + CONTEXT + TWO_WRONG)
    run = project.run("kernels.py", "--device", "cuda:0")
    assert run.code == 1, run.err
    assert run.kernel("wrong")["findings"]
    assert "it uses the device" in run.err
