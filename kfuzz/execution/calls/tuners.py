"""Tuners that are none of Triton's, by what a binding names in `tuners=`.

Lists of configurations hold the case's alone during a call, and what tuners cache is
empty: the configuration follows from the case.
"""

from collections.abc import Callable, Sequence
from typing import Any

from kfuzz.execution.calls.tuning import declined
from kfuzz.execution.interpreter.watch import current


def held(call: Callable[..., Any], tuners: Sequence[Any]) -> Callable[..., Any]:
    """Return a kernel's call in which its tuners have the case's configuration.

    One that the compiler or the device refuses is passed over for the next.

    Args:
        call: the call.
        tuners: as `BoundKernel.tuners`.
    """
    if not tuners:
        return call

    def called(*args: Any, **named: Any) -> Any:
        kept = [each.copy() for each in tuners]
        lists = [each for each in kept if isinstance(each, list)]
        most = max(map(len, lists), default=0)
        for turn in range(max(most, 1)):
            ran = []
            for own, every in zip(tuners, kept, strict=True):
                own.clear()
                if isinstance(own, list) and every:
                    own.append(every[(current().tuned + turn) % len(every)])
                    ran.append(str(own[0]))
            try:
                returned = call(*args, **named)
            except Exception as error:
                if turn + 1 >= most or not declined(error):
                    raise
            else:
                if most > 1:
                    current().config, current().configs = ", ".join(ran), most
                return returned
            finally:
                for own, every in zip(tuners, kept, strict=True):
                    own.clear()
                    own.extend(every) if isinstance(own, list) else own.update(every)
        raise AssertionError("the last configuration returned or raised")

    return called
