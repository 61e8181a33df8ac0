"""What verbs of this layer are lent by features above it: `kfuzz.app` wires them."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import typer

from kfuzz.core.event import Event
from kfuzz.engine.config import Opener, ReplayConfig, ReplayResult, RunConfig
from kfuzz.store.corpus import Problem, Stored


class Elsewhere(Protocol):
    """Runs on other machines what runs here otherwise."""

    def search(
        self, on: str, config: RunConfig, *, stop: threading.Event
    ) -> Iterator[Event]:
        """Yield the events of a search, as `kfuzz.cli.apart.events`.

        Args:
            on: what `--on` says.
            config: of the search.
            stop: ends it cleanly, once set.
        """

    def replay(
        self,
        on: str,
        stored: Sequence[Stored | Problem],
        config: ReplayConfig,
        *,
        stop: threading.Event,
    ) -> Iterator[ReplayResult]:
        """Yield what comes of findings, in order.

        Args:
            on: what `--on` says.
            stored: what to replay.
            config: how.
            stop: ends it cleanly, once set.
        """


@dataclass(frozen=True)
class Wiring:
    """What the verbs are lent.

    Attributes:
        opener: opens candidates of stored findings.
        elsewhere: what `--on` names.
    """

    opener: Opener
    elsewhere: Elsewhere


def wiring_of(context: typer.Context) -> Wiring:
    """Return what a verb is lent."""
    wiring = context.obj
    assert isinstance(wiring, Wiring)
    return wiring
