"""Events as lines of strict JSON, and back: a run that can be told again later."""

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final, get_args

from kfuzz.core.codec import decode, encode
from kfuzz.core.errors import DecodeError
from kfuzz.core.event import Event, FindingSaved, KernelFinished, RunStarted
from kfuzz.core.finding import Finding
from kfuzz.store import strict_json

FORMAT: Final = 1

# Derived, for those who read the lines with other tools.
_ID: Final = "id"
# Of a setting that there is no more; lines that earlier versions wrote have it.
_LEARNT: Final = "learnt"
# A line holds a finding at most; its inputs may be as large as an entry's.
MAX_LINE_CHARACTERS: Final = 1 << 29


def _name(kind: type) -> str:
    words = "".join(f"_{c.lower()}" if c.isupper() else c for c in kind.__name__)
    return words.lstrip("_")


_KINDS: Final[dict[str, type]] = {_name(kind): kind for kind in get_args(Event)}


class EventLines:
    """Turns the events of one stream to lines, each finding's content only once."""

    def __init__(self) -> None:
        self._told: dict[str, Finding] = {}

    def line(self, event: Event) -> str:
        """Return one line of ASCII, its newline included.

        A kernel's end names the findings that were told as they are by their ids.
        """
        fields = encode(event)
        if isinstance(event, FindingSaved):
            self._told[event.finding.id] = event.finding
            fields = {_ID: event.finding.id, **fields}
        if isinstance(event, KernelFinished):
            fields["findings"] = [
                f.id if self._told.get(f.id) == f else encode(f) for f in event.findings
            ]
        document = {"format": FORMAT, "event": _name(type(event)), **fields}
        return json.dumps(document, allow_nan=False) + "\n"


def read_events(lines: Iterable[str], *, where: str = "") -> Iterator[Event]:
    """Yield the events of one or several streams.

    A last line that lacks its newline is what a killed run was writing: it is left
    out.

    Args:
        lines: each with its newline, as a text file yields them.
        where: the file, for error messages.

    Raises:
        DecodeError: naming line and field of what is malformed, or of a format that
            this version does not know.
    """
    told: dict[str, Finding] = {}
    for number, line in enumerate(lines, 1):
        if not line.endswith("\n"):
            return
        place = f"{where}:{number}" if where else f"line {number}"
        if len(line) > MAX_LINE_CHARACTERS:
            raise DecodeError("longer than any event", where=place)
        if not line.isspace():
            event = _event(strict_json.loads(line, where=place), told, place)
            if isinstance(event, FindingSaved):
                told[_id(event.finding, place)] = event.finding
            yield event


def _event(document: Any, told: dict[str, Finding], place: str) -> Event:
    document = strict_json.document(document, FORMAT, where=place)
    name = document.pop("event", None)
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise DecodeError(
            f"{name!r:.40} is no event", where=place, fix=f"valid: {', '.join(_KINDS)}"
        )
    if kind is FindingSaved:
        document.pop(_ID, None)
    if kind is RunStarted:
        document.pop(_LEARNT, None)
    if kind is KernelFinished and isinstance(document.get("findings"), list):
        document["findings"] = [_named(f, told, place) for f in document["findings"]]
    event: Event = decode(kind, document, f"{place}: ")
    return event


def _id(finding: Finding, place: str) -> str:
    try:
        return finding.id
    except UnicodeEncodeError:
        raise DecodeError("its names are not text", where=place) from None


def _named(finding: Any, told: dict[str, Finding], place: str) -> Any:
    if not isinstance(finding, str):
        return finding
    if finding not in told:
        raise DecodeError(
            f"no line before has the finding {finding!r:.80}",
            where=f"{place}: findings",
        )
    return encode(told[finding])
