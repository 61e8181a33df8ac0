"""The settings of `kfuzz run`: every one, how it is read, and from which places."""

import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from kfuzz.cli import options, reports
from kfuzz.core.budget import Scale
from kfuzz.core.errors import UsageError, suggestion
from kfuzz.engine.search.learnt_store import AUTO
from kfuzz.engine.search.profiles import DEFAULT, shown
from kfuzz.report.kinds import ReportFile

FRESH: Final = "fresh"
"""The seed of a run that is to draw other cases than any before it."""

_TRUTHS: Final = {"1": True, "true": True, "yes": True, "on": True,
                  "0": False, "false": False, "no": False, "off": False}  # fmt: skip


@dataclass(frozen=True)
class Place:
    """Where a value was said.

    Attributes:
        label: for error messages: file, section and key, the variable, or the option.
        base: folder of the file, to which its paths are relative; None on the command
            line and in the environment, whose paths are the working folder's.
        here: the working folder.
    """

    label: str
    base: Path | None = None
    here: Path = Path()

    def path(self, text: str) -> Path:
        """Return a path as it is used in the working folder."""
        return Path(text) if self.base is None else self.base / text


@dataclass(frozen=True)
class Setting:
    """One setting.

    Attributes:
        key: its name in a file; the variable is KFUZZ_ and that in capitals.
        read: checks what a place says, and returns what the run is given.
        default: where no place and no profile says anything.
        text: makes of a variable's text what a file would say.
        common: whether other verbs heed it too, so that no profile may set it.
    """

    key: str
    read: Callable[[Any, Place], Any]
    default: Any = None
    text: Callable[[str], Any] = str
    common: bool = False

    @property
    def variable(self) -> str:
        """The environment variable."""
        return f"KFUZZ_{self.key.replace('-', '_').upper()}"


def number(text: str) -> Any:
    """Return the number that a text is, or the text itself."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _truth(text: str) -> Any:
    return _TRUTHS.get(text.strip().lower(), text)


def _words(text: str) -> Any:
    try:
        return shlex.split(text)
    except ValueError:  # a quote that is not closed
        return text


def _wrong(value: Any, what: str, place: Place, fix: str = "") -> UsageError:
    return UsageError(f"{value!r:.60} is not {what}", where=place.label, fix=fix)


def _duration(value: Any, place: Place) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = f"{value:g}"
    if not isinstance(value, str):
        raise _wrong(value, "a duration", place, "write 90, 90s, 10m, 1h or 1h30m")
    options.duration(value, place.label)
    return value


def _count(value: Any, place: Place) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong(value, "a whole number", place)
    options.count(value, place.label)
    return value


def _seed(value: Any, place: Place) -> int | str:
    if value == FRESH:
        return FRESH
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong(value, "a seed", place, f'write a whole number or "{FRESH}"')
    return options.seed(value, place.label)


def _share(value: Any, place: Place) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 < value <= 1:
        raise _wrong(value, "a share of the cases", place, "write a number up to 1")
    return float(value)


def _flag(value: Any, place: Place) -> bool:
    if not isinstance(value, bool):
        raise _wrong(value, "true or false", place)
    return value


def _choice(value: Any, place: Place, *, valid: Sequence[str]) -> str:
    if not isinstance(value, str):
        raise _wrong(value, "a choice", place, suggestion("", valid))
    return options.choice(value, valid, place.label)


def _device(value: Any, place: Place) -> str:
    if not isinstance(value, str):
        raise _wrong(value, "a device", place, suggestion("", options.DEVICES))
    return options.device(value, place.label)


def _name(value: Any, place: Place) -> str:
    if not isinstance(value, str) or not value:
        raise _wrong(value, "a name", place)
    return value


def _globs(value: Any, place: Place) -> tuple[str, ...]:
    return tuple(_texts(value, place, "globs", 'write ["C-PRC-*", "K-MEM-01"]'))


def _texts(value: Any, place: Place, what: str, fix: str) -> Sequence[str]:
    good = isinstance(value, list | tuple) and all(
        isinstance(word, str) and word for word in value
    )
    if not good:
        raise _wrong(value, f"a list of {what}", place, fix)
    words: Sequence[str] = value
    return words


def _targets(value: Any, place: Place) -> tuple[str, ...]:
    fix = 'write targets = ["kernels.py", "package.module"]'
    found = _texts(value, place, "targets", fix)
    return tuple(_from_here(target, place) for target in found)


def _from_here(target: str, place: Place) -> str:
    """Return a target of a project as it is written in the working folder."""
    base, here = place.base, place.here
    path, separator, name = target.partition("::")
    if base is None or base == here:
        return target
    if not ("/" in path or path.endswith(".py") or (base / path).exists()):
        return target
    return os.path.relpath(base / path, here) + separator + name


def _folder(value: Any, place: Place) -> Path:
    if not isinstance(value, str) or not value:
        raise _wrong(value, "a folder", place, 'write corpus = "corpus"')
    return place.path(value)


def _file(value: Any, place: Place) -> Path:
    if not isinstance(value, str) or not value:
        raise _wrong(value, "a file", place)
    return place.path(value)


def _reports(value: Any, place: Place) -> tuple[ReportFile, ...]:
    if isinstance(value, list | tuple):  # words of the command line
        return tuple(reports.wanted(value, place.label))
    fix = 'write report = { html = "report.html" }'
    if not isinstance(value, dict):
        raise _wrong(value, "a table of reports", place, fix)
    found = []
    for kind, path in value.items():
        if kind not in reports.KINDS:
            raise UsageError(
                f"unknown report {kind!r:.60}",
                where=place.label,
                fix=suggestion(kind, reports.KINDS),
            )
        file = _file(path, Place(f"{place.label}.{kind}", place.base))
        found.append(ReportFile(kind, file, with_folder=True))
    return tuple(found)


def _of(valid: Sequence[str]) -> Callable[[Any, Place], str]:
    return partial(_choice, valid=valid)


# In the order in which `kfuzz config` shows them. What stands in `Profile` has its
# default there. An option of `kfuzz run` reads its setting under the same name.
SETTINGS: Final[dict[str, Setting]] = {
    s.key: s
    for s in (
        Setting("profile", _name, DEFAULT, common=True),
        Setting("targets", _targets, (), _words),
        Setting("max-time", _duration),
        Setting("max-cases", _count, text=number),
        Setting("max-findings", _count, text=number),
        Setting("seed", _seed, text=number),
        Setting("replay", _flag, text=_truth),
        Setting("probes", _share, text=number),
        Setting("scale", _of(tuple(map(str, Scale)))),
        Setting("burst", _count, text=number),
        Setting("engine", _of(options.ENGINES)),
        Setting("jobs", _count, text=number),
        Setting("learnt", _name, AUTO),
        Setting("contracts", _globs, (), _words),
        Setting("exclude-contracts", _globs, (), _words),
        Setting("calibration", _file),
        Setting("device", _device, "auto"),
        Setting("isolate", _of(options.ISOLATION), "auto"),
        Setting("corpus", _folder, common=True),
        Setting("fail-on", _of(options.FAIL_ON), "new"),
        Setting("report", _reports, (), _words),
        Setting("format", _of(options.FORMATS), "text"),
        Setting("quiet", _flag, False, _truth),
        Setting("verbose", _flag, False, _truth),
    )
}


def as_text(value: Any) -> str:
    """Return the value of a setting as one line."""
    if value is None:
        return "–"
    if isinstance(value, tuple):
        return " ".join(_as_word(item) for item in value) or "–"
    return shown(value)


def _as_word(item: Any) -> str:
    if isinstance(item, ReportFile):
        return shlex.quote(f"{item.kind}={item.path}")
    return shlex.quote(str(item))


def as_plain(value: Any) -> Any:
    """Return the value of a setting as JSON holds it."""
    if isinstance(value, tuple):
        return [as_plain(item) for item in value]
    if isinstance(value, ReportFile):
        return f"{value.kind}={value.path}"
    if isinstance(value, Path):
        return str(value)
    return value
