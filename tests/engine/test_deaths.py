"""What is made of a call that does not return."""

import pytest

from kfuzz.core.verdict import Kind
from kfuzz.engine.workers.runner import death_report, hang_report, is_hang
from kfuzz.execution.processes.wire import ChildDied

STACK = 'Thread 0x1 (most recent call first):\n  File "{}", line 7 in {}\n'


@pytest.mark.parametrize(
    ("path", "function", "compiles"),
    [
        ("/opt/lib/triton/compiler/compiler.py", "compile", True),
        ("/opt/lib/triton/backends/nvidia/compiler.py", "make_cubin", True),
        ("/opt/lib/torch/utils/cpp_extension.py", "_run_ninja_build", True),
        ("/home/user/kernels.py", "softmax", False),
        ("/opt/lib/triton/runtime/jit.py", "run", False),
        ("/opt/lib/torch/cuda/__init__.py", "synchronize", False),
    ],
)
def test_a_call_that_still_compiles_is_no_hang_and_any_other_is_one(
    path: str, function: str, compiles: bool
) -> None:
    report = hang_report(20.0, STACK.format(path, function))
    assert is_hang(report) is not compiles
    if report.failure is None:
        assert report.unsupported == "compiling for it takes over 20 s"
    else:
        assert report.failure.kind is Kind.HANG
        assert report.failure.trace == STACK.format(path, function)


def test_one_that_closed_its_connection_did_not_run_out_of_memory() -> None:
    died = ChildDied(1, None, "SIGKILL", "", disconnected=True)
    report = death_report(died)
    assert report.error is None
    assert report.failure is not None
    assert report.failure.kind is Kind.CRASH
    assert "file descriptors that are not its own" in report.failure.message
