"""Errors that kfuzz shows to people: each says what, where and the way out."""

import difflib
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

# A longer list helps nobody; there are not as many options of any other kind.
LISTED: Final = 40
# A longer word is near to none, and takes long to compare.
_LONGEST: Final = 80

NO_DRIVER: Final = "0 active drivers"
"""What Triton raises where a kernel is launched without a GPU."""

INTERPRET: Final = (
    "without a GPU, set TRITON_INTERPRET=1 before triton is first imported"
)


class KfuzzError(Exception):
    """An error with a cause, a place and a remedy, printed as one paragraph.

    Attributes:
        what: the fault, as a lower-case fragment.
        where: file, section, field or argument concerned; may be empty.
        fix: how to get out of it; may be empty.
    """

    def __init__(self, what: str, *, where: str = "", fix: str = "") -> None:
        self.what, self.where, self.fix = what, where, fix
        super().__init__(str(self))

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        # What another's error says may end as a sentence does.
        remedy = f"{'.' * (not self.what.endswith('.'))} {self.fix}" if self.fix else ""
        return f"{place}{self.what}{remedy}"


class UsageError(KfuzzError):
    """The command line or configuration cannot be obeyed (exit code 2)."""


class BindingError(KfuzzError):
    """An implementation does not fit its operator or declaration (exit code 2)."""


class NothingToRunError(KfuzzError):
    """The targets hold no kernel (exit code 4)."""


class BackendError(KfuzzError):
    """The device or backend asked for is missing (exit code 5)."""


class DecodeError(KfuzzError):
    """Stored or transmitted data is malformed; `where` is the path to the field."""


class HarnessError(KfuzzError):
    """kfuzz or the machine failed, not the kernel (verdict `error`)."""


class StorageError(HarnessError):
    """The disk refuses: what is found cannot be kept, whatever is searched."""


class BuildError(HarnessError):
    """What a kernel is made of cannot be built here: `what` are the compiler's words.

    It ends the search of its kernel with the verdict `error`, wherever it is raised.
    """


class LanguageLimit(TypeError):
    """What a kernel's language cannot be given, which is no fault of the kernel's.

    The case is not judged.
    """


def suggestion(word: str, valid: Iterable[str]) -> str:
    """Return "valid: …" preceded by the nearest valid word, if one is near.

    Of very many the nearest alone are listed, or the first where none is near.
    """
    options = sorted(valid)
    near = difflib.get_close_matches(word[:_LONGEST], options, n=LISTED)
    hint = f"did you mean {near[0]!r}? " if near else ""
    shown = options if len(options) <= LISTED else near or options[:LISTED]
    rest = f", … ({len(options)} in all)" if len(shown) < len(options) else ""
    return f"{hint}valid: {', '.join(shown)}{rest}"


def message_of(error: BaseException) -> str:
    """Return what an exception says.

    Its class may be a stranger's: one that raises when it is asked, or answers with
    characters that no encoding has, says so much and no more.
    """
    try:
        return encodable(str(error))
    except BaseException as again:
        return f"(its text cannot be had: __str__ raised {class_name(again)})"


def class_name(error: BaseException) -> str:
    """Return the name of an exception's class, which prints."""
    name = encodable(type(error).__name__)
    return name if name.isprintable() else ascii(name)[1:-1]


def trace_text(error: BaseException) -> str:
    """Return an exception as Python prints it, with its traceback."""
    try:
        return encodable("".join(traceback.format_exception(error)))
    except BaseException:
        return "(its traceback cannot be had)"


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and what it was raised from, each once: it may be a ring."""
    seen: BaseException | None = error
    known: set[int] = set()
    while seen is not None and id(seen) not in known:
        known.add(id(seen))
        yield seen
        seen = seen.__cause__


def encodable(text: str) -> str:
    """Return a text with each half of a surrogate pair spelled out."""
    return text.encode("utf-8", "backslashreplace").decode()


# Foreign code that runs in a child: what it is, how it ends, what contains it.


class End(StrEnum):
    """How a child came to its end.

    Attributes:
        HANG: it did not answer in time.
        CRASH: a signal ended it, or it exited.
        MEMORY, CPU, PROCESSES, DISK, OUTPUT: it went past that limit.
        PROTOCOL: what it sent is no answer to what it was asked.
        UNAVAILABLE: none can be started, or what it was to get cannot be carried; the
            machine's doing.
    """

    HANG = "hang"
    CRASH = "crash"
    MEMORY = "memory"
    CPU = "cpu"
    PROCESSES = "processes"
    DISK = "disk"
    OUTPUT = "output"
    PROTOCOL = "protocol"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True)
class Ended:
    """The end of a child that should have answered.

    Attributes:
        end: how it came.
        detail: the signal, "exit code 3" or the limit, short.
        text: what happened, as the end of the sentence "The kernel …".
        output: the last of what it printed.
    """

    end: End
    detail: str
    text: str
    output: str = field(default="", repr=False)


class KernelEnded(HarnessError):
    """A kernel's process ended instead of answering a call, or none can be had."""

    def __init__(self, ended: Ended) -> None:
        self.ended = ended
        super().__init__(ended.text, where="the kernel's child")
