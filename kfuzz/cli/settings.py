"""The settings of `kfuzz run`, each declared once, and the options made of them.

A setting's entry in `SETTINGS` is all there is to say of it: its option with help, its
environment variable, its key in [tool.kfuzz] and how the value is read, what it is by
default and in each profile, and whether it is a field of `RunConfig`. Other verbs take
the same entries for options that they share. To add one: an entry here, and the field
of `RunConfig` that the engine reads.
"""

import inspect
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from kfuzz.cli import completion, values
from kfuzz.cli.values import Kind, Place, one_of
from kfuzz.core.budget import Budget, Scale
from kfuzz.core.burst import MEMBERS
from kfuzz.engine.config import Engine, RunConfig
from kfuzz.execution.launches.gpu_targets import GPU_TARGETS
from kfuzz.report.kinds import NAMES, ReportFile

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
        metavar: how the help names a value, where not as the kind does.
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
    metavar: str = ""
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


REMOVED: Final = {"learnt": "a run draws nothing from earlier ones any more"}
"""Keys that were settings once, and what became of them."""

# In the order in which `kfuzz config` and the help show them.
SETTINGS: Final[dict[str, Setting]] = {
    s.key: s
    for s in (
        Setting(
            "targets",
            values.TARGETS,
            "path.py, path.py::name, a folder, package.module or package.module:name; "
            "without any, targets of [tool.kfuzz].",
            (),
            option=(),
        ),
        Setting(
            "aten",
            values.MODULES,
            "A package that overrides torch's operators: search every overload that it "
            "implements, by registrations while it is imported or by a table of its "
            "own. Repeatable.",
            (),
            repeated=True,
        ),
        Setting(
            "max-time",
            values.DURATION,
            "For the whole run, from the first case on; start-up is not counted: 90, "
            "90s, 10m, 1h, 1h30m. Default: the profile's; 60s without one, and without "
            "limit if --max-cases is given.",
            "60s",
            {"pr": "5m", "nightly": "3h"},
            repeated=True,
        ),
        Setting("max-cases", values.COUNT, "Cases for each kernel.", repeated=True),
        Setting("max-findings", values.COUNT, "Stop after N findings.", repeated=True),
        Setting("seed", values.SEED, "Default: a fresh one, printed.", values.FRESH),
        Setting(
            "profile",
            values.NAME,
            "{profiles}; or one of the project's own. `kfuzz config` prints what it "
            "comes to.",
            DEFAULT,
            repeated=True,
            common=True,
        ),
        Setting(
            "replay",
            values.FLAG,
            "Replay the findings stored for the targets first, in at most half of the "
            "time. Default: the profile's.",
            RunConfig.replay,
            {"pr": True, "nightly": True},
            option=("--replay/--no-replay",),
            repeated=True,
        ),
        # The share of the cases that get the sampled probes: a second call, changed
        # data, other batches, calls at once.
        Setting("probes", values.SHARE, "", RunConfig.probes, {"nightly": 1 / 4}),
        Setting(
            "scale",
            one_of(*map(str, Scale), engine=Scale),
            "",
            str(RunConfig.scale),
            {"large": str(Scale.LARGE)},
        ),
        Setting(
            "burst",
            values.COUNT,
            "Most items of a batch, which share a structure and are checked against "
            "the contracts that are always on; 1 for no batches.",
            MEMBERS,
            repeated=True,
        ),
        Setting(
            "engine",
            one_of(*map(str, Engine), engine=Engine),
            "What chooses the cases. atheris: libFuzzer, guided by the branches of the "
            "wrapper and, interpreted, of the kernel; needs atheris installed.",
            str(RunConfig.engine),
            repeated=True,
        ),
        Setting(
            "prove",
            values.FLAG,
            "Prove memory and race properties of Triton kernels meanwhile, and judge "
            "the counterexamples first; needs the solver: pip install 'kfuzz[prove]'. "
            "Default: yes where it is installed, in runs of 20 s and more that nothing "
            "but their time ends.",
            RunConfig.prove,
            option=("--prove/--no-prove",),
        ),
        Setting(
            "also-compile",
            values.GPU_TARGETS,
            "GPUs for which Triton kernels are also compiled and held to the limits of "
            "a block (K-BLD-01), though none is here: "
            f"{', '.join(GPU_TARGETS)}. Nothing is run there.",
            (),
            repeated=True,
        ),
        Setting(
            "jobs",
            values.COUNT,
            "Kernels searched side by side; the cases are the same. Default: one for "
            "each processor, on each GPU one for every four processors, at most four.",
        ),
        Setting(
            "contracts",
            values.GLOBS,
            "Contracts to judge, e.g. 'C-PRC-*'; repeatable.",
            (),
            repeated=True,
        ),
        Setting(
            "exclude-contracts",
            values.GLOBS,
            "Contracts to leave out; repeatable.",
            (),
            repeated=True,
        ),
        Setting(
            "calibration",
            values.FILE,
            "What `kfuzz calibrate --format json` printed here, to know which "
            "contracts are uncalibrated. Default: what kfuzz ships.",
        ),
        Setting(
            "device",
            values.DEVICE,
            "Where kernels run; all GPUs share the work unless some are named.",
            RunConfig.device,
            repeated=True,
        ),
        Setting(
            "on",
            values.ON,
            "Search on a cluster of Ray: the one that RAY_ADDRESS names, else one of "
            "this machine's own, or that of an address; needs Ray: pip install "
            "'kfuzz[ray]'.",
            repeated=True,
        ),
        Setting(
            "isolate",
            one_of("auto", "process", "none"),
            "Run kernels in processes of their own.",
            RunConfig.isolate,
            repeated=True,
        ),
        Setting(
            "corpus",
            values.CORPUS,
            "Folder of findings, or its s3://, gs:// or file:// URL (pip install "
            "'kfuzz[url]'); corpus/ of the project by default.",
            repeated=True,
            common=True,
        ),
        Setting(
            "fail-on",
            one_of("new", "any"),
            "Exit 1 on new findings only, or on known and flaky ones too.",
            "new",
        ),
        Setting(
            "report",
            values.REPORT,
            f"Write a report; KIND is one of {', '.join(NAMES)}. Repeatable.",
            (),
        ),
        Setting("format", one_of("text", "json"), "What to print on stdout.", "text"),
        Setting(
            "quiet",
            values.FLAG,
            "No progress and no notes.",
            False,
            option=("-q", "--quiet"),
        ),
        Setting(
            "verbose",
            values.FLAG,
            "Tracebacks, too.",
            False,
            option=("-v", "--verbose"),
        ),
    )
}


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
    kind: Kind = values.ANY,
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
        metavar=metavar or kind.metavar or None,
        help=help,
        callback=checking(kind, words[-1]),
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
    names = completion.targets
    return typer.Argument(metavar=metavar, autocompletion=names, help=help)


def checking(kind: Kind, label: str) -> Callable[[Any], Any]:
    """Return a callback of typer's that reads a value as its kind says.

    Args:
        kind: of the value.
        label: names the option or argument in messages.
    """

    def read(value: Any) -> Any:
        return value if value is None else kind.read(value, Place(label))

    return read


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
    if isinstance(setting.default, str | int) and not _says_default(setting):
        help = f"{help} Default {setting.default}."
    more: dict[str, Any] = {
        "metavar": setting.metavar or kind.metavar or None,
        "help": help,
        "show_default": False,
    }
    if setting.option == ():
        info = typer.Argument(autocompletion=completion.targets, **more)
    else:
        info = typer.Option(*(setting.option or (f"--{setting.key}",)), **more)
    return inspect.Parameter(
        setting.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind.option | None, info],
    )


def _says_default(setting: Setting) -> bool:
    told = "Default" in setting.help or setting.key == "profile"
    return told or isinstance(setting.default, bool)


CorpusOption = Annotated[
    str | None,
    # Read by `open_project`, which also reads the other places.
    option("--corpus", SETTINGS["corpus"].help, metavar="DIR|URL"),
]
DeviceOption = Annotated[str, shared("device")]
FailOnOption = Annotated[str, shared("fail-on")]
FormatOption = Annotated[str, shared("format")]
JobsOption = Annotated[int | None, shared("jobs")]
QuietOption = Annotated[bool, shared("quiet")]
TargetsArgument = Annotated[
    list[str] | None,
    targets_argument("As for `kfuzz run`; without any, targets of [tool.kfuzz]."),
]
