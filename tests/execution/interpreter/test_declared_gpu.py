"""The GPU that files and wrappers meet in the interpreter."""

from pathlib import Path

import pytest
import torch
import triton

from kfuzz.execution.device import simulated as declared
from kfuzz.targets.own_code import imports_none


def test_what_asks_for_a_gpu_is_told_of_one_and_gets_the_hosts_memory() -> None:
    x = torch.ones(2, 3)
    before = torch.cuda.is_available(), torch.cuda.device_count()
    with declared.gpu():
        assert torch.cuda.is_available()
        assert x.is_cuda
        assert x.device == torch.device("cuda", torch.cuda.current_device())
        target = triton.runtime.driver.active.get_current_target()
        assert (target.backend, target.arch) == ("cuda", 90)
        made = [
            torch.zeros(2, 3, device="cuda"), torch.full((2, 3), 0.0, device=x.device),
            torch.tensor([[0.0] * 3] * 2, device=0), x.new_zeros(2, 3), x.cpu() - 1,
        ]  # fmt: skip
        assert x.to("cuda:0") is x
        assert x.cuda() is x
        assert x.to(x.device, torch.float16).dtype is torch.float16
        assert all((each.cuda() + x == 1).all() for each in made)
        assert x.cpu().data_ptr() != x.data_ptr()  # two memories
        with torch.cuda.device(x.device), torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda.synchronize()
    assert all(each.device.type == "cpu" for each in [x, *made])
    assert (torch.cuda.is_available(), torch.cuda.device_count()) == before


def test_it_is_one_and_the_same_and_the_fingerprint_tells() -> None:
    assert declared.described() == ()
    declared.meet(True)
    try:
        (told,) = declared.described()
    finally:
        declared.meet(False)
    with declared.gpu():
        properties = torch.cuda.get_device_properties(0)
        driver = triton.runtime.driver.active.utils.get_device_properties(0)
    assert properties.name in told
    assert f"{properties.multi_processor_count} processors" in told
    assert driver["multiprocessor_count"] == properties.multi_processor_count


@pytest.mark.slow
def test_what_torch_compiles_runs_on_the_host_that_there_is() -> None:
    with declared.gpu():

        @torch.compile(backend="eager")
        def doubled(x: torch.Tensor) -> torch.Tensor:
            return torch.full_like(x, 2.0, device=x.device) * x

        x = torch.ones(3)
        assert doubled(x).is_cuda
        assert doubled(x).sum() == 6
        assert torch.cuda.is_available()
    assert not doubled(x).is_cuda


def test_files_that_import_no_library_are_known(tmp_path: Path) -> None:
    texts = {
        "plain.py": "import torch, math\nimport kfuzz\n",
        "triton.py": "import triton\n",
        "library.py": "from fla.ops import gla\n",
        "local.py": "from . import kernels\n",
        "broken.py": "def\n",
    }
    found = {}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        found[name] = imports_none(tmp_path / name)
    assert found == {name: name == "plain.py" for name in texts}
    assert not imports_none(None)
