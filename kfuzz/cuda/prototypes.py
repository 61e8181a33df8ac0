"""What a kernel in CUDA C++ takes, read from its own declaration.

A reader of declarations, not of C++: what it cannot read it says nothing of, and then
arguments have to say their types themselves.
"""

import re
import string
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

# C's names of types -> kfuzz's. `long` has 64 bits on Linux.
_TYPES: Final = {
    "float": "float32", "double": "float64",
    "half": "float16", "__half": "float16", "_Float16": "float16",
    "__nv_bfloat16": "bfloat16", "nv_bfloat16": "bfloat16",
    "__hip_bfloat16": "bfloat16", "hip_bfloat16": "bfloat16",
    "__nv_fp8_e4m3": "float8_e4m3fn", "__nv_fp8_e5m2": "float8_e5m2",
    "bool": "bool",
    "char": "int8", "signed char": "int8", "int8_t": "int8",
    "unsigned char": "uint8", "uint8_t": "uint8",
    "short": "int16", "int16_t": "int16",
    "unsigned short": "uint16", "uint16_t": "uint16",
    "int": "int32", "int32_t": "int32",
    "unsigned": "uint32", "uint32_t": "uint32",
    "long": "int64", "int64_t": "int64", "ptrdiff_t": "int64", "ssize_t": "int64",
    "unsigned long": "uint64", "uint64_t": "uint64", "size_t": "uint64",
    "void": "void",
}  # fmt: skip
# What a declaration may say of a parameter besides its type and name.
_QUALIFIERS: Final = frozenset(
    {"const", "volatile", "__restrict__", "__restrict", "restrict", "struct",
     "__grid_constant__", "register"}
)  # fmt: skip
# In the order in which they are written out in the table above.
_WORDS: Final = (
    "signed",
    "unsigned",
    "char",
    "short",
    "int",
    "long",
    "float",
    "double",
)
_DEPTH: Final = 8  # of names for names
_IN_NAMES: Final = string.ascii_letters + string.digits + "_"
# What a name may stand for; longer ones are none of the basic types.
_NAMED: Final = r"[\w:\s]{1,200}+"


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel.

    Attributes:
        text: as it is declared.
        pointer: whether it takes an address.
        type: kfuzz's name of the type, for a pointer of what it points to; "" if it
            is none of the basic ones.
    """

    text: str
    pointer: bool
    type: str


@dataclass(frozen=True)
class Prototype:
    """A `__global__` function.

    Attributes:
        name: its name.
        parameters: in order; None where they depend on a template's arguments, or on
            which of several functions of the name is meant.
        plain: whether the compiled code has it under that name: `extern "C"`.
    """

    name: str
    parameters: tuple[Parameter, ...] | None
    plain: bool


def prototype(source: str, name: str) -> Prototype | None:
    """Return the declaration of a kernel; None if the source has none.

    Args:
        source: CUDA C++.
        name: of the function, with a template's arguments where it has some.
    """
    base = name.partition("<")[0].strip().rpartition("::")[2]
    found = [made for made in _declared(source) if made.name == base]
    if not found:
        return None
    takes = {tuple(p.text for p in made.parameters or ()) for made in found}
    one = found[0]
    plain = any(made.plain for made in found)
    if len(takes) > 1 or any(made.parameters is None for made in found):
        return Prototype(base, None, plain)
    return Prototype(base, one.parameters, plain)


def kernels(source: str) -> tuple[str, ...]:
    """Return the names of the `__global__` functions of a source, in order."""
    return tuple(dict.fromkeys(made.name for made in _declared(source)))


@lru_cache(maxsize=32)
def _declared(source: str) -> tuple[Prototype, ...]:
    """Return the `__global__` functions of a source, in order."""
    return tuple(_globals(_without_comments(source)))


def _without_comments(source: str) -> str:
    """Return a source without comments, continued lines and preprocessor lines."""
    text = re.sub(r"\\\r?\n", " ", source)
    text = re.sub(
        r'//[^\n]*|/\*.*?(?:\*/|\Z)|("(?:\\.|[^"\\\n])*+")',
        lambda met: met.group(1) or " ",
        text,
        flags=re.DOTALL,
    )
    return re.sub(r"^[ \t]*#[^\n]*", "", text, flags=re.MULTILINE)


def _globals(text: str) -> Iterator[Prototype]:
    names, closings = _other_names(text), _closings(text, "()")
    blocks = list(_plain_blocks(text))
    end = 0  # of the last one's parameters: none is declared among them
    for met in re.finditer(r"\b__global__\b", text):
        if met.start() < end:
            continue
        head = _name_after(text, met.end(), closings)
        if head is None:
            continue
        name, opening = head
        closing = closings.get(opening)
        if closing is None:
            continue
        start = max(end, *(text.rfind(c, end, met.start()) + 1 for c in ";{}"))
        before, end = text[start:opening], closing + 1
        plain = 'extern "C"' in re.sub(r"\s+", " ", before)
        plain = plain or any(a <= met.start() < b for a, b in blocks)
        inner = text[opening + 1 : closing].strip()
        parts = [] if inner in ("", "void") else list(_parts(inner))
        made: tuple[Parameter, ...] | None = tuple(_parameter(p, names) for p in parts)
        if re.search(r"\btemplate\s*<", before):
            made, plain = None, False
        yield Prototype(name, made, plain)


def _name_after(
    text: str, start: int, closings: dict[int, int]
) -> tuple[str, int] | None:
    """Return the function declared after `__global__`, and where its list opens."""
    at = start
    while (opening := text.find("(", at)) >= 0:
        if re.search(r"[;{}]", text[at:opening]):
            return None
        before = text[at:opening].rstrip()
        word = before[len(before.rstrip(_IN_NAMES)) :]
        attribute = word.startswith("__") and word.endswith("__")  # __launch_bounds__
        if word and not attribute and word != "alignas":
            return word, opening
        if opening not in closings:
            return None
        at = closings[opening] + 1
    return None


def _closings(text: str, brackets: str) -> dict[int, int]:
    """Return where brackets of one kind are closed, by where they open."""
    made, open_ones = {}, list[int]()
    for met in re.finditer(f"[{brackets}]", text):
        if met[0] == brackets[0]:
            open_ones.append(met.start())
        elif open_ones:
            made[open_ones.pop()] = met.start()
    return made


def _plain_blocks(text: str) -> Iterator[tuple[int, int]]:
    """Yield the blocks after `extern "C"`."""
    found = list(re.finditer(r'extern\s*"C"\s*\{', text))
    closings = _closings(text, "{}") if found else {}
    for met in found:
        if (closing := closings.get(met.end() - 1)) is not None:
            yield met.end(), closing


def _parts(inner: str) -> Iterator[str]:
    """Yield what commas separate, but for those in brackets."""
    depth, start = 0, 0
    for at, c in enumerate(inner):
        depth += (c in "<([{") - (c in ">)]}")
        if c == "," and not depth:
            yield inner[start:at].strip()
            start = at + 1
    yield inner[start:].strip()


def _parameter(text: str, names: dict[str, str]) -> Parameter:
    shown = re.sub(r"\s+", " ", text)
    # By reference nothing is passed to a kernel but a __grid_constant__.
    pointer = bool(re.search(r"[*\[]", text))
    before = re.split(r"[*&\[=]", text)[0]
    words = [w for w in _words(before) if w not in _QUALIFIERS]
    if not pointer and len(words) > 1 and words[-1] not in _WORDS:
        words = words[:-1]  # its name
    elif "[" in text and "*" not in text and len(words) > 1:
        words = words[:-1]
    return Parameter(shown, pointer, _type_of(" ".join(words), names))


def _words(text: str) -> list[str]:
    """Return the words of a type; arguments of a template are one."""
    first, last = text.find("<"), text.rfind(">") + 1
    if not 0 <= first < last:
        return re.findall(r"[\w:]+", text)
    before, after = text[:first], text[last:]
    return [*_words(before), text[first:last], *_words(after)]


def _type_of(text: str, names: dict[str, str]) -> str:
    """Return kfuzz's name of a type; "" if it is none of the basic ones."""
    for _ in range(_DEPTH):
        text = re.sub(r"\b(?:std|cuda::std|c10|at)::", "", text).strip()
        text = _spelled(text)
        if text in _TYPES:
            return _TYPES[text]
        if text not in names:
            return ""
        text = names[text]
    return ""


def _spelled(text: str) -> str:
    """Return a type of several words as the table has it: `long long int` is `long`."""
    words = text.split()
    if len(words) < 2 or any(w not in _WORDS for w in words):
        return "int" if text == "signed" else text
    kinds = [w for w in words if w in ("char", "short", "long", "float", "double")]
    if "double" in kinds:
        return "double" if words == ["double"] else text
    kind = kinds[0] if kinds else "int"
    if "unsigned" in words:
        return "unsigned" if kind == "int" else f"unsigned {kind}"
    return f"signed {kind}" if kind == "char" and "signed" in words else kind


def _other_names(text: str) -> dict[str, str]:
    """Return the names that `typedef` and `using` give to types."""
    made: dict[str, str] = {}
    for words in map(str.split, re.findall(rf"\btypedef\b({_NAMED});", text)):
        if len(words) > 1:
            made[words[-1]] = " ".join(words[:-1])
    for name, kind in re.findall(rf"\busing\s+(\w+)\s*=({_NAMED});", text):
        made[name] = kind.strip()
    return made
