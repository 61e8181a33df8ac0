"""Hugging Face kernels: one call for a test marked `kernels_ci`.

Facts: huggingface.co/docs/kernels, "Kernel tests" and `kernels.get_kernel`.
"""

import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from kfuzz.cli.settings import drawn_seed
from kfuzz.contracts.binding import BoundKernel, kernel
from kfuzz.contracts.operator import Operator
from kfuzz.core.budget import Budget
from kfuzz.core.errors import HarnessError, UsageError
from kfuzz.core.event import KernelFinished, Notice
from kfuzz.core.finding import Target
from kfuzz.core.verdict import ATTRIBUTED
from kfuzz.engine.config import RunConfig
from kfuzz.engine.search.campaign import run_kernels
from kfuzz.features.examining import operator_named
from kfuzz.report.finding_view import finding_lines, view
from kfuzz.report.tables import Shown
from kfuzz.targets.load import LoadedKernel, Source

SECONDS: Final = 40.0
"""Of a search: a kernel's tests together are to take less than 60 s."""


def hub_kernel(
    repo_id: str, function: str, operator: str | Operator, /, *, version: int | None,
    get_kernel: Callable[..., Any] | None = None, **claims: Any,
) -> BoundKernel:  # fmt: skip
    """Return a function of a kernel of the Hub, bound to an operator.

        relu = hub_kernel("kernels-community/activation", "relu", "relu", version=1)

    Args:
        repo_id: as `kernels.get_kernel` takes it; its code is run in this process.
        function: its name in the kernel's module.
        operator: an operator or its name.
        version: as `get_kernel` takes it.
        get_kernel: in place of that of the package `kernels`: with
            `trust_remote_code=True` where it does not trust the organisation.
        claims: what it declares, as for `kfuzz.kernel`.

    Raises:
        UsageError: if the package is missing, or the kernel has no such function.
        BindingError: if it does not fit the operator.
    """
    if get_kernel is None:
        try:
            import kernels
        except ImportError:
            fix = "pip install kernels"
            raise UsageError("the package kernels is missing", fix=fix) from None
        get_kernel = kernels.get_kernel
    module = get_kernel(repo_id, version=version)
    found = getattr(module, function, None)
    if not callable(found):
        raise UsageError(f"it has no function {function!r}", where=repo_id)
    return _bound(found, operator, f"{repo_id}.{function}".replace("/", "."), claims)


def check(
    function: "Callable[..., Any] | BoundKernel",
    operator: str | Operator | None = None,
    /,
    *,
    max_time: float = SECONDS,
    seed: int | None = None,
    device: str = "auto",
    **claims: Any,
) -> None:
    """Search a kernel for a violation, in this process, within a time.

        @pytest.mark.kernels_ci
        def test_relu():
            check(activation.relu, "relu")

    Args:
        function: the kernel, or one that is bound.
        operator: what it computes, or its name.
        max_time: seconds.
        seed: determines all random choices; a fresh one, which is printed, by default.
        device: "auto", "cpu", "cuda", "cuda:i" or "interpret".
        claims: what it declares, as for `kfuzz.kernel`.

    Raises:
        AssertionError: if it violates a contract, with the finding.
        HarnessError: if no value was compared.
        UsageError: if no operator is given.
        BindingError: if the kernel does not fit the operator.
        BackendError: if the device is not there.
    """
    if isinstance(function, BoundKernel):
        made = function
    elif operator is None:
        raise UsageError("no operator", fix='check(my_relu, "relu")')
    else:
        made = _bound(function, operator, "", claims)
    seed = drawn_seed(seed)
    with tempfile.TemporaryDirectory() as scratch:
        config = RunConfig(
            (), Path.cwd(), Path(scratch), seed=seed, device=device, isolate="none",
            budget=Budget(max_time, max_findings=1),
        )  # fmt: skip
        loaded = LoadedKernel(made, Target(file="", name=made.name), Source())
        told: list[str] = []
        for event in run_kernels(config, [loaded], stop=threading.Event()):
            match event:
                case Notice():
                    told.append(event.message)
                case KernelFinished():
                    for finding in event.findings:
                        if finding.state in ATTRIBUTED:
                            shown = view(Shown(finding.target.name, finding, ""), "")
                            lines = [*finding_lines(shown), f"seed {seed}"]
                            raise AssertionError("\n".join(lines))
                    if event.uncompared:
                        what = "; ".join([event.uncompared, *told])
                        raise HarnessError(
                            f"no value was compared: {what}", where=made.name
                        )
                case _:
                    pass


def _bound(
    function: Callable[..., Any],
    operator: str | Operator,
    name: str,
    claims: dict[str, Any],
) -> BoundKernel:
    if isinstance(operator, str):
        operator = operator_named(operator, "kernels_ci")
    told = {**claims, "name": name} if name else claims
    return kernel(operator, **told)(function)
