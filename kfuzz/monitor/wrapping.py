"""What stands in the place of a monitored function: the gate, then the function."""

import copy
import functools
from collections.abc import Callable
from typing import Any

import torch

from kfuzz.contracts.binding import BoundKernel
from kfuzz.monitor.compiled import is_compiling, traced
from kfuzz.monitor.monitored import Monitor


def guarded(function: Callable[..., Any], monitor: Monitor) -> Callable[..., Any]:
    """Return a function with the monitor's gate before it."""
    gate = monitor.gate

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return traced(monitor, function, wrapper, args, kwargs)
        if not gate.active:
            return function(*args, **kwargs)
        number, why = gate.look(args, kwargs)
        if why is not None:
            return monitor.sampled(function, args, kwargs, number, why)
        if not monitor.has_more_gates:
            return function(*args, **kwargs)
        return monitor.passed(function, args, kwargs, number)

    wrapper.monitor = monitor  # type: ignore[attr-defined]
    return wrapper


class MonitoredKernel(BoundKernel):
    """A bound kernel whose calls are monitored; searches call what it binds.

    Attributes:
        monitor: looks at its calls.
    """

    def __init__(self, bound: BoundKernel, wrapper: Callable[..., Any]) -> None:
        vars(self).update(vars(bound))
        self._call = wrapper
        self.monitor: Monitor = wrapper.monitor  # type: ignore[attr-defined]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the implementation, and look at the call."""
        return self._call(*args, **kwargs)


class Forward:
    """The `forward` of one module, monitored; copies with it, and is pickled without.

    Attributes:
        module: whose it is.
        monitor: looks at its calls; shared by copies of the module, None in one that
            was pickled.
    """

    def __init__(self, module: torch.nn.Module, monitor: Monitor) -> None:
        self.module = module
        self.monitor: Monitor | None = monitor
        self._guard()

    def _guard(self) -> None:
        function = type(self.module).forward
        if self.monitor is not None:
            function = guarded(function, self.monitor)
        self._function = function
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module's own `forward`, and look at the call."""
        return self._function(self.module, *args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Forward":
        made: Forward = object.__new__(Forward)
        memo[id(self)] = made
        made.module = copy.deepcopy(self.module, memo)
        made.monitor = self.monitor
        made._guard()
        return made

    def __getstate__(self) -> dict[str, Any]:
        return {"module": self.module}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.module, self.monitor = state["module"], None
        self._guard()
