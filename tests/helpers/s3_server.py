"""moto's S3 server, which fails as often as it is told to.

It prints the port on which it listens. Every second answer that it fails was obeyed.
"""

import argparse
import os
import random
import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    create_backend_app,
)
from werkzeug.serving import make_server

Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class Failing:
    """A server in front of another one.

    Args:
        served: the other one.
        share: of the requests that fail.
        seed: decides which.
    """

    def __init__(self, served: Wsgi, share: float, seed: int) -> None:
        self._served, self._share = served, share
        self._random = random.Random(seed)
        self._turn = threading.Lock()

    def __call__(
        self, environment: dict[str, Any], start: Callable[..., Any]
    ) -> Iterable[bytes]:
        with self._turn:  # moto's own state is not made for two requests at a time
            fails = self._random.random() < self._share
            obeyed = self._random.random() < 0.5
            if not fails or obeyed:
                answer = list(self._served(environment, start if not fails else _drop))
        if not fails:
            return answer
        start("503 Service Unavailable", [("Content-Length", "0")])
        return [b""]


def _drop(*args: Any) -> Callable[[bytes], None]:
    return lambda data: None


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--share", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    served = DomainDispatcherApplication(create_backend_app)
    failing = Failing(served, asked.share, asked.seed)
    server = make_server("127.0.0.1", 0, failing, threaded=True)
    os.write(1, f"{server.server_port}\n".encode())
    server.serve_forever()


if __name__ == "__main__":
    main()
