"""`kfuzz_around`: a search that begins with a test's own call."""

import importlib

import pytest

from tests.cli.test_pytest_plugin import LOAD

# pytester unloads what its runs import, and torch bears no second import.
for module in ("torch._dynamo", "kfuzz.features.observe.writing"):
    importlib.import_module(module)

pytest_plugins = ["pytester"]

KERNELS = """
import torch


def right(x, temperature=1.0, dim=-1):
    return torch.softmax(x / temperature, dim)


def wrong_tail(x, dim=-1):
    y = torch.softmax(x, dim).clone()
    if x.dim() and x.numel() and x.shape[-1] % 4:
        y[..., -1] = 0
    return y
"""


def tried(pytester: pytest.Pytester, call: str) -> pytest.RunResult:
    pytester.makepyfile(kernels=KERNELS)
    (pytester.path / "pyproject.toml").touch()
    pytester.makepyfile(
        f"""
        import torch
        import kernels

        def test_it(kfuzz_around):
            torch.manual_seed(1)
            x = torch.randn(4, 8)
            y = {call}
            assert y.shape == (4, 8)
        """
    )
    return pytester.runpytest_inprocess(
        *LOAD, "-p", "no:xdist", "-p", "no:cacheprovider"
    )


@pytest.mark.slow
def test_a_fault_beyond_the_test_s_own_input_fails_it(
    pytester: pytest.Pytester,
) -> None:
    call = "kfuzz_around(kernels.wrong_tail, x, search={'max_cases': 60})"
    done = tried(pytester, call)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*FAIL wrong_tail: wrong value in y*", "*C-CMP-03*"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("kfuzz_around(kernels.right, x, operator='sofmax')", "no operator 'sofmax'*"),
        ("kfuzz_around(kernels.right, x, operator='relu')", "*not agree with relu*"),
        ("kfuzz_around(torch.nonzero, x)", "*kfuzz_around(nonzero)*"),
        ("kfuzz_around(kernels.right, x, search={'cases': 3})", "*option 'cases'*"),
        ("kfuzz_around(lambda x: x.sin() * x.cumsum(1), x)", "*with no operator*"),
    ],
)
def test_what_cannot_be_searched_is_said(
    pytester: pytest.Pytester, call: str, text: str
) -> None:
    done = tried(pytester, call)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines([f"*{text}"])
