"""JSON text from strangers to plain values, and plain values to readable text."""

import json
from typing import Any, Final

from kfuzz.core.errors import DecodeError

# A finding nests 6 deep; deeper text is hostile and would exhaust the stack of
# whatever walks it.
MAX_DEPTH: Final = 32
_NESTING: Final = (dict, list)


def loads(text: bytes | str, *, where: str = "") -> Any:
    """Parse strict JSON: no NaN or Infinity, no duplicate keys, bounded depth.

    Args:
        text: a document, UTF-8 where it is bytes.
        where: the file or channel, for error messages.

    Raises:
        DecodeError: on anything else.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode()
        value = json.loads(
            text, parse_constant=_no_constant, object_pairs_hook=_no_duplicates
        )
    # ValueError covers bad UTF-8, bad JSON and integers beyond Python's limit.
    except (ValueError, RecursionError, MemoryError) as error:
        reason = str(error) or type(error).__name__
        raise DecodeError(f"not JSON: {reason}", where=where) from None
    level, depth = [value] if type(value) in _NESTING else [], 0
    while level:
        level = [
            inner
            for outer in level
            for inner in (outer.values() if type(outer) is dict else outer)
            if type(inner) in _NESTING
        ]
        depth += 1
        if depth > MAX_DEPTH:
            raise DecodeError(f"nested deeper than {MAX_DEPTH} levels", where=where)
    return value


class UnknownFormatError(DecodeError):
    """It was written in a format that this version does not know."""


def document(value: Any, known: int, *, where: str = "", fix: str = "") -> Any:
    """Return an object without its format number, which must be the known one.

    Args:
        value: as `loads` returns it.
        known: the number.
        where: the file or channel, for error messages.
        fix: how one comes by such an object.

    Raises:
        DecodeError: if it is no object, or says no format.
        UnknownFormatError: if it is of another format.
    """
    if not isinstance(value, dict):
        raise DecodeError("not an object", where=where, fix=fix)
    if "format" not in value:
        raise DecodeError("missing field", where=f"{where}: format", fix=fix)
    number = value.pop("format")
    if isinstance(number, bool) or number != known:
        raise UnknownFormatError(
            f"format {number!r:.20} is not known to this version, which reads {known}",
            where=where,
            fix="use the kfuzz that wrote it, or a newer one",
        )
    return value


def dumps(value: Any) -> str:
    """Return readable strict JSON: one line per field, flat lists on one line.

    Characters that do not print, or that no encoding has, are written as escapes.

    Raises:
        ValueError: if a number is not finite.
    """
    return _pretty(value, "") + "\n"


def line(value: Any) -> str:
    """Return strict JSON on one line, as readable as it may be; see `dumps`.

    Raises:
        ValueError: if a number is not finite.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def _pretty(value: Any, indent: str) -> str:
    inner = indent + "  "
    if isinstance(value, dict) and value:
        rows = [f"{line(str(k))}: {_pretty(v, inner)}" for k, v in value.items()]
        return _block("{", rows, "}", indent)
    if isinstance(value, list) and any(isinstance(v, dict | list) for v in value):
        return _block("[", [_pretty(v, inner) for v in value], "]", indent)
    return line(value)


def _block(opening: str, rows: list[str], closing: str, indent: str) -> str:
    body = ",\n".join(f"{indent}  {row}" for row in rows)
    return f"{opening}\n{body}\n{indent}{closing}"


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("an object names a field twice")
    return fields
