"""What every test shares: GPU tests are skipped where there is no GPU, and Triton
kernels called in the tests' own process are interpreted there."""

import os
from pathlib import Path

import pytest

pytest_plugins = ["tests.helpers.fixtures"]

# Triton reads this when a kernel is defined, so it is set before any test imports
# one. Asking torch for a GPU would cost every run the import.
if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")
    # Workers and their children fill the processors. More threads of torch's would wait
    # for one another there, and spin meanwhile, for two fifths of all their time.
    if "PYTEST_XDIST_WORKER" in os.environ:
        os.environ.setdefault("OMP_NUM_THREADS", "1")


# A run that is no test of proofs makes none: each starts two more processes.
os.environ.setdefault("KFUZZ_PROVE", "false")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if not on_gpu:
        return
    import torch  # seconds: only where a GPU test was collected

    if torch.cuda.is_available():
        return
    skip = pytest.mark.skip(reason="no CUDA device")
    for item in on_gpu:
        item.add_marker(skip)
