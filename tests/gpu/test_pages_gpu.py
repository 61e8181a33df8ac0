"""Guard pages on a CUDA device: what touches them, through the whole of `kfuzz run`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kfuzz.core.recipe import Edge, Fill, TensorSpec
from kfuzz.execution.device.backends import backend_of
from kfuzz.execution.memory.allocations import GuardedAllocations
from kfuzz.execution.memory.fences import DEVICE_FENCE_BYTES as FENCE_BYTES
from kfuzz.execution.memory.fences import Pool
from kfuzz.execution.memory.fences import fenced_device_memory as fenced_memory
from kfuzz.execution.memory.placement import place
from kfuzz.execution.memory.poison import Poison
from kfuzz.execution.memory.slots import Arena
from tests.helpers.poisoned import is_poison
from tests.quality.guard_page_sweep import (
    DTYPES,
    IMAGES,
    LAYOUTS,
    MATRICES,
    OPERATORS,
    SIDES,
)

pytestmark = [pytest.mark.gpu, pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[2]
KERNELS = "tests/gpu/paged_kernels.py"
SECONDS = 150  # most end by their cases, in a few
# What the message says: verb, memory, side.
FAULTY = {
    "reads_one_past": ("out-of-bounds read", "of x", "1 to 4 elements past the end"),
    "reads_one_vector_past": ("out-of-bounds read", "of x", "elements past the end"),
    "reads_one_before": ("out-of-bounds read", "of x", "before the start"),
    "reads_expanded_as_whole": ("out-of-bounds read", "of x", "past the end"),
    "reads_own_past": ("out-of-bounds read", "of its own float32", "past the end"),
    "writes_own_past": ("out-of-bounds write", "to its own", "past the end"),
    "writes_one_past": ("out-of-bounds write", "to y", "past the end"),
    "writes_slack": ("out-of-bounds write", "to y", "gaps"),
}
CORRECT = ("twin_reads", "twin_writes", "twin_reads_slack")


def environment():
    path = filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), "OMP_NUM_THREADS": "1"}


def kernel_of(name, folder):
    """Run a kernel, and return what the run says of it and the end of what it told."""
    command = [
        sys.executable, "-m", "kfuzz", "run", f"{KERNELS}::{name}",
        "--device", "cuda", "--seed", "3", "--max-cases", "300",
        "--max-time", f"{SECONDS}s", "--max-findings", "1", "--format", "json",
        "--corpus", str(folder / name),
    ]  # fmt: skip
    run = subprocess.run(
        command, cwd=ROOT, env=environment(), text=True, capture_output=True,
        check=False, timeout=SECONDS + 60,
    )  # fmt: skip
    tail = run.stderr[-3000:]
    assert run.returncode in (0, 1), (
        f"exit code {run.returncode}\n{run.stdout[-2000:]}\n{tail}"
    )
    [found] = json.loads(run.stdout)["kernels"]
    return found, tail


@pytest.mark.parametrize("name", FAULTY)
def test_what_touches_memory_outside_is_found_with_its_argument(name, tmp_path):
    found, tail = kernel_of(name, tmp_path)
    seen = [(f["contract"], f["state"], f["message"]) for f in found["findings"]]
    assert seen, f"nothing found in {found['cases']} cases\n{tail}"
    contract, state, message = seen[0]
    assert (contract, state) == ("K-MEM-01", "confirmed"), (seen, tail)
    for part in FAULTY[name]:
        assert part in message, (seen, tail)


@pytest.mark.parametrize("name", CORRECT)
def test_correct_twins_are_not_charged(name, tmp_path):
    found, tail = kernel_of(name, tmp_path)
    assert found["findings"] == [], (found["findings"], tail)
    decided = found["contracts"]["K-MEM-01"]
    assert decided["verdict"] == "conforms", (decided, tail)
    assert found["cases"] >= 20, (found["cases"], tail)  # other tests run beside it
    assert "go unseen" not in tail


def test_the_doctor_tries_a_load_past_the_end():
    done = subprocess.run(
        [sys.executable, "-m", "kfuzz", "doctor"], cwd=ROOT, env=environment(),
        capture_output=True, text=True, timeout=80, check=False,
    )  # fmt: skip
    [line] = [
        line for line in done.stdout.splitlines() if "guard pages on cuda" in line
    ]
    assert line.startswith("ok"), done.stdout + done.stderr


PROBE = """
import sys, torch
from kfuzz.execution.memory.fences import fenced_memory
from kfuzz.execution.device.backends import fault_of
device = torch.device("cuda", 0)
made = fenced_memory(1, device)
memory = made.memory
memory.fill_(5)
assert int(memory.sum(dtype=torch.int64)) == 5 * memory.numel()
class At:
    def __init__(self, address):
        self.__cuda_array_interface__ = {
            "shape": (2,), "typestr": "|u1", "data": (address, False), "version": 3}
does, bytes_inside = sys.argv[1], int(sys.argv[2])
stop = memory.data_ptr() + memory.numel()
view = torch.as_tensor(At(stop - bytes_inside), device=device)
try:
    # By kernels: copies are checked by the driver before they are made.
    view + 1 if does == "read" else view.fill_(1)
except RuntimeError:
    pass
print(fault_of(device) or "none")
"""


@pytest.mark.parametrize(
    ("does", "inside", "fault"),
    [
        ("read", "1", "illegal_address"),
        ("write", "1", "illegal_address"),
        ("read", "2", "none"),
        ("write", "2", "none"),
    ],
)
def test_the_byte_behind_faults_and_the_bytes_inside_do_not(does, inside, fault):
    done = subprocess.run(
        [sys.executable, "-c", PROBE, does, inside], cwd=ROOT, env=environment(),
        capture_output=True, text=True, timeout=80, check=False,
    )  # fmt: skip
    # Memory that is still mapped when a context is lost, or not, is no error.
    assert (done.returncode, done.stdout.strip()) == (0, fault), done.stderr
    assert "Traceback" not in done.stderr


def test_torchs_operators_touch_no_page_beside_their_arguments():
    names = list(OPERATORS)
    groups = [names[first::5] for first in range(5)]
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.quality.guard_page_sweep", "cuda", *group],
            cwd=ROOT, env=environment(), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        for group in groups
    ]  # fmt: skip
    told = [process.communicate(timeout=80)[0].strip() for process in started]
    layouts = len(DTYPES) * len(LAYOUTS) * len(SIDES)
    for group, text in zip(groups, told, strict=True):
        shapes = len(MATRICES) * (len(group) - ("conv2d" in group))
        shapes += len(IMAGES) * ("conv2d" in group)
        assert text.splitlines()[-1] == str(shapes * layouts), (group, text)


def test_fences_can_be_made_and_their_memory_comes_back():
    # Counts what is free on the whole device: nothing may run beside it.
    device = torch.device("cuda", torch.cuda.current_device())
    assert backend_of(device).unfenced(device) == ""
    pool = Pool(device)
    torch.cuda.synchronize()
    before = torch.cuda.mem_get_info()[0]
    for readable in (False, True) * 8:
        made = fenced_memory(96 << 20, device, readable=readable)
        made.memory.fill_(1)
        del made
        pool.take(5, readable=readable).memory.fill_(2)
    held = before - torch.cuda.mem_get_info()[0]
    # The pool keeps one of each kind, with fences that can be read.
    assert held <= 2 * FENCE_BYTES + (16 << 20), f"{held / 2**20:.0f} MiB are held"
    del pool
    held = before - torch.cuda.mem_get_info()[0]
    assert held <= 4 << 20, f"{held / 2**20:.0f} MiB are held"


@pytest.mark.parametrize("side", ["start", "end"])
@pytest.mark.parametrize("readable", [False, True])
def test_arguments_and_allocations_at_an_edge_are_ordinary_tensors(side, readable):
    arena = Arena(torch.device("cuda", torch.cuda.current_device()))
    specs = {
        "x": TensorSpec((4, 6), ("a", "b"), "bfloat16", (9, 1), 2, Fill("randn")),
        "y": TensorSpec((8,), ("a",), "float32", fill=Fill("randn")),
    }
    values = {
        "x": torch.arange(24, dtype=torch.bfloat16, device="cuda").reshape(4, 6),
        "y": torch.arange(8.0, device="cuda"),
    }
    edge = Edge(side, readable=readable)
    for _ in range(2):
        placement = place(
            specs, values, device="cuda", alignment=16, poison=Poison.NAN,
            arena=arena, edge=edge,
        )  # fmt: skip
        for name, tensor in placement.tensors.items():
            assert torch.equal(tensor, values[name])
            assert tensor.untyped_storage().data_ptr() % 16 == 0
            assert torch.equal(torch.relu(tensor), values[name])
        assert placement.touches() == []
    mode = GuardedAllocations(arena.device, Poison.NAN, edge=edge, pool=arena.pool)
    with mode:
        made = torch.empty_like(values["y"])
        assert is_poison(made, Poison.NAN).all()
        assert torch.equal(made.copy_(values["y"]) * 2, values["y"] + values["y"])
    assert mode.touches() == []
    placement.tensors["y"][2] = 50
    assert [t.where for t in placement.touches()] == ["element"]
