"""What verbs of this layer are lent by features above it: `kfuzz.app` wires them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import typer

from kfuzz.core.event import Event
from kfuzz.engine.config import Opener


@dataclass(frozen=True)
class Wiring:
    """What the verbs are lent.

    Attributes:
        opener: opens candidates of stored findings.
        search_on: yields the events of a search on what `--on` names.
    """

    opener: Opener
    search_on: Callable[..., Iterator[Event]]


def wiring_of(context: typer.Context) -> Wiring:
    """Return what a verb is lent."""
    wiring = context.obj
    assert isinstance(wiring, Wiring)
    return wiring
