"""Fingerprints: what of an environment bears on a result, and what has changed."""

import pytest
import torch

from kfuzz.core.finding import Fingerprint, host_fingerprint
from kfuzz.execution.calls import torch_state
from kfuzz.execution.device.backends import CPU, GPU


def test_only_what_differs_is_named_flag_by_flag() -> None:
    driver = "580, CUDA 13.0"
    then = Fingerprint(torch="2.11", driver=driver, flags=("tf32=True", "a=1"))
    now = Fingerprint(torch="2.13", driver=driver, flags=("a=1", "b=x=y"))
    assert then.differences(now) == [
        "torch: 2.11 -> 2.13",
        "tf32: True -> none",
        "b: none -> x=y",
    ]
    assert then.differences(then) == []


def test_what_was_set_in_this_process_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = host_fingerprint(flags=CPU.flags())
    assert any(flag.startswith("cpu_capability=") for flag in before.flags)
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE\n")
    old = torch.are_deterministic_algorithms_enabled()  # a test may have left it on
    torch.use_deterministic_algorithms(not old)
    try:
        after = host_fingerprint(flags=CPU.flags())
    finally:
        torch.use_deterministic_algorithms(old)
    assert sorted(before.differences(after)) == [
        "MKL_CBWR: none -> COMPATIBLE",
        f"deterministic_algorithms: {old} -> {not old}",
    ]


def test_the_settings_of_a_gpu_are_read_without_one() -> None:
    before = GPU.flags()
    names = {flag.partition("=")[0] for flag in before}
    assert {"float32_matmul_precision", "cudnn.deterministic"} <= names
    state = torch_state.state()
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        after = GPU.flags()
    finally:
        torch_state.restore(state)
    assert set(after) - set(before) == {
        "float32_matmul_precision=high",
        "matmul.allow_tf32=True",
    }
    assert CPU.versions("cpu") == ""
