"""Torch's own kernels on a GPU compute as declared: only listed defects are found."""

import os
import threading
from pathlib import Path

import pytest
import torch

from kfuzz.contracts.platform import torch_cuda
from kfuzz.contracts.platform.catalogue import kernels
from kfuzz.contracts.platform.defects import DEFECTS
from kfuzz.core.budget import Budget
from kfuzz.core.event import KernelFinished
from kfuzz.engine.config import RunConfig
from kfuzz.engine.search.campaign import run
from tests.helpers.listed import is_listed

pytestmark = [pytest.mark.gpu, pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[2]
CASES = int(os.environ.get("KFUZZ_CASES", "60"))
VERSION = str(torch.__version__)


@pytest.mark.parametrize("name", [k.name for k in kernels("cuda", VERSION)])
def test_what_is_found_is_listed(name: str, tmp_path: Path) -> None:
    asked = RunConfig(
        targets=(f"{torch_cuda.__name__}:{name}",),
        root=ROOT,
        corpus=tmp_path,
        seed=5,
        budget=Budget(max_time=None, max_cases=CASES),
        device="cuda",
    )
    events = list(run(asked, stop=threading.Event()))
    (finished,) = (e for e in events if isinstance(e, KernelFinished))
    # Once reduced: until then a finding may be charged to another class.
    assert [
        (finding.signature.contract, finding.failure.message)
        for finding in finished.findings
        if not is_listed(name, finding.signature.contract, DEFECTS, "cuda", VERSION)
    ] == []
    assert finished.cases == CASES
