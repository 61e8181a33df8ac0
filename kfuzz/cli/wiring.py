"""What verbs of this layer are lent by features above it: `kfuzz.app` wires them."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import typer

from kfuzz.core.event import Event
from kfuzz.engine.config import Opener, RunConfig


class SearchOn(Protocol):
    """Searches on other machines what is searched here otherwise."""

    def __call__(
        self, on: str, config: RunConfig, *, stop: threading.Event
    ) -> Iterator[Event]:
        """Yield the events of a search, as `kfuzz.cli.apart.events`.

        Args:
            on: what `--on` says.
            config: of the search.
            stop: ends it cleanly, once set.
        """


@dataclass(frozen=True)
class Wiring:
    """What the verbs are lent.

    Attributes:
        opener: opens candidates of stored findings.
        search_on: what `--on` names.
    """

    opener: Opener
    search_on: SearchOn


def wiring_of(context: typer.Context) -> Wiring:
    """Return what a verb is lent."""
    wiring = context.obj
    assert isinstance(wiring, Wiring)
    return wiring
