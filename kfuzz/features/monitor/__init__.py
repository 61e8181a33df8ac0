"""Contracts on live calls: `@kfuzz.monitor(...)`, its start, stop and statistics.

The package itself is what decorates: `kfuzz.monitor("softmax", rate=0.01)`. torch is
imported with the first use.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

    from kfuzz.features.monitor.monitored import Contract
    from kfuzz.features.monitor.runtime import Counts
    from kfuzz.features.monitor.subjects import Arguments
    from kfuzz.features.monitor.subjects import Violation as Violation

F = TypeVar("F")

__all__ = [
    "Violation", "flush", "monitor", "running", "start", "statistics", "stop",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "Violation":
        return import_module(f"{__name__}.subjects").Violation
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def monitor(
    contract: "Contract | None" = None,
    *,
    rate: float = 0.01,
    signatures: bool = True,
    on_violation: "Callable[[Violation], None] | None" = None,
    corpus: str | Path | None = None,
    keep: str = "full",
    detectors: "Sequence[Callable[[Sequence[Tensor]], bool]]" = (),
    arguments: "Arguments | None" = None,
    results: Callable[[Any], Any] | None = None,
    outputs: tuple[str, ...] = ("y",),
    autocast: bool = False,
    name: str | None = None,
    seed: int | None = None,
    **claims: Any,
) -> Callable[[F], F]:
    """Check live calls of a function against a contract.

    For functions, methods, `forward` and `backward` of an autograd.Function, functions
    that launch Triton kernels, bound kernels, and instances of `nn.Module`. The monitor
    copies a sampled call, before and after, and judges it in another thread. The
    function computes, returns and raises as before. It never waits for a check.

    The guarantee covers the sampled calls: the first call of each signature (shapes,
    strides, dtypes, devices, alignment), and the given share of all calls at random,
    except those that were dropped because the buffer was full. Nothing is known about
    the other calls.

    Args:
        contract: an operator or its name ("softmax", "softmax.backward"); a bound
            kernel, with which findings are replayed; or a function in plain torch that
            takes the same arguments. Omit it for a bound kernel.
        rate: share of the calls that are sampled at random, 0 to 1.
        signatures: whether the first call of each signature is sampled.
        on_violation: called with each `Violation`, in the checking thread.
        corpus: folder that stores violating inputs as findings for `kfuzz shrink` and
            `kfuzz replay`, at most three of each kind.
        keep: how much of the data a violation holds: "full"; "summary", the numbers at
            the worst element, the extremes and the scalars; or "statistics", with no
            element and no scalar. Findings need "full".
        detectors: functions of a call's tensors on the CPU, in order; a call is sampled
            that one returns True for. They see every call before it is made, in the
            caller's thread.
        arguments: a function of the function's arguments that returns the contract's,
            by name or in order, where the signatures differ.
        results: a function of the function's result that returns the contract's.
        outputs: names of a reference's results.
        autocast: whether calls under torch.autocast are judged like others: for
            functions whose arithmetic does not depend on it.
        name: the function's name in findings and statistics; its own by default.
        seed: of the sampling; None for a different one in each process.
        claims: declarations, as for `kfuzz.kernel`. For a reference `inplace` names a
            parameter that the function overwrites with its result, and `out` names
            parameters of the function that receive results.

    Returns:
        A decorator. The decorated function has an attribute `monitor`: `rate`, which
        may be set at any time, `statistics()` and `kernel`.

    Raises:
        UsageError: if an argument is impossible, or the decorated object has no call
            to check (a coroutine function, a generator, a class).
        BindingError: if the signatures do not fit, or a claim is unknown.
    """
    from kfuzz.features.monitor.monitored import Options, decorator, store_of
    from kfuzz.features.monitor.subjects import Keep

    store = store_of(keep, corpus)
    options = Options(
        contract, claims, rate, signatures, arguments, outputs, name, seed,
        on_violation, store, Keep(keep), tuple(detectors), results, autocast,
    )  # fmt: skip
    frame = sys._getframe(1)
    while frame.f_globals is globals() and frame.f_back is not None:
        frame = frame.f_back  # called as a module
    return decorator(options, frame)


def start(
    *, ring_bytes: int = 64 << 20, pending: int = 256, exit_seconds: float = 5.0
) -> None:
    """Start to check calls, with these settings.

    If nobody calls this, the first monitored call starts with the defaults.

    Args:
        ring_bytes: size of the buffer for copies of arguments and results, in bytes;
            CPU and GPU have a buffer each.
        pending: number of calls that may wait for their check.
        exit_seconds: how long the end of the process may wait for checks.

    Raises:
        UsageError: if a number is not positive.
    """
    from kfuzz.features.monitor.runtime import Settings, runtime

    runtime.start(Settings(ring_bytes, pending, exit_seconds))


def stop(timeout: float | None = None) -> bool:
    """Check the calls that wait, and no further ones.

    Args:
        timeout: seconds; None for no limit.

    Returns:
        Whether all checks were done in time.
    """
    from kfuzz.features.monitor.runtime import runtime

    return runtime.stop(timeout)


def flush(timeout: float | None = None) -> bool:
    """Wait for the checks of all calls so far.

    Args:
        timeout: seconds; None for no limit.

    Returns:
        Whether all checks were done in time.
    """
    from kfuzz.features.monitor.runtime import runtime

    return runtime.flush(timeout)


def statistics() -> "tuple[Counts, ...]":
    """Return the counts of calls of every monitored function, by name."""
    from kfuzz.features.monitor.runtime import runtime

    return runtime.statistics()


@contextmanager
def running(**settings: Any) -> Iterator[None]:
    """Monitor calls within the block; check them before it ends; see `start`."""
    start(**settings)
    try:
        yield
    finally:
        stop()


class _Decorates(ModuleType):
    """A module that is called as its function `monitor`."""

    def __call__(self, contract: Any = None, **given: Any) -> Any:
        return monitor(contract, **given)


sys.modules[__name__].__class__ = _Decorates
