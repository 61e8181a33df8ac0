"""From a serve function to replies: the same in a child and in process."""

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Protocol, runtime_checkable

from kfuzz.core.errors import HarnessError, class_name, message_of, trace_text
from kfuzz.execution.processes.faults import ChildRaised
from kfuzz.execution.processes.wire import Channel, Handler, Message


@runtime_checkable
class Attendant(Protocol):
    """What serves a connection by itself instead of answering through a handler."""

    def __call__(self, message: Message) -> Message:
        """Answer nothing; it is there so that it passes for a handler."""

    def attend(self, channel: Channel) -> None:
        """Answer requests until the connection closes."""


Serve = Callable[[], Handler]

# Both are for people; an exception whose text is a printed tensor is cut.
MESSAGE_CHARACTERS = 4_000
TRACEBACK_CHARACTERS = 32_000


def resolve(serve: str) -> Serve:
    """Return the function that "package.module:function" names.

    Raises:
        HarnessError: the text has no such form, or there is no such function.
        ImportError: the module cannot be imported.
    """
    module_name, _, name = serve.partition(":")
    if not module_name or not name:
        raise HarnessError(f"{serve!r} is not of the form module:function")
    found = getattr(import_module(module_name), name, None)
    if not callable(found):
        raise HarnessError(f"{module_name} has no function {name!r}")
    return found  # type: ignore[no-any-return]


def load_modules(names: Iterable[str]) -> None:
    """Import modules, and call functions named "module:function".

    Raises:
        HarnessError, ImportError: as `resolve`.
    """
    with uncollected():
        for name in names:
            if ":" in name:
                resolve(name)()
            else:
                import_module(name)


@contextmanager
def uncollected() -> Iterator[None]:
    """Collect no garbage while modules are imported: hardly anything of it is garbage.

    Measured, torch, triton and Liger-Kernel on an AMD EPYC: 6.1 s with, 5.1 s without.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def named(serve: str) -> Handler:
    """Return what the function gives that "package.module:function" names.

    Raises:
        HarnessError, ImportError: as `resolve`.
    """
    return resolve(serve)()


def start(serve: Serve) -> Handler:
    """Return the handler, or one that repeats the error that `serve` raised."""
    try:
        return serve()
    except BaseException as error:  # `sys.exit` in a user's file included
        told = _describe(error)

        def failed(message: Message) -> Message:
            raise _Told(told)

        return failed


def answer(
    handler: Handler, message: Message, *, interruptible: bool = False
) -> Message:
    """Return the envelope that tells how the handler took `message`.

    Args:
        handler: called with `message`.
        message: the request.
        interruptible: let KeyboardInterrupt through, which is the user's.
    """
    try:
        return {"reply": handler(message)}
    except BaseException as error:  # `sys.exit` in a kernel is an answer too
        if interruptible and isinstance(error, KeyboardInterrupt):
            raise
        return refusal(error)


def refusal(error: BaseException) -> Message:
    """Return the envelope for an exception."""
    return {"raised": error.told if isinstance(error, _Told) else _describe(error)}


def unwrap(envelope: Message, pid: int) -> Message:
    """Return the reply in an envelope.

    Raises:
        ChildRaised: it tells of an exception.
        HarnessError: it is no envelope.
    """
    match envelope:
        case {"reply": dict(reply)}:
            return reply
        case {
            "raised": {
                "type": str(type_name),
                "message": str(message),
                "traceback": str(trace),
            }
        }:
            raise ChildRaised(pid, type_name, message, trace)
        case _:
            raise HarnessError(
                "the handler returned no dictionary", where=f"child {pid}"
            )


class _Told(Exception):
    """An exception described earlier."""

    def __init__(self, told: Message) -> None:
        self.told = told
        super().__init__()


def _describe(error: BaseException) -> Message:
    return {
        "type": class_name(error),
        "message": message_of(error)[:MESSAGE_CHARACTERS],
        "traceback": trace_text(error)[-TRACEBACK_CHARACTERS:],
    }
