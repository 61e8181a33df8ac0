"""Values on the command line: parsed here, so that every error reads alike."""

import re
import secrets
from collections.abc import Sequence
from typing import Annotated, Final

import typer

from kfuzz.core.errors import UsageError, suggestion

DEVICES: Final = ("auto", "cpu", "cuda", "interpret")
ISOLATION: Final = ("auto", "process", "none")
FORMATS: Final = ("text", "json")
FAIL_ON: Final = ("new", "any")
ENGINES: Final = ("hypothesis", "atheris")

# A week is the longest night; more is a slip of the keyboard.
MAX_SECONDS: Final = 7 * 24 * 3600.0
# Seeds are 64 bits wide; a random one is short enough to type.
_SEED_BITS: Final = 64
_RANDOM_SEED_BITS: Final = 32

_DURATION: Final = re.compile(
    r"(?=.)(?:(?P<h>\d+)h)?(?:(?P<m>\d+)m)?(?:(?P<s>\d+(?:\.\d+)?)s)?", re.ASCII
)
_SECONDS: Final = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
_AGE: Final = re.compile(r"(?P<number>\d{1,5})(?P<unit>[hdw])", re.ASCII)
_CUDA: Final = re.compile(r"cuda:\d{1,4}", re.ASCII)

CorpusOption = Annotated[
    str | None,
    typer.Option(
        "--corpus",
        metavar="DIR",
        help="Folder of findings; corpus/ of the project by default.",
        show_default=False,
    ),
]
FormatOption = Annotated[
    str, typer.Option("--format", metavar="text|json", help="What to print on stdout.")
]
DeviceOption = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="auto|cpu|cuda[:i]|interpret",
        help="Where kernels run.",
    ),
]
JobsOption = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        metavar="N",
        help="Kernels searched side by side; the cases are the same. Default: one "
        "for each processor, on GPUs one for each.",
        show_default=False,
    ),
]


def duration(text: str, option: str = "--max-time") -> float:
    """Return the seconds that "90", "90s", "10m", "1h" or "1h30m" stand for.

    Raises:
        UsageError: if it is no duration, 0, or more than `MAX_SECONDS`.
    """
    text = text.strip()
    # Longer texts are nonsense, and huge numbers slow to convert.
    short = text if len(text) <= 20 else ""
    if _SECONDS.fullmatch(short):
        seconds = float(short)
    elif match := _DURATION.fullmatch(short):
        hours, minutes, rest = (float(part or 0) for part in match.groups())
        seconds = 3600 * hours + 60 * minutes + rest
    else:
        raise UsageError(
            f"{text!r:.60} is not a duration",
            where=option,
            fix="write 90, 90s, 10m, 1h or 1h30m",
        )
    if not 0 < seconds <= MAX_SECONDS:
        raise UsageError(
            f"{text} is not a time above 0 s, up to {MAX_SECONDS / 3600:.0f}h",
            where=option,
        )
    return seconds


def age(text: str, option: str) -> float:
    """Return the seconds that "12h", "30d" or "8w" stand for.

    Raises:
        UsageError: if it is no age.
    """
    match = _AGE.fullmatch(text.strip())
    if match is None:
        fix = "write 12h, 30d or 8w"
        raise UsageError(f"{text!r:.60} is not an age", where=option, fix=fix)
    hours = {"h": 1, "d": 24, "w": 7 * 24}[match["unit"]]
    return 3600.0 * hours * int(match["number"])


def count(value: int | None, option: str) -> int | None:
    """Return a number of things, at least 1, or None where none was given.

    Raises:
        UsageError: if it is less than 1.
    """
    if value is not None and value < 1:
        raise UsageError(f"{value} is not at least 1", where=option)
    return value


def seed(value: int | None, option: str = "--seed") -> int:
    """Return the seed given, or a fresh random one.

    A fresh one also where `CI` is set: every night is to see other cases.

    Raises:
        UsageError: if it does not fit 64 bits.
    """
    if value is None:
        return secrets.randbits(_RANDOM_SEED_BITS)
    if not 0 <= value < 1 << _SEED_BITS:
        raise UsageError(f"{value} is not between 0 and 2^64 - 1", where=option)
    return value


def choice(value: str, valid: Sequence[str], option: str) -> str:
    """Return the value if it is valid.

    Raises:
        UsageError: if not, with the nearest that is.
    """
    if value not in valid:
        fix = suggestion(value, valid)
        raise UsageError(f"{value!r:.60} is not a choice", where=option, fix=fix)
    return value


def device(value: str, option: str = "--device") -> str:
    """Return a device name: one of `DEVICES`, or "cuda:" and a number.

    Raises:
        UsageError: if it is neither.
    """
    if _CUDA.fullmatch(value):
        return value
    return choice(value, (*DEVICES, "cuda:0") if ":" in value else DEVICES, option)
