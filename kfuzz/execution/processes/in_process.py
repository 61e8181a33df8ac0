"""A child's interface without a process, for kernels that have no other home."""

import os

from kfuzz.core.errors import HarnessError
from kfuzz.execution.processes import serving
from kfuzz.execution.processes.closing import Closing
from kfuzz.execution.processes.wire import Message, decode, encode


class InProcess(Closing):
    """Calls the handler here: no time-out can be kept and a crash ends kfuzz.

    Messages and replies go through JSON all the same, so that what works here
    works in a child. Interrupting (Ctrl-C) passes through.

    Args:
        serve: "module:function", or the function itself.
    """

    def __init__(self, serve: str | serving.Serve) -> None:
        function = serving.resolve(serve) if isinstance(serve, str) else serve
        self.pid = os.getpid()
        self._handler = serving.start(function)
        self._sent: Message | None = None

    @property
    def output_tail(self) -> str:
        """Always empty: what the handler prints goes where kfuzz prints."""
        return ""

    def send(self, message: Message) -> None:
        """Keep `message` for `wait`.

        Raises:
            HarnessError: the reply to an earlier one was not waited for, or the
                message is not JSON.
        """
        if self._sent is not None:
            raise HarnessError("a request is already under way", where="in process")
        self._sent = decode(encode(message))

    def wait(self, timeout: float | None = None) -> Message:
        """Call the handler and return its reply; `timeout` is not kept.

        Raises:
            ChildRaised: an exception escaped the handler.
            HarnessError: nothing was sent, or the reply is not JSON.
        """
        if self._sent is None:
            raise HarnessError("no request is under way", where="in process")
        message, self._sent = self._sent, None
        envelope = serving.answer(self._handler, message, interruptible=True)
        return serving.unwrap(decode(encode(envelope)), self.pid)

    def request(self, message: Message, timeout: float | None = None) -> Message:
        """Send and wait; raises what they raise."""
        self.send(message)
        return self.wait(timeout)

    def close(self) -> None:
        """Do nothing: there is no process to end."""

    def kill(self) -> None:
        """Do nothing: there is no process to end."""
