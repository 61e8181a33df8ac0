"""Torch's own kernels on a GPU compute as declared: only listed defects are found."""

import os
from pathlib import Path

import pytest
import torch

from kfuzz.contracts.platform import torch_cuda
from kfuzz.contracts.platform.catalogue import kernels
from kfuzz.contracts.platform.table import DEFECTS
from kfuzz.core.event import KernelFinished
from tests.helpers.listed import is_listed
from tests.helpers.searches import searched

pytestmark = [pytest.mark.gpu, pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[2]
CASES = int(os.environ.get("KFUZZ_CASES", "60"))
VERSION = str(torch.__version__)


@pytest.mark.parametrize("name", [k.name for k in kernels("cuda", VERSION)])
def test_what_is_found_is_listed(name: str, tmp_path: Path) -> None:
    target = f"{torch_cuda.__name__}:{name}"
    events = searched(
        target, root=ROOT, corpus=tmp_path, seed=5, max_cases=CASES, device="cuda"
    )
    (finished,) = (e for e in events if isinstance(e, KernelFinished))
    # Once reduced: until then a finding may be charged to another class.
    assert [
        (finding.signature.contract, finding.failure.message)
        for finding in finished.findings
        if not is_listed(name, finding.signature.contract, DEFECTS, "cuda", VERSION)
    ] == []
    assert finished.cases == CASES
