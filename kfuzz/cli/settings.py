"""The settings of `kfuzz run`, each declared once, and the options made of them.

A setting's entry in `SETTINGS` is all there is to say of it: its option with help, its
environment variable, its key in [tool.kfuzz] and how the value is read, what it is by
default and in each profile, and whether it is a field of `RunConfig`. Other verbs take
the same entries for options that they share. To add one: an entry here, and the field
of `RunConfig` that the engine reads.
"""

import inspect
import os
import re
import secrets
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import typer

from kfuzz.core.budget import MEMBERS, Budget, Scale
from kfuzz.core.errors import UsageError, suggestion
from kfuzz.engine.config import Engine, RunConfig
from kfuzz.execution.device.backends import AUTO, BACKENDS
from kfuzz.execution.launches.gpu_targets import GPU_TARGETS, gpu_targets
from kfuzz.report.kinds import NAMES, ReportFile
from kfuzz.store.mirror import is_url

# Values on the command line, in the environment and in files: how each kind is read.
#
# One reader for all places, so that every error reads alike: what is wrong, where, and
# the way out.

FRESH: Final = "fresh"
"""The seed of a run that is to draw other cases than any before it."""

DEVICES: Final = (AUTO, *sorted(BACKENDS))
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
_NUMBER: Final = re.compile(r":\d{1,4}", re.ASCII)
# A file's name may hold commas, as long as no other report seems to begin there.
_NEXT_REPORT: Final = re.compile(r",(?=[A-Za-z_-]*=)")
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

    def reject(self, value: Any, what: str, fix: str = "") -> NoReturn:
        """Raise a `UsageError`: the value said here is not `what`."""
        raise UsageError(f"{value!r:.60} is not {what}", where=self.label, fix=fix)


@dataclass(frozen=True)
class Kind:
    """How the values of one kind are written and read.

    Attributes:
        read: makes a value of a text that a place says, or several values of one word
            of a list; raises UsageError.
        metavar: how the help names such a value; "" for a flag.
        many: whether a value is a list of words.
        engine: makes of the value what the engine is given.
    """

    read: Callable[[str, Place], Any]
    metavar: str = ""
    many: bool = False
    engine: Callable[[Any], Any] = lambda value: value

    @property
    def option(self) -> Any:
        """What typer makes of the words on the command line."""
        return list[str] if self.many else str if self.metavar else bool

    def value(self, said: Any, place: Place) -> Any:
        """Return what a place says: a text, or as TOML and typer have it.

        Raises:
            UsageError: if it is none of this kind.
        """
        if not self.many:
            if not (text := _said(said, place)):
                place.reject(said, "a value")
            return self.read(text, place)
        if isinstance(said, str):
            try:
                said = shlex.split(said)
            except ValueError:  # a quote that is not closed
                place.reject(said, "a list")
        if isinstance(said, dict):
            said = [f"{key}={_said(word, place)}" for key, word in said.items()]
        words = said if isinstance(said, list | tuple) else [said]
        return tuple(v for w in words for v in self.read(_said(w, place), place))


def _said(value: Any, place: Place) -> str:
    """Return as a text what a file or an option says."""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | float | Path):
        place.reject(value, "a value")
    return f"{value:g}" if isinstance(value, float) else str(value)


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
        Place(option).reject(text, "a duration", "write 90, 90s, 10m, 1h or 1h30m")
    if not 0 < seconds <= MAX_SECONDS:
        raise UsageError(
            f"{text} is not a time above 0 s, up to {MAX_SECONDS / 3600:.0f}h",
            where=option,
        )
    return seconds


def age(text: str) -> float:
    """Return the seconds that "12h", "30d" or "8w" stand for.

    Raises:
        UsageError: if it is no age.
    """
    match = _AGE.fullmatch(text.strip())
    if match is None:
        Place("--older-than").reject(text, "an age", "write 12h, 30d or 8w")
    hours = {"h": 1, "d": 24, "w": 7 * 24}[match["unit"]]
    return 3600.0 * hours * int(match["number"])


def drawn_seed(given: int | str | None) -> int:
    """Return the seed given, or a random one for None and "fresh".

    A random one also where `CI` is set: every night is to see other cases.
    """
    drawn = given is None or given == FRESH
    return secrets.randbits(_RANDOM_SEED_BITS) if drawn else int(given or 0)


def choose(value: str, valid: Sequence[str], where: str) -> str:
    """Return the value if it is valid.

    Raises:
        UsageError: if not, with the nearest that is.
    """
    if value not in valid:
        fix = suggestion(value, valid)
        if value in NAMES:  # a report, asked of what prints
            form = f"{value}=FILE"
            fix += f"; to a file: `kfuzz report {form}`, `kfuzz run --report {form}`"
        raise UsageError(f"{value!r:.60} is not a choice", where=where, fix=fix)
    return value


def reports(given: Sequence[str], option: str = "--report") -> list[ReportFile]:
    """Return the reports that "html=a.html,junit=b.xml" and the like ask for.

    Args:
        given: the words, each with one or several reports.
        option: what gave them, for error messages.

    Raises:
        UsageError: if one names no kind or no file.
    """
    found = []
    for text in (text for word in given for text in _NEXT_REPORT.split(word)):
        kind, _, path = text.partition("=")
        if kind not in NAMES:
            fix = suggestion(kind, NAMES) + f"; write {option} html=report.html"
            raise UsageError(f"{text!r:.60} names no report", where=option, fix=fix)
        if not path:
            fix = f"write {kind}=FILE"
            raise UsageError(f"{text!r:.60} names no file", where=option, fix=fix)
        found.append(ReportFile(kind, Path(path)))
    return found


def _duration(text: str, place: Place) -> str:
    duration(text, place.label)
    return text


def _int(text: str, place: Place, what: str, fix: str = "") -> int:
    try:
        return int(text)
    except ValueError:
        place.reject(text, what, fix)


def _count(text: str, place: Place) -> int:
    if (count := _int(text, place, "a whole number")) < 1:
        raise UsageError(f"{text} is not at least 1", where=place.label)
    return count


def _seed(text: str, place: Place) -> int | str:
    if text == FRESH:
        return FRESH
    seed = _int(text, place, "a seed", f'write a whole number or "{FRESH}"')
    if not 0 <= seed < 1 << _SEED_BITS:
        raise UsageError(f"{text} is not between 0 and 2^64 - 1", where=place.label)
    return seed


def _share(text: str, place: Place) -> float:
    with suppress(ValueError):
        if 0 < (share := float(text)) <= 1:
            return share
    place.reject(text, "a share of the cases", "write a number up to 1")


def _flag(text: str, place: Place) -> bool:
    if text.strip().lower() not in _TRUTHS:
        place.reject(text, "true or false")
    return _TRUTHS[text.strip().lower()]


def _choice(text: str, place: Place, *, valid: Sequence[str]) -> str:
    return choose(text, valid, place.label)


def _device(text: str, place: Place) -> str:
    numbered = tuple(b.name for b in BACKENDS.values() if b.numbered)
    if "," in text:
        each = [part.strip() for part in text.split(",")]
        for part in each:
            choose(part.partition(":")[0], numbered, place.label)
        return ",".join(_device(part, place) for part in each)
    name, colon, _ = text.partition(":")
    if name in numbered and _NUMBER.fullmatch(text, len(name)):
        return text
    valid = (*DEVICES, *(f"{n}:0" for n in numbered)) if colon else DEVICES
    return choose(text, valid, place.label)


def _corpus(text: str, place: Place) -> Path | str:
    return text if is_url(text) else place.path(text)


def _target(target: str, place: Place) -> tuple[str]:
    """Return a target of a project as it is written in the working folder."""
    base, here = place.base, place.here
    path, separator, name = target.partition("::")
    if base is None or base == here:
        return (target,)
    if not ("/" in path or path.endswith(".py") or os.path.exists(base / path)):
        return (target,)
    return (os.path.relpath(base / path, here) + separator + name,)


def _reports(text: str, place: Place) -> list[ReportFile]:
    made = reports([text], place.label)
    if place.base is None:
        return made
    return [replace(r, path=place.path(str(r.path)), with_folder=True) for r in made]


def one_of(*valid: str, engine: type[StrEnum] | None = None) -> Kind:
    """Return the kind of a choice.

    Args:
        valid: the texts to choose from, in the order in which the help has them.
        engine: the enumeration that the engine has of them, if any.
    """
    read = partial(_choice, valid=valid)
    made = (lambda value: value) if engine is None else engine
    return Kind(read, "|".join(valid), engine=made)


DURATION: Final = Kind(
    _duration, "TIME", engine=lambda v: None if v is None else duration(v)
)
COUNT: Final = Kind(_count, "N")
SEED: Final = Kind(_seed, "N|fresh", engine=drawn_seed)
SHARE: Final = Kind(_share, "SHARE")
FLAG: Final = Kind(_flag)
DEVICE: Final = Kind(_device, "auto|cpu|cuda[:i][,cuda:j]|interpret")
NAME: Final = Kind(lambda text, place: text, "NAME")
FILE: Final = Kind(lambda text, place: place.path(text), "FILE")
CORPUS: Final = Kind(_corpus, "DIR|URL")
GLOBS: Final = Kind(lambda text, place: (text,), "GLOB", many=True)
VALUES_GPU_TARGETS: Final = Kind(
    lambda text, place: gpu_targets(text.split(","), place.label), "ARCH[,…]", many=True
)
TARGETS: Final = Kind(_target, "TARGET", many=True)
REPORT: Final = Kind(_reports, "KIND=FILE[,…]", many=True)


DEFAULT: Final = "quick"
# Each profile, and when to use it. What it sets stands with the settings.
PROFILES: Final[Mapping[str, str]] = {
    DEFAULT: "while a kernel is being written",
    "pr": "on a pull request",
    "nightly": "at night",
    "large": "for tensors above 2^31 elements, more than 65,535 rows and strides that "
    "span gigabytes, on a GPU",
}
_LIMITS: Final = frozenset(f.name for f in fields(Budget))
_ENGINE: Final = _LIMITS | {f.name for f in fields(RunConfig)}


@dataclass(frozen=True)
class Setting:
    """One setting.

    Attributes:
        key: its name in a file. The option is two dashes and that; the variable
            KFUZZ_ and that in capitals; where `RunConfig` or its `Budget` has a field
            of that name, the setting fills it.
        kind: how its values are written and read.
        help: what the help says of the option; "" for what has none, as only profiles
            and files set it.
        default: where no place and no profile says anything.
        profiles: what profiles set it to, those that do not leave it at its default.
        option: the words of the option, where they are not the usual ones; none for
            an argument.
        repeated: whether a printed command that repeats the run repeats it, so that it
            draws the same cases.
        common: whether other verbs read it too, so that no profile may set it.
    """

    key: str
    kind: Kind
    help: str = ""
    default: Any = None
    profiles: Mapping[str, Any] = field(default_factory=dict)
    option: tuple[str, ...] | None = None
    repeated: bool = False
    common: bool = False

    @property
    def name(self) -> str:
        """The key as Python has it."""
        return self.key.replace("-", "_")

    @property
    def variable(self) -> str:
        """The environment variable."""
        return f"KFUZZ_{self.name.upper()}"

    @property
    def for_engine(self) -> bool:
        """Whether it fills a field of `RunConfig` or `Budget`."""
        return self.name in _ENGINE


def _profiles_help() -> str:
    """Return every profile in words: when to use it, and what it sets."""
    texts = []
    for name, purpose in PROFILES.items():
        # What `scale` is, the purpose says.
        own = [s for s in SETTINGS.values() if name in s.profiles and s.key != "scale"]
        sets = ", ".join(f"{s.key} {as_text(s.profiles[name])}" for s in own)
        texts.append(f"{name}: {purpose}" + (f" ({sets})" if sets else ""))
    return "; ".join(texts)


def as_text(value: Any) -> str:
    """Return the value of a setting as one line."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple):
        return " ".join(shlex.quote(str(as_plain(item))) for item in value) or "–"
    return str(value)


def as_plain(value: Any) -> Any:
    """Return the value of a setting as JSON holds it."""
    if isinstance(value, tuple):
        return [as_plain(item) for item in value]
    if isinstance(value, ReportFile):
        return f"{value.kind}={value.path}"
    return str(value) if isinstance(value, Path) else value


# In the order in which `kfuzz config` and the help show them.
SETTINGS: Final[dict[str, Setting]] = {
    s.key: s
    for s in (
        Setting(
            "targets", TARGETS,
            "path.py, path.py::name, a folder, package.module or package.module:name; "
            "without any, targets of [tool.kfuzz].", (), option=(),
        ),
        Setting(
            "max-time", DURATION,
            "For the search, from the first case on; start-up is not counted, nor are "
            "findings reduced after it: 90, 90s, 10m, 1h, 1h30m. Default: the "
            "profile's; 60s without one, and without limit if --max-cases is given.",
            "60s", {"pr": "5m", "nightly": "3h"}, repeated=True,
        ),
        Setting("max-cases", COUNT, "Cases for each kernel.", repeated=True),
        Setting("max-findings", COUNT, "Stop after N findings.", repeated=True),
        Setting("seed", SEED, "Default: a fresh one, printed.", FRESH),
        Setting(
            "profile", NAME,
            "{profiles}; or one of the project's own. `kfuzz config` prints what it "
            "comes to.", DEFAULT, repeated=True, common=True,
        ),
        Setting(
            "replay", FLAG,
            "Replay the findings stored for the targets first, in at most half of the "
            "time. Default: the profile's.", RunConfig.replay,
            {"pr": True, "nightly": True}, option=("--replay/--no-replay",),
            repeated=True,
        ),
        # The share of the cases that get the sampled probes: a second call, changed
        # data, other batches, calls at once.
        Setting("probes", SHARE, "", RunConfig.probes, {"nightly": 1 / 4}),
        Setting(
            "scale", one_of(*map(str, Scale), engine=Scale), "", str(RunConfig.scale),
            {"large": str(Scale.LARGE)},
        ),
        Setting(
            "burst", COUNT,
            "Most items of a batch, which share a structure and are checked against "
            "the contracts that are always on; 1 for no batches.", MEMBERS,
            repeated=True,
        ),
        Setting(
            "engine", one_of(*map(str, Engine), engine=Engine),
            "What chooses the cases. atheris: libFuzzer, guided by the branches of "
            "the wrapper and, interpreted, of the kernel; needs atheris installed.",
            str(RunConfig.engine), repeated=True,
        ),
        Setting(
            "prove", FLAG,
            "Prove memory and race properties of Triton kernels meanwhile, and judge "
            "the counterexamples first; needs the solver: pip install 'kfuzz[prove]'. "
            "Default: yes where it is installed, in runs of 20 s and more that "
            "nothing but their time ends.", RunConfig.prove,
            option=("--prove/--no-prove",),
        ),
        Setting(
            "locate", FLAG,
            "Name the line of source that a finding of a Triton kernel or a torch "
            "function comes from, by changing one expression at a time, on the CPU: "
            "after the search, at most 20 s a finding.", True,
            option=("--locate/--no-locate",),
        ),
        Setting(
            "also-compile", VALUES_GPU_TARGETS,
            "GPUs for which Triton kernels are also compiled and checked against the "
            "limits of a block (K-BLD-01), though none is here: "
            f"{', '.join(GPU_TARGETS)}. Nothing is run there.",
            (), repeated=True,
        ),
        Setting(
            "jobs", COUNT,
            "Workers that search side by side; with --max-cases one a kernel, and the "
            "cases are the same. Default: one for each processor that there is "
            "memory for, on each GPU one for every four processors, at most four.",
        ),
        Setting(
            "contracts", GLOBS, "Contracts to judge, e.g. 'C-PRC-*'; repeatable.", (),
            repeated=True,
        ),
        Setting(
            "exclude-contracts", GLOBS, "Contracts to leave out; repeatable.", (),
            repeated=True,
        ),
        Setting(
            "calibration", FILE,
            "What `kfuzz calibrate --format json` printed here, to know which "
            "contracts are uncalibrated. Default: what kfuzz ships.",
        ),
        Setting(
            "device", DEVICE,
            "Where kernels run; all GPUs share the work unless some are named.",
            RunConfig.device, repeated=True,
        ),
        Setting(
            "isolate", one_of("auto", "process", "none"),
            "Run kernels in processes of their own.", RunConfig.isolate, repeated=True,
        ),
        Setting(
            "corpus", CORPUS,
            "Folder of findings, or its s3://, gs:// or file:// URL (pip install "
            "'kfuzz[url]'); corpus/ of the project by default.", repeated=True,
            common=True,
        ),
        Setting(
            "fail-on", one_of("new", "any"),
            "Exit 1 on new findings only, or on known and flaky ones too.", "new",
        ),
        Setting(
            "report", REPORT,
            f"Write a report; KIND is one of {', '.join(NAMES)}. Repeatable.", (),
        ),
        Setting("format", one_of("text", "json"), "What to print on stdout.", "text"),
        Setting(
            "quiet", FLAG, "No progress and no notes.", False, option=("-q", "--quiet"),
        ),
        Setting("verbose", FLAG, "Tracebacks, too.", False, option=("-v", "--verbose")),
    )
}  # fmt: skip


def run_config(
    chosen: Callable[[str], Any], root: Path, corpus: Path, **more: Any
) -> RunConfig:
    """Return what the engine is asked to do.

    Args:
        chosen: returns the value of a setting, by key.
        root: the project's folder.
        corpus: the folder of findings.
        more: fields of `RunConfig` that no setting fills, or fills by itself.
    """
    given = {
        s.name: s.kind.engine(chosen(s.key))
        for s in SETTINGS.values()
        if s.for_engine and s.name not in {"corpus", *more}
    }
    limits = Budget(**{name: given.pop(name) for name in sorted(_LIMITS)})
    return RunConfig(root=root, corpus=corpus, budget=limits, **given, **more)


def option(
    words: str | tuple[str, ...],
    help: str,
    kind: Kind | None = None,
    *,
    metavar: str = "",
) -> Any:
    """Return an option whose value is checked, and read, as its kind says.

    Args:
        words: as typer takes them; the last one names it in messages.
        help: what the help says.
        kind: of its values; that of the parameter's type alone by default.
        metavar: how the help names a value, where not as the kind does.
    """
    words = (words,) if isinstance(words, str) else words
    return typer.Option(
        *words,
        metavar=metavar or (kind.metavar if kind else "") or None,
        help=help,
        callback=checking(kind, words[-1]) if kind else None,
    )


def shared(
    key: str, help: str = "", metavar: str = "", kind: Kind | None = None
) -> Any:
    """Return the option of a setting, for a verb other than `run`.

    Args:
        key: of the setting.
        help: what the help says, where it differs.
        metavar: how the help names a value, where it differs.
        kind: of its values, where it differs.
    """
    setting = SETTINGS[key]
    words = setting.option or (f"--{key}",)
    made = kind or setting.kind
    return option(words, help or setting.help, made, metavar=metavar)


def targets_argument(help: str, metavar: str = "TARGET") -> Any:
    """Return the argument that names kernels, for a verb other than `run`."""
    return typer.Argument(metavar=metavar, help=help)


def checking(kind: Kind, label: str) -> Callable[[Any], Any]:
    """Return a callback of typer's that reads a value as its kind says.

    Args:
        kind: of the value.
        label: names the option or argument in messages.
    """
    place = Place(label)
    return lambda value: None if value is None else kind.value(value, place)


def every_option(verb: Callable[..., int]) -> Callable[..., int]:
    """Have a verb that takes `**given` take every setting as an option.

    It is given None for what the command line does not say, which other places may.
    """
    signature = inspect.signature(verb)
    own = signature.parameters.values()
    parameters = [p for p in own if p.kind is not p.VAR_KEYWORD]
    parameters += [_parameter(s) for s in SETTINGS.values() if s.help]
    verb.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return verb


def _parameter(setting: Setting) -> inspect.Parameter:
    kind, help = setting.kind, setting.help.format(profiles=_profiles_help())
    said = "Default" in setting.help or setting.key == "profile"
    if isinstance(setting.default, str | int) and not (
        said or isinstance(setting.default, bool)
    ):
        help = f"{help} Default {setting.default}."
    words = (f"--{setting.key}",) if setting.option is None else setting.option
    make = partial(typer.Option, *words) if words else typer.Argument
    info = make(metavar=kind.metavar or None, help=help, show_default=False)
    return inspect.Parameter(
        setting.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind.option | None, info],
    )


CorpusOption = Annotated[
    str | None,
    # Read by `open_project`, which also reads the other places.
    option("--corpus", SETTINGS["corpus"].help, metavar="DIR|URL"),
]
DeviceOption = Annotated[str, shared("device")]
EnvironmentOption = Annotated[
    list[Path] | None,
    option(
        "--environment",
        "A virtual environment, a folder of `pip install --target`, or a folder of "
        "several of these. Repeatable.",
        metavar="DIR",
    ),
]
FailOnOption = Annotated[str, shared("fail-on")]
FormatOption = Annotated[str, shared("format")]
JobsOption = Annotated[int | None, shared("jobs")]
QuietOption = Annotated[bool, shared("quiet")]
TargetsArgument = Annotated[
    list[str] | None,
    targets_argument("As for `kfuzz run`; without any, targets of [tool.kfuzz]."),
]
