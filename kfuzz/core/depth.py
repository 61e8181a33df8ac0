"""How far a case is judged."""

from enum import StrEnum


class Depth(StrEnum):
    """How far a case is judged.

    BASE runs the base probe alone: enough to see a known symptom again.
    SEARCH runs again what misses or was seen to touch memory that it should not,
    also under the other poison, elsewhere, or with its programs reversed; a share
    of the other cases, and all pinned ones, gets a second call.
    FULL adds the probes that tell the contract classes apart, and the second call
    to every case that does not fail without.
    """

    BASE = "base"
    SEARCH = "search"
    FULL = "full"
