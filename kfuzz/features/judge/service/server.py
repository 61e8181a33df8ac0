"""`kfuzz judge --serve`: the judge behind HTTP, on a local port or a Unix socket."""

import contextlib
import errno
import hmac
import json
import os
import socket
import socketserver
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from kfuzz import __version__
from kfuzz.core.errors import BackendError, KfuzzError, UsageError, suggestion
from kfuzz.features.judge.service.judge import Judge

MOST_BYTES: Final = 4 << 20
"""Of a request's body: sources, not data."""

WAITING: Final = 16
"""Requests for each process that may be under way at once; more are sent away."""

SOCKET_SECONDS: Final = 30.0
"""For a client to send its request, or to take the answer."""

_FIELDS: Final[dict[str, type]] = {
    "candidate": str, "reference": str, "entry": str, "declaration": dict,
    "explain": bool, "seed": int,
}  # fmt: skip
_LOCAL: Final = ("127.0.0.1", "localhost")


class Refused(Exception):
    """A request that is not obeyed."""

    def __init__(self, status: HTTPStatus, what: str) -> None:
        self.status = status
        super().__init__(what)


class _Server(ThreadingHTTPServer):
    """A server that does not print that clients have gone."""

    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print what went wrong, unless it is the connection."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Unix(_Server):
    """The server at a Unix socket."""

    address_family = socket.AF_UNIX

    def server_bind(self) -> None:
        """Bind, in the place of a socket that nobody listens at any more."""
        path = str(self.server_address)
        if os.path.exists(path):
            with socket.socket(socket.AF_UNIX) as probe:
                if probe.connect_ex(path) != errno.ECONNREFUSED or not stat.S_ISSOCK(
                    os.stat(path).st_mode
                ):
                    raise UsageError("a file or a server is there", where=path)
            os.unlink(path)
        before = os.umask(0o177)  # the user's alone
        try:
            socketserver.TCPServer.server_bind(self)
        finally:
            os.umask(before)

    def server_close(self) -> None:
        """Let go of the socket, and of its name."""
        super().server_close()
        with contextlib.suppress(OSError):
            os.unlink(str(self.server_address))


def _server_at(
    address: str, handler: type[BaseHTTPRequestHandler]
) -> ThreadingHTTPServer:
    """Return a server that is bound.

    Raises:
        UsageError: if the address is not of the form, or cannot be had.
    """
    kind, colon, rest = address.rpartition(":")
    try:
        if address.startswith("unix:"):
            return _Unix(address.removeprefix("unix:"), handler)  # type: ignore[arg-type]
        if (kind in _LOCAL or not colon) and rest.isdigit() and int(rest) < 1 << 16:
            return _Server((_LOCAL[0], int(rest)), handler)
    except OSError as error:
        raise UsageError(f"cannot listen: {error}", where=address) from None
    raise UsageError(
        f"{address!r:.80} is no address to serve at",
        fix="write unix:PATH, 127.0.0.1:PORT or PORT: other machines are not served",
    )


@contextlib.contextmanager
def serving(address: str, judge: Judge, token: str) -> Iterator[str]:
    """Serve a judge, from threads, as long as the block lasts.

    Args:
        address: "unix:PATH", "127.0.0.1:PORT" or "PORT"; port 0 is any that is free.
        judge: judges; the caller's to close, after the block.
        token: what requests have to bear.

    Yields:
        Where it listens.

    Raises:
        UsageError: if the address is not of that form, or cannot be had.
    """
    with _server_at(address, _handler(judge, token)) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            url = f"http://{_LOCAL[0]}:{server.server_address[1]}"
            yield address if isinstance(server, _Unix) else url
        finally:
            server.shutdown()
            thread.join()


def _handler(judge: Judge, token: str) -> type[BaseHTTPRequestHandler]:
    """Return what handles the requests of one server."""
    room = threading.BoundedSemaphore(WAITING * judge.jobs)

    class Handler(BaseHTTPRequestHandler):
        server_version = f"kfuzz/{__version__}"
        sys_version = ""
        protocol_version = "HTTP/1.1"
        timeout = SOCKET_SECONDS

        def do_GET(self) -> None:
            """Answer whether it is there."""
            self._answer("/health", lambda body: {"jobs": judge.jobs})

        def do_POST(self) -> None:
            """Judge what is sent."""
            self._answer("/judge", self._judged)

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing: the answers say all."""

        def _judged(self, body: bytes) -> dict[str, Any]:
            try:
                request = json.loads(body)
            except (ValueError, RecursionError) as error:
                raise Refused(HTTPStatus.BAD_REQUEST, f"no JSON: {error}") from None
            if not room.acquire(blocking=False):
                what = f"{WAITING * judge.jobs} judgements are under way: try later"
                raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, what)
            try:
                return judge.judge(**_request(judge, request)).document
            finally:
                room.release()

        def _require_token(self) -> None:
            given = self.headers.get("Authorization", "").encode(errors="replace")
            if not hmac.compare_digest(given, f"Bearer {token}".encode()):
                what = "no token, or another: send Authorization: Bearer TOKEN"
                raise Refused(HTTPStatus.UNAUTHORIZED, what)

        def _body(self) -> bytes:
            missing = "" if self.command == "POST" else "0"
            length = self.headers.get("Content-Length", missing)
            if not (length.isascii() and length.isdigit()):
                raise Refused(HTTPStatus.LENGTH_REQUIRED, "no Content-Length")
            if len(length) > 12 or int(length) > MOST_BYTES:
                what = f"{length[:20]} bytes: a request has at most {MOST_BYTES}"
                raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, what)
            return self.rfile.read(int(length))

        def _answer(self, path: str, made: Callable[[bytes], dict[str, Any]]) -> None:
            status, document = HTTPStatus.OK, dict[str, Any]()
            try:
                # First: who still sends when the connection ends reads no answer.
                body = self._body()
                self._require_token()
                if self.path != path:
                    what = f"nothing at {self.path!r:.80}: POST /judge, GET /health"
                    raise Refused(HTTPStatus.NOT_FOUND, what)
                document = made(body)
            except Refused as refused:
                status, document = refused.status, {"error": str(refused)}
            except BackendError as error:
                status, document = HTTPStatus.NOT_IMPLEMENTED, {"error": str(error)}
            except KfuzzError as error:
                status, document = HTTPStatus.BAD_REQUEST, {"error": str(error)}
            text = json.dumps(document).encode()
            # What was not read of a body would be taken for the next request.
            self.close_connection = status is not HTTPStatus.OK
            with contextlib.suppress(OSError):  # the client has gone
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

    return Handler


def _request(judge: Judge, body: Any) -> dict[str, Any]:
    """Return the arguments of `Judge.judge` that a request's body asks for.

    Raises:
        Refused: if it is not of the form.
        KfuzzError: if what is declared is unknown or impossible.
    """

    def refuse(what: str) -> Refused:
        return Refused(HTTPStatus.BAD_REQUEST, what)

    if not isinstance(body, dict):
        raise refuse('no object: send {"candidate": "…", "reference": "…"}')
    for name, value in body.items():
        if name not in _FIELDS:
            raise refuse(f"no field {name!r:.60}; {suggestion(name, _FIELDS)}")
        if type(value) is not _FIELDS[name]:
            kind = _FIELDS[name].__name__
            raise refuse(f"{name} is {type(value).__name__}, not {kind}")
    if "candidate" not in body:
        raise refuse("no candidate: its source is wanted")
    asked = {n: body[n] for n in ("candidate", "explain", "seed") if n in body}
    if "reference" in body:
        # With an end of line it is a text, never a file of this machine.
        text, claims = body["reference"] + "\n", body.get("declaration", {})
        asked["task"] = judge.task(text, entry=body.get("entry", ""), **claims)
        return asked
    if not judge.has_task:
        raise refuse("no problem: give a reference")
    return asked
