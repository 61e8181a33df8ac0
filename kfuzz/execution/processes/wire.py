"""Length-prefixed JSON frames over a stream socket.

A frame is a 4-byte big-endian length and that many bytes of UTF-8 JSON holding
one object. Both ends are Python's `json`, so NaN and infinities pass through.
"""

import json
import os
import socket
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any

from kfuzz.core.errors import HarnessError

Message = dict[str, Any]
Handler = Callable[[Message], Message]

# A pinned case travels as text, at most a few MiB; more is a runaway reply, and
# the reader must not be made to allocate whatever a broken child announces.
MAX_FRAME_BYTES = 64 << 20

# Read in pieces: a length alone, without the bytes, must not cost memory.
_CHUNK_BYTES = 1 << 20

_HEADER = struct.Struct(">I")


class WireError(HarnessError):
    """A message cannot be sent, or what arrived is not a message."""


class WireClosed(WireError):
    """The other end is gone; a frame may have been cut short."""


class WireTimeout(WireError):
    """No whole frame arrived, or could be sent, in time."""


def encode(message: Message) -> bytes:
    """Return `message` as JSON text.

    Raises:
        WireError: it is not JSON, or longer than `MAX_FRAME_BYTES`.
    """
    try:
        body = json.dumps(message, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise WireError(f"the message cannot be written as JSON: {error}") from error
    if len(body) > MAX_FRAME_BYTES:
        raise WireError(
            f"a message of {len(body)} bytes is over the limit of {MAX_FRAME_BYTES}"
        )
    return body


def decode(body: bytes) -> Message:
    """Return the JSON object in `body`.

    Raises:
        WireError: it is not JSON, or not an object.
    """
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise WireError(f"a frame does not hold JSON: {error}") from error
    if not isinstance(message, dict):
        raise WireError(f"a frame holds {type(message).__name__}, not an object")
    return message


class Channel:
    """One end of a socket that carries frames; it owns the socket.

    It never reads past the frame at hand, so readiness of `fileno()` means what
    it says and ancillary data that follows a frame stays attached to its byte.

    Args:
        sock: the socket.
        limit: longest frame that is taken, in bytes.
    """

    def __init__(self, sock: socket.socket, limit: int = MAX_FRAME_BYTES) -> None:
        self._sock = sock
        self._limit = limit
        self._arrived = bytearray()

    def fileno(self) -> int:
        """Return the descriptor to poll, -1 once closed."""
        return self._sock.fileno()

    @property
    def socket(self) -> socket.socket:
        """The socket itself, for passing descriptors."""
        return self._sock

    def send(self, message: Message, timeout: float | None = None) -> None:
        """Send one message; after `WireTimeout` the channel is of no further use.

        Args:
            message: a JSON object.
            timeout: seconds for the whole frame; None waits for ever.

        Raises:
            WireError: not JSON or too long; nothing was sent.
            WireClosed: the other end is gone.
            WireTimeout: the other end does not read.
        """
        body = encode(message)
        try:
            self._sock.settimeout(timeout)
            self._sock.sendall(_HEADER.pack(len(body)) + body)
        except (TimeoutError, BlockingIOError) as error:
            raise WireTimeout(f"the other end did not read for {timeout} s") from error
        except OSError as error:
            raise WireClosed(f"the other end is gone: {error}") from error

    def receive(self, timeout: float | None = None) -> Message:
        """Return the next message; a frame half read at a time-out is kept.

        Args:
            timeout: seconds for the whole frame; 0 takes what is there, None
                waits for ever.

        Raises:
            WireTimeout: no whole frame in time; call again to go on waiting.
            WireClosed: the other end is gone.
            WireError: what arrived is no frame; the channel is of no further use.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        self._fill(_HEADER.size, deadline)
        (size,) = _HEADER.unpack_from(self._arrived)
        if size > self._limit:
            raise WireError(
                f"a frame announces {size} bytes, the limit is {self._limit}"
            )
        self._fill(_HEADER.size + size, deadline)
        body = bytes(self._arrived[_HEADER.size :])
        self._arrived.clear()
        return decode(body)

    def _fill(self, size: int, deadline: float | None) -> None:
        while (missing := size - len(self._arrived)) > 0:
            try:
                self._sock.settimeout(
                    None if deadline is None else max(0.0, deadline - time.monotonic())
                )
                piece = self._sock.recv(min(missing, _CHUNK_BYTES))
            except (TimeoutError, BlockingIOError) as error:
                raise WireTimeout("no whole frame arrived in time") from error
            except OSError as error:
                raise WireClosed(f"the other end is gone: {error}") from error
            if not piece:
                cut = " in the middle of a frame" if self._arrived else ""
                raise WireClosed(f"the other end closed{cut}")
            self._arrived += piece

    def send_descriptors(self, descriptors: Sequence[int], timeout: float) -> None:
        """Hand file descriptors to the other end, after the message that says so.

        Args:
            descriptors: some; the other end gets copies of its own.
            timeout: seconds.

        Raises:
            WireClosed: the other end is gone.
            WireTimeout: the other end does not read.
        """
        try:
            self._sock.settimeout(timeout)
            socket.send_fds(self._sock, [b"\0"], list(descriptors))
        except (TimeoutError, BlockingIOError) as error:
            raise WireTimeout(f"the other end did not read for {timeout} s") from error
        except OSError as error:
            raise WireClosed(f"the other end is gone: {error}") from error

    def receive_descriptors(self, count: int, timeout: float | None) -> list[int]:
        """Return the descriptors that follow the message read last; the caller's.

        Args:
            count: how many there are.
            timeout: seconds, None to wait for ever.

        Raises:
            WireClosed: the other end is gone.
            WireError: there were not as many.
        """
        try:
            self._sock.settimeout(timeout)
            data, descriptors, _, _ = socket.recv_fds(
                self._sock, 1, count, socket.MSG_CMSG_CLOEXEC
            )
        except OSError as error:
            raise WireClosed(f"the other end is gone: {error}") from error
        if len(descriptors) != count or not data:
            for descriptor in descriptors:
                os.close(descriptor)
            raise WireError(f"{len(descriptors)} descriptors arrived, not {count}")
        return list(descriptors)

    def close(self) -> None:
        """Close the socket; harmless when repeated."""
        self._sock.close()
