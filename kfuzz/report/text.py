"""Cases, values and places as text: what a person can read and type again."""

import base64
import hashlib
import json
import math
import os
import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final, get_args

from kfuzz.core.codec import decode, encode
from kfuzz.core.dtypes import DTYPES, bits_to_number, canonical_nan, unpack_bits
from kfuzz.core.errors import DecodeError
from kfuzz.core.event import Event, FindingSaved
from kfuzz.core.recipe import Case, Scalar, TensorSpec, is_dtype, unravel
from kfuzz.store import files

# A reduced case has a handful of elements, or of runs of equal ones; about this many
# fit on two lines.
MAX_VALUES: Final = 24
# Longer tensors are drawn as "all a, except …" up to this many exceptions.
MAX_EXCEPTIONS: Final = 6
# Elements looked at for the value that most of them have.
MAX_SCANNED: Final = 1 << 16

# Significant digits that tell all values of a format apart (IEEE 754-2019 5.12.2:
# 1 + ceil(p log10 2) for a significand of p bits).
_DIGITS: Final = {
    "float64": 17, "float32": 9, "float16": 5, "bfloat16": 4,
    "float8_e5m2": 2, "float8_e4m3fn": 3,
}  # fmt: skip
# Integers up to here are easier to read with all their digits.
_PLAIN_BELOW: Final = 1e6
_PACKED: Final = {"float64": "<d", "float32": "<f", "float16": "<e"}


def plain(text: str) -> str:
    """Return text whose control characters are spelled out; newlines stay.

    Messages hold what kernels raise and corpora of strangers say: neither may
    drive the reader's terminal.
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode()
        for c in text
    )


def one_line(text: str) -> str:
    """Return text on one line, control characters spelled out."""
    return " ".join(plain(text).split())


def shown_path(path: str | Path) -> str:
    """Return a path relative to the working folder where it lies below it."""
    place = Path(os.path.abspath(path))
    here = Path.cwd()
    return str(place.relative_to(here) if place.is_relative_to(here) else path)


def number(value: float, dtype: str = "float64") -> str:
    """Return the fewest digits that name a value of a format.

    Args:
        value: a value of the format.
        dtype: a key of `DTYPES`.
    """
    if isinstance(value, int) or DTYPES[dtype].kind != "float":
        return str(int(value))
    if not math.isfinite(value):
        return str(value)
    if value and value == int(value) and abs(value) < _PLAIN_BELOW:
        return str(int(value))  # 20, not 2e+01
    most = _DIGITS[dtype]
    code = _PACKED.get(dtype)
    for digits in range(1, most + 1):
        text = f"{value:.{digits}g}"
        if _stored(float(text), code) == value:
            return text
    return f"{value:.{most}g}"


def _stored(value: float, code: str | None) -> float:
    if code is None:
        return value
    try:
        stored: float = struct.unpack(code, struct.pack(code, value))[0]
    except OverflowError:
        return math.inf
    return stored


def layout(spec: TensorSpec) -> str:
    """Return how the elements lie in memory, in elements."""
    text = "contiguous"
    if not spec.is_contiguous:
        text = f"strides {tuple_text(spec.element_strides)}"
    return f"{text}, offset {spec.offset}" if spec.offset else text


def tensor_head(name: str, spec: TensorSpec) -> str:
    """Return name, dtype, shape and layout: "x: float32[1, 3] contiguous"."""
    shape = ", ".join(map(str, spec.shape))
    return f"{one_line(name)}: {spec.dtype}[{shape}] {layout(spec)}"


def draw_tensor(name: str, spec: TensorSpec) -> str:
    """Return a tensor argument on one line, long ones elided."""
    return f"{tensor_head(name, spec)}{draw_values(spec)}"


def draw_values(spec: TensorSpec) -> str:
    """Return " = values", or ", filled with …" where a fill makes them."""
    if spec.values is None:
        fill = spec.fill
        text = f", filled with {fill.family} (seed {fill.seed})" if fill else ""
        plants = [
            f"[{', '.join(map(str, p.at))}] = {value_text(p.bits, spec.dtype)}"
            for p in spec.plants[:MAX_EXCEPTIONS]
        ]
        more = len(spec.plants) - len(plants)
        plants += [f"{more} more"] if more > 0 else []
        return one_line(text) + (f" except {', '.join(plants)}" if plants else "")
    if not spec.numel:
        return ", no element"
    if spec.numel <= MAX_VALUES:
        texts = [
            value_text(b, spec.dtype) for b in unpack_bits(spec.values, spec.dtype)
        ]
        return f" = {_nested(texts, spec.shape)}"
    return f" = {_long(spec, spec.values)}"


def draw_scalar(name: str, value: Scalar) -> str:
    """Return a scalar argument as Python would write it."""
    text = f"torch.{value}" if is_dtype(value) else repr(value)
    return f"{one_line(name)} = {text}"


def draw_case(case: Case) -> list[str]:
    """Return one line per argument."""
    tensors = [draw_tensor(name, spec) for name, spec in case.tensors.items()]
    return tensors + [draw_scalar(name, v) for name, v in case.scalars.items()]


def value_text(bits: int, dtype: str) -> str:
    """Return the element that raw bits stand for, in the fewest digits.

    A NaN with other than the default bits comes with its bits: "nan(0xffc00000)".
    """
    value = bits_to_number(bits, dtype)
    if dtype == "bool":
        return str(bool(value))
    if value != value and bits != canonical_nan(dtype):
        return f"nan({bits:#0{2 * DTYPES[dtype].itemsize + 2}x})"
    return number(value, dtype)


def _nested(texts: list[str], shape: tuple[int, ...]) -> str:
    if not shape:
        return texts[0]
    step = len(texts) // shape[0]
    parts = (texts[i * step : (i + 1) * step] for i in range(shape[0]))
    return f"[{', '.join(_nested(part, shape[1:]) for part in parts)}]"


def _long(spec: TensorSpec, values: bytes) -> str:
    size = DTYPES[spec.dtype].itemsize
    patterns = unpack_bits(values[: size * MAX_SCANNED], spec.dtype)
    usual = Counter(patterns).most_common(1)[0][0]
    places = [i for i, bits in enumerate(patterns) if bits != usual]
    if spec.numel <= MAX_SCANNED and len(places) <= MAX_EXCEPTIONS:
        text = f"{value_text(usual, spec.dtype)} everywhere"
        others = (
            f"[{', '.join(map(str, unravel(i, spec.shape)))}] = "
            f"{value_text(patterns[i], spec.dtype)}"
            for i in places
        )
        return text + (f" except {', '.join(others)}" if places else "")
    runs = [(value_text(b, spec.dtype), len([*r])) for b, r in groupby(patterns)]
    if spec.numel <= MAX_SCANNED and len(runs) <= MAX_VALUES:
        told = (text if n == 1 else f"{n} x {text}" for text, n in runs)
        return f"in C order: {', '.join(told)}"
    head = [value_text(b, spec.dtype) for b in patterns[:MAX_EXCEPTIONS]]
    last = value_text(unpack_bits(values[-size:], spec.dtype)[0], spec.dtype)
    return f"{', '.join(head)}, … , {last} ({spec.numel} values)"


def counted(n: int, noun: str) -> str:
    """Return "1 case", "2 cases"."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def tuple_text(numbers: tuple[int, ...]) -> str:
    """Return "(1, 2)"; "(1)" for one."""
    return f"({', '.join(map(str, numbers))})"


# Pages as values, laid out as text or as Markdown: what is shown is decided once.

# Labels of facts stand in a column of this width.
LABEL: Final = 15
# Letters of a line of Markdown that a stranger wrote.
_MAX_LINE: Final = 2_000

Facts = Iterable[tuple[str, str]]
Rows = Sequence[Sequence[str]]


@dataclass(frozen=True)
class Section:
    """A part of a page; without content it is left out.

    Attributes:
        title: its heading.
        lines: one line each; several are a list.
        rows: a table below them, the header first; all of one length.
        prose: whether the lines are paragraphs, and no list.
        numbers: columns of the table aligned to the right.
    """

    title: str
    lines: Sequence[str] = ()
    rows: Rows = ()
    numbers: Sequence[int] = ()
    prose: bool = False

    def __bool__(self) -> bool:
        return bool(self.lines or len(self.rows) > 1)


def text_page(title: str, facts: Facts, sections: Iterable[Section]) -> list[str]:
    """Return a page for a terminal."""
    return [one_line(title), *fact_lines(facts), *section_lines(sections)]


def section_lines(sections: Iterable[Section]) -> list[str]:
    """Return sections for a terminal, a line left free before each."""
    lines = []
    for section in filter(None, sections):
        inner = list(section.lines)
        inner += table(section.rows, numbers=section.numbers) if section.rows else []
        lines += ["", one_line(section.title), *(f"  {plain(line)}" for line in inner)]
    return lines


def markdown_page(title: str, facts: Facts, sections: Iterable[Section]) -> list[str]:
    """Return a page of Markdown."""
    lines = [f"- {label}: {escaped(text)}" for label, text in facts]
    head = [f"# {escaped(title)}", *([""] if lines else [])]
    return [*head, *lines, *section_markdown(sections)]


def section_markdown(sections: Iterable[Section], *, level: int = 2) -> list[str]:
    """Return sections in Markdown, a line left free before each."""
    lines = []
    for section in filter(None, sections):
        lines += ["", f"{'#' * level} {escaped(section.title)}", ""]
        mark = "" if section.prose else "- "
        lines += [f"{mark}{escaped(line)}" for line in section.lines]
        if section.rows:
            lines += [""] if section.lines else []
            lines += markdown_table(section.rows, numbers=section.numbers)
    return lines


def fact_lines(facts: Facts) -> list[str]:
    """Return labels and texts in two columns."""
    return [f"  {label:<{LABEL}} {one_line(text)}" for label, text in facts]


def table(rows: Rows, *, numbers: Iterable[int] = ()) -> list[str]:
    """Return rows as aligned columns.

    Args:
        rows: the header first; all of one length.
        numbers: columns aligned to the right.
    """
    right = set(numbers)
    rows = [[plain(cell).replace("\n", " ") for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = (
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join(cells).rstrip())
    return lines


def markdown_table(rows: Rows, *, numbers: Iterable[int] = ()) -> list[str]:
    """Return the same as a table of Markdown; cells may hold its markup."""
    right, (head, *rest) = set(numbers), rows
    rule = ["--:" if i in right else "---" for i in range(len(head))]
    lines = (" | ".join(map(_cell, row)) for row in (head, rule, *rest))
    return [f"| {line} |" for line in lines]


def _cell(text: str) -> str:
    return escaped(text).replace("|", "\\|")


def escaped(text: str) -> str:
    """Return text on one line, without what Markdown takes for HTML, links or images.

    Other markup stays.
    """
    shown = one_line(text).replace("<", "&lt;")
    return re.sub(r"\](?=[(\[:])", "&#93;", shown)


def inert(text: str) -> str:
    """Return text that Markdown shows as it is, on one line, in a table too.

    What a stranger wrote makes no link, mention, heading or HTML of it.
    """
    shown = one_line(text)[:_MAX_LINE]
    shown = shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]{}#|~!@])", r"\\\1", shown)


def code(text: str) -> str:
    """Return text as code of Markdown, on one line, in a table too."""
    shown = one_line(text)[:_MAX_LINE].replace("|", "\\|")
    mark = fence(shown, least=1)
    room = " " if "`" in shown else ""
    return f"{mark}{room}{shown}{room}{mark}"


def fence(text: str, *, least: int = 3) -> str:
    """Return the backticks that enclose a text as code: more than it has in a row."""
    longest = max(map(len, re.findall(r"`+", text)), default=0)
    return "`" * max(longest + 1, least)


# Events as lines of strict JSON, and back: a run that can be reported again later.

FORMAT: Final = 1

# Derived, for those who read the lines with other tools.
_ID: Final = "id"
# A line holds a finding at most; its inputs may be as large as an entry's.
MAX_LINE_CHARACTERS: Final = 1 << 29


def _name(kind: type) -> str:
    words = "".join(f"_{c.lower()}" if c.isupper() else c for c in kind.__name__)
    return words.lstrip("_")


_KINDS: Final[dict[str, type]] = {_name(kind): kind for kind in get_args(Event)}


def event_line(event: Event) -> str:
    """Return an event on one line of ASCII, its newline included."""
    derived = {_ID: event.finding.id} if isinstance(event, FindingSaved) else {}
    head = {"format": FORMAT, "event": _name(type(event))}
    return json.dumps({**head, **derived, **encode(event)}, allow_nan=False) + "\n"


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
    for number, line in enumerate(lines, 1):
        if not line.endswith("\n"):
            return
        place = f"{where}:{number}" if where else f"line {number}"
        if len(line) > MAX_LINE_CHARACTERS:
            raise DecodeError("longer than any event", where=place)
        if not line.isspace():
            yield _event(files.loads(line, where=place), place)


def _event(document: Any, place: str) -> Event:
    document = files.document(document, FORMAT, where=place)
    name = document.pop("event", None)
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise DecodeError(
            f"{name!r:.40} is no event", where=place, fix=f"valid: {', '.join(_KINDS)}"
        )
    if kind is FindingSaved:
        document.pop(_ID, None)
    event: Event = decode(kind, document, f"{place}: ")
    return event


# Documents from Jinja templates beside the modules that fill them.

_PAGES: Final = Path(__file__).parent / "kinds" / "html"
"""Has the style of all pages, and their head."""


def page(
    template: Path,
    content: Mapping[str, Any],
    script: str = "",
    filters: Mapping[str, Any] | None = None,
) -> str:
    """Return a self-contained page, which loads nothing.

    Args:
        template: its file; includes "head.html".
        content: what it names, but style, script and policy.
        script: that it may run; none by default.
        filters: functions that it calls by name.
    """
    style = (_PAGES / "style.css").read_text(encoding="utf-8")
    policy = f"default-src 'none'; img-src data:; style-src {_source_of(style)}"
    if script:
        policy += f"; script-src {_source_of(script)}"
    more = {"style": style, "script": script, "policy": policy}
    return rendered(template, {**content, **more}, html=True, filters=filters)


def rendered(
    template: Path,
    content: Mapping[str, Any],
    *,
    html: bool,
    filters: Mapping[str, Any] | None = None,
) -> str:
    """Return a template filled in; what it names and is not given is an error.

    Args:
        template: its file.
        content: what it names.
        html: whether texts are escaped as they pass in.
        filters: functions that it calls by name.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader([template.parent, _PAGES]),
        autoescape=html,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=not html,
    )
    environment.filters |= dict(filters or {})
    return environment.get_template(template.name).render(content)


def _source_of(text: str) -> str:
    """Return how a content security policy names a style or script by its hash."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
