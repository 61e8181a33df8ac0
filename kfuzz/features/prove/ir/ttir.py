"""The text of Triton's IR as operations, regions and blocks.

Triton's own bindings walk operations, but tell neither the predicate of a comparison
nor where an operation stands in the source; the text does. Its form for the operations
that access and address memory is the same in Triton 3.6 to 3.9. What cannot be read
raises: nothing is skipped.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final


class UnreadableError(Exception):
    """A line of the IR that is not understood."""


@dataclass(frozen=True)
class Type:
    """A type of the IR.

    Attributes:
        element: "i32", "f32", "ptr" or another one's text.
        shape: sizes of a tensor, () for a scalar.
        pointee: of a pointer what it points to, as text.
    """

    element: str
    shape: tuple[int, ...] = ()
    pointee: str = ""

    @property
    def bits(self) -> int:
        """Width of an integer, 0 for other types."""
        found = re.fullmatch(r"i(\d+)", self.element)
        return int(found[1]) if found else 64 if self.element == "index" else 0


@dataclass
class Block:
    """A block of a region."""

    label: str = ""
    arguments: list[tuple[str, Type]] = field(default_factory=list)
    operations: list["Operation"] = field(default_factory=list)


@dataclass
class Operation:
    """An operation.

    Attributes:
        name: "arith.addi", ….
        results: names of its values.
        operands: names of the values that it takes, in the text's order.
        words: what stands before its types, attributes apart.
        attributes: what stands in braces.
        types: of its operands and results, as the text has them.
        regions: the blocks of each.
        line: number in the source, 0 where unknown.
        file: the source's path, "" where unknown.
    """

    name: str
    results: tuple[str, ...]
    operands: tuple[str, ...]
    words: str
    attributes: str
    types: str
    regions: list[list[Block]] = field(default_factory=list)
    line: int = 0
    file: str = ""

    @property
    def made(self) -> tuple[Type, ...]:
        """The types of its results."""
        text = self.types
        for arrow in (" -> ", " to "):
            if (at := _outer(text, arrow)) >= 0:
                text = text[at + len(arrow) :]
                break
        else:
            return (parse_type(split_outer(text)[-1]),) if text else ()
        text = text.strip()
        if text.startswith("(") and text.endswith(")"):
            text = text[1:-1]
        return tuple(parse_type(part) for part in split_outer(text))


@dataclass
class Function:
    """A function of a module."""

    name: str
    arguments: list[tuple[str, Type]]
    blocks: list[Block]


_ALIAS: Final = re.compile(r"^(#loc\d*) = loc\((.*)\)$")
_PLACE: Final = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+):(\d+)')
_VALUE: Final = re.compile(r"%[\w$.-]+(?:#\d+)?")
_RESULTS: Final = re.compile(r"^((?:%[\w$.-]+(?::\d+)?(?:, )?)+) = (.*)$")
_FUNCTION: Final = re.compile(r"tt\.func (?:public |private )?@(\"[^\"]*\"|[\w$.-]+)\(")
_LABEL: Final = re.compile(r"^(\^\w+)(?:\((.*)\))?:\s*(?://.*)?$")


def parse_type(text: str) -> Type:
    """Return a type by its text.

    Raises:
        UnreadableError: if a tensor's text is not understood.
    """
    text = text.strip()
    if text.startswith("tensor<") and text.endswith(">"):
        inner = text[7:-1]
        found = re.match(r"((?:\d+x)*)(.*)$", inner, re.DOTALL)
        assert found is not None
        shape = tuple(int(n) for n in found[1].split("x") if n)
        element = parse_type(split_outer(found[2])[0])
        return Type(element.element, shape, element.pointee)
    if text.startswith("!tt.ptr<") and text.endswith(">"):
        return Type("ptr", (), split_outer(text[8:-1])[0])
    if not text:
        raise UnreadableError("a type is missing")
    return Type(text)


def _bare(text: str, start: int = 0) -> Iterator[tuple[int, str]]:
    """Yield the letters that stand in no quotes, with their places."""
    quoted = False
    for at in range(start, len(text)):
        if text[at] == '"' and text[at - 1] != "\\":
            quoted = not quoted
        if not quoted:
            yield at, text[at]


def _depth(text: str, at: int) -> int:
    """Return by how much a letter changes the depth of brackets; arrows have none."""
    letter = text[at]
    if letter == ">" and text[at - 1] == "-":
        return 0
    return (letter in "<([{") - (letter in ")]}>")


def split_outer(text: str) -> list[str]:
    """Return the parts between commas that stand in no bracket."""
    parts, depth, start = [], 0, 0
    for at, letter in _bare(text):
        depth += _depth(text, at)
        if letter == "," and not depth:
            parts.append(text[start:at].strip())
            start = at + 1
    parts.append(text[start:].strip())
    return [part for part in parts if part]


def _outer(text: str, wanted: str) -> int:
    """Return where a text first stands in no bracket, -1 if nowhere."""
    depth = 0
    for at, _ in _bare(text):
        if not depth and text.startswith(wanted, at):
            return at
        depth += _depth(text, at)
    return -1


class _Reader:
    def __init__(self, text: str) -> None:
        self._places: dict[str, str] = {}
        self._lines: list[str] = []
        for line in text.splitlines():
            if found := _ALIAS.match(line):
                self._places[found[1]] = found[2]
            elif line.strip():
                self._lines.append(line.strip())
        self._at = 0

    def functions(self) -> Iterator[Function]:
        while self._at < len(self._lines):
            line = self._take()
            if line.startswith(("module", "}")):
                continue
            if not line.startswith("tt.func"):
                raise UnreadableError(line)
            found = _FUNCTION.match(line)
            if found is None:
                raise UnreadableError(line)
            end = _closing(line, found.end() - 1)
            arguments = self._arguments(line[found.end() : end])
            yield Function(found[1].strip('"'), arguments, self._blocks()[0])

    def _take(self) -> str:
        self._at += 1
        return self._lines[self._at - 1]

    def _arguments(self, text: str) -> list[tuple[str, Type]]:
        made = []
        for part in split_outer(_without_locations(text)):
            name, _, kind = part.partition(": ")
            made.append((name.strip(), parse_type(_without_braces(kind)[0])))
        return made

    def _blocks(self) -> tuple[list[Block], str]:
        """Read up to the brace that ends a region; return it with what follows."""
        blocks = [Block()]
        while True:
            line = self._take()
            if line.startswith("}"):
                used = blocks[0].operations or len(blocks) == 1
                return (blocks if used else blocks[1:]), line
            if found := _LABEL.match(line):
                arguments = self._arguments(found[2] or "")
                blocks.append(Block(found[1], arguments))
                continue
            blocks[-1].operations.append(self._operation(line))

    def _operation(self, line: str) -> Operation:
        results: tuple[str, ...] = ()
        text = line
        if found := _RESULTS.match(line):
            results, text = tuple(_expanded(found[1])), found[2]
        regions: list[list[Block]] = []
        head, tail = text, ""
        if text.endswith("{"):
            head = text[:-1].rstrip()
            while True:
                blocks, tail = self._blocks()
                regions.append(blocks)
                if not tail.endswith("{"):
                    break
            tail = tail[1:].strip()
            if head.endswith("("):  # "op"(…) ({ … }) : …
                head, tail = head[:-1].rstrip(), tail.removeprefix(")").strip()
        place = _location(tail if regions else head)
        file, number = self._place(place)
        head = _without_locations(head)
        body, attributes = _without_braces(f"{head} {_without_locations(tail)}".strip())
        body = re.sub(r"\s+", " ", body).strip()
        name, _, rest = body.partition(" ")
        if name.startswith('"'):
            inner = name.split('"')[1]
            name, rest = inner, body[len(inner) + 2 :].strip()
        elif "(" in name:
            name, _, more = body.partition("(")
            rest = f"({more}"
        at = _outer(rest, " : ")
        words, types = (rest[:at], rest[at + 3 :]) if at >= 0 else (rest, "")
        if words.startswith(": "):
            words, types = "", words[2:]
        operands = tuple(_VALUE.findall(re.sub(r'"(?:[^"\\]|\\.)*"', "", words)))
        return Operation(
            name, results, operands, words.strip(), attributes, types.strip(),
            regions, number, file,
        )  # fmt: skip

    def _place(self, text: str) -> tuple[str, int]:
        """Return file and line of a location."""
        for _ in range(32):
            if found := _PLACE.search(text):
                return found[1], int(found[2])
            known = re.findall(r"#loc\d*", text)
            if not known:
                break
            text = self._places.get(known[0], "")
        return "", 0


def read(text: str) -> dict[str, Function]:
    """Return the functions of a module by name, the kernel first.

    Raises:
        UnreadableError: naming what is not understood.
    """
    return {function.name: function for function in _Reader(text).functions()}


def _expanded(text: str) -> Iterator[str]:
    for part in text.split(", "):
        name, _, count = part.partition(":")
        if count:
            yield from (f"{name}#{i}" for i in range(int(count)))
        else:
            yield name


def _closing(text: str, start: int) -> int:
    """Return where the bracket is closed that opens at `start`."""
    depth = 0
    for at, letter in _bare(text, start):
        depth += (letter in "([{") - (letter in ")]}")
        if not depth:
            return at
    raise UnreadableError(text)


def _location(text: str) -> str:
    at = text.rfind(" loc(")
    if at < 0:
        at = 0 if text.startswith("loc(") else -1
    return text[at:] if at >= 0 else ""


def _without_locations(text: str) -> str:
    while (at := text.find("loc(")) >= 0:
        if at and text[at - 1] not in " ":
            break
        text = text[:at].rstrip() + text[_closing(text, at + 3) + 1 :]
    return text


def _without_braces(text: str) -> tuple[str, str]:
    """Return a text without what stands in braces, and that."""
    found = []
    while (at := next((i for i, c in _bare(text) if c == "{"), -1)) >= 0:
        end = _closing(text, at)
        found.append(text[at + 1 : end])
        before, after = text[:at], text[end + 1 :]
        if before.endswith("<") and after.startswith(">"):
            before, after = before[:-1], after[1:]
        text = before.rstrip() + after
    return text, ", ".join(found)
