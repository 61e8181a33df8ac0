"""What is made of a call that does not return."""

import pytest

from kfuzz.core.verdict import Kind
from kfuzz.engine.workers.runner import death_report, hang_report, is_hang
from kfuzz.execution.processes.wire import ChildDied

STACK = 'Thread 0x1 (most recent call first):\n  File "{}", line 7 in {}\n'


@pytest.mark.parametrize(
    ("path", "function"),
    [
        ("/opt/lib/triton/compiler/compiler.py", "compile"),
        ("/opt/lib/triton/backends/nvidia/compiler.py", "make_cubin"),
        ("/opt/lib/torch/utils/cpp_extension.py", "_run_ninja_build"),
    ],
)
def test_a_call_that_still_compiles_is_no_hang(path: str, function: str) -> None:
    report = hang_report(20.0, STACK.format(path, function))
    assert not is_hang(report)
    assert report.failure is None
    assert report.unsupported == "compiling for it takes over 20 s"


@pytest.mark.parametrize(
    ("path", "function"),
    [
        ("/home/user/kernels.py", "softmax"),
        ("/opt/lib/triton/runtime/jit.py", "run"),
        ("/opt/lib/torch/cuda/__init__.py", "synchronize"),
    ],
)
def test_any_other_is_one(path: str, function: str) -> None:
    stack = STACK.format(path, function)
    report = hang_report(20.0, stack)
    assert is_hang(report)
    assert report.failure is not None
    assert (report.failure.kind, report.failure.trace) == (Kind.HANG, stack)


def test_one_that_closed_its_connection_did_not_run_out_of_memory() -> None:
    died = ChildDied(1, None, "SIGKILL", "", disconnected=True)
    report = death_report(died)
    assert report.error is None
    assert report.failure is not None
    assert report.failure.kind is Kind.CRASH
    assert "file descriptors that are not its own" in report.failure.message
