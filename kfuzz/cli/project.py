"""Where a verb works: the project, what its pyproject.toml says, and its corpus."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Final

from kfuzz.cli.settings import (
    PROFILES,
    SETTINGS,
    FormatOption,
    Place,
    Setting,
    as_plain,
    as_text,
    option,
)
from kfuzz.cli.streams import ExitCode, print_report
from kfuzz.core.errors import UsageError, suggestion
from kfuzz.report.text import table
from kfuzz.store.corpus import Corpus
from kfuzz.store.files import read_toml
from kfuzz.store.mirror import is_url

SECTION: Final = "[tool.kfuzz]"
PROFILES_KEY: Final = "profiles"
DEFAULT_CORPUS: Final = "corpus"

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Config:
    """What a project says about kfuzz.

    Attributes:
        file: the nearest pyproject.toml, None where there is none.
        values: its settings, as their kinds read them.
        profiles: the settings of its own profiles, and what it changes in others.
    """

    file: Path | None = None
    values: Values = field(default_factory=dict)
    profiles: Mapping[str, Values] = field(default_factory=dict)


def read_config(start: Path | None = None) -> Config:
    """Read the nearest pyproject.toml at or above a folder.

    Args:
        start: the folder, the working one by default.

    Raises:
        DecodeError: if it cannot be read.
        UsageError: if it says what kfuzz does not know.
    """
    here = (start or Path.cwd()).resolve()
    folders = (here, *here.parents)
    file = next((f for d in folders if os.path.isfile(f := d / "pyproject.toml")), None)
    if file is None:
        return Config()
    document = read_toml(file)
    tool = document.get("tool", {})
    section = tool.get("kfuzz", {}) if isinstance(tool, dict) else {}
    where = f"{file}: {SECTION}"
    section = dict(_table(section, where))
    tables = _table(section.pop(PROFILES_KEY, {}), f"{where} {PROFILES_KEY}")
    valid = [*SETTINGS, PROFILES_KEY]
    own = [s.key for s in SETTINGS.values() if not s.common]
    profiles = {}
    for name, said in tables.items():
        place = f"{file}: {profile_section(name)}"
        profiles[name] = _values(_table(said, place), own, place, file.parent, here)
    return Config(file, _values(section, valid, where, file.parent, here), profiles)


def _table(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError("is not a table", where=where)
    return value


def profile_section(name: str) -> str:
    """Return the name of a profile's table."""
    return f"[tool.kfuzz.profiles.{name}]"


def _values(
    table: dict[str, Any], valid: list[str], where: str, base: Path, here: Path
) -> dict[str, Any]:
    """Return the settings of a table, checked."""
    values = {}
    for key, value in table.items():
        if key not in valid:
            if key in SETTINGS:
                fix = f"it holds for every verb: write it under {SECTION}"
                raise UsageError(f"{key} cannot be a profile's", where=where, fix=fix)
            fix = suggestion(key, valid)
            raise UsageError(f"unknown key {key!r:.60}", where=where, fix=fix)
        values[key] = SETTINGS[key].kind.value(
            value, Place(f"{where} {key}", base, here)
        )
    return values


@dataclass(frozen=True)
class Project:
    """What every verb needs to know.

    Attributes:
        root: the project's folder.
        config: of its pyproject.toml.
        place: the folder of findings, or the URL that they are on.
        corpus_option: what --corpus or KFUZZ_CORPUS said, "" where neither did.
    """

    root: Path
    config: Config
    place: Path | str
    corpus_option: str

    @cached_property
    def corpus(self) -> Path:
        """The folder of findings: of those on a URL its mirror, brought up to date.

        Raises:
            UsageError: if no corpus can be on the URL.
            StorageError: if its server does not answer, or refuses.
        """
        if isinstance(self.place, Path):
            return self.place
        from kfuzz.store import mirror

        return mirror.opened(self.place)

    @property
    def options(self) -> str:
        """What a printed command needs to work on the same corpus."""
        return f" --corpus {quote(self.corpus_option)}" if self.corpus_option else ""

    @property
    def modules(self) -> tuple[str, ...]:
        """Modules and packages that its file names as targets."""
        named = self.config.values.get("targets", ())
        texts = (text.partition(":")[0] for text in named)
        return tuple(t for t in texts if "/" not in t and not t.endswith(".py"))

    def store(self) -> Corpus:
        """Return the corpus."""
        return Corpus(self.corpus)

    def targets(self, given: Sequence[str] | None) -> tuple[str, ...]:
        """Return the targets given, or else those of the project.

        Raises:
            UsageError: if there are neither.
        """
        if found := given or self.config.values.get("targets"):
            return tuple(found)
        where = self.config.file
        raise UsageError(
            "no target given",
            where="" if where is None else f"{where}: [tool.kfuzz]",
            fix="name one, `kfuzz run my_kernels.py`, or set targets = "
            '["my_kernels.py"] under [tool.kfuzz] in pyproject.toml',
        )


def open_project(corpus: str | None, *, existing: bool = False) -> Project:
    """Return the project around the working folder.

    Args:
        corpus: what --corpus says.
        existing: whether a folder that --corpus names must be there.

    Raises:
        UsageError: if its pyproject.toml or the folder cannot be used.
    """
    from kfuzz.targets.load import project_root

    said = os.environ.get("KFUZZ_CORPUS") or None if corpus is None else corpus
    config, root = read_config(), project_root()
    folder = _corpus_folder(said, config, root)
    absent = isinstance(folder, Path) and not os.path.isdir(folder)
    if existing and corpus is not None and absent:
        raise UsageError("no such folder", where=f"--corpus {corpus}")
    return Project(root, config, folder, said or "")


def folder_of(corpus: str) -> Path:
    """Return a folder of findings that is named, or that of those on a URL.

    Raises:
        UsageError, StorageError: as `Project.corpus`; if there is no such folder.
    """
    if is_url(corpus):
        from kfuzz.store import mirror

        return mirror.opened(corpus)
    if not os.path.isdir(corpus):
        raise UsageError("no such folder", where=corpus)
    return Path(corpus)


def _corpus_folder(option: str | None, config: Config, root: Path) -> Path | str:
    """Return the folder of findings, or the URL that they are on.

    Args:
        option: what --corpus or KFUZZ_CORPUS says; relative to the working folder.
        config: of the project.
        root: the project; its corpus/ is the default.

    Raises:
        UsageError: if it is there and no folder.
    """
    if option == "":
        raise UsageError("is empty", where="--corpus", fix="give a folder")
    usual = config.values.get("corpus", root / DEFAULT_CORPUS)
    folder = option or usual
    if isinstance(folder, str):
        if is_url(folder):
            return folder
        folder = Path(folder)
    try:
        # A name that the system cannot hold says so here, not amid a run.
        usable = folder.is_dir() or not folder.exists()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot be used: {reason}", where=str(folder)) from None
    if not usable:
        raise UsageError("is not a folder", where=str(folder))
    return folder


# What holds for a run: each setting and the place that says it; `kfuzz config`.
#
# The command line goes before the environment, that before the project's file, where a
# profile's table goes before [tool.kfuzz]; then comes what the profile sets by itself.
# What a person wrote down holds whatever profile is in force.

COMMAND_LINE: Final = "command line"
UNSAID: Final = "default"
# Variables of other parts of kfuzz.
_OTHER_VARIABLES: Final = frozenset(
    {
        "KFUZZ_CACHE", "KFUZZ_CHILD_MEMORY", "KFUZZ_IMPORT_SECONDS",
        "KFUZZ_JUDGE_TOKEN",
    }
)  # fmt: skip


@dataclass(frozen=True)
class Chosen:
    """The value of a setting and its source.

    Attributes:
        value: as the run is given it; None where there is none.
        source: "command line", a variable, a section of the project's file, a
            profile, or "default".
        rank: 0 for the first place in the order of precedence, more for later ones.
    """

    value: Any
    source: str
    rank: int = 0


class Effective:
    """The settings of one run.

    Attributes:
        profile: the name of the profile in force.
        chosen: every setting, by key.
    """

    def __init__(
        self,
        given: Mapping[str, Any],
        config: Config,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """Find out what holds.

        Args:
            given: what the command line says, by the settings' names; None or an empty
                list where it says nothing.
            config: of the project.
            environ: the environment; the process's by default.

        Raises:
            UsageError: if a place says what cannot be; names place and way out.
        """
        self._given, self._config = given, config
        self._environ = os.environ if environ is None else environ
        self.profile = ""
        picked = self._pick(SETTINGS["profile"])
        self.profile = self._known(picked)
        others = (s for s in SETTINGS.values() if s.key != "profile")
        self.chosen = {"profile": picked, **{s.key: self._pick(s) for s in others}}
        self._settle()

    def __getitem__(self, key: str) -> Any:
        """Return the value of a setting."""
        return self.chosen[key].value

    def unknown_variables(self) -> list[tuple[str, str]]:
        """Return variables that look like settings and are none, each with a hint."""
        valid = {s.variable for s in SETTINGS.values()} | _OTHER_VARIABLES
        unknown = (v for v in self._environ if v.startswith("KFUZZ_"))
        return [(v, suggestion(v, valid)) for v in sorted(unknown) if v not in valid]

    def _pick(self, setting: Setting) -> Chosen:
        key, kind, config = setting.key, setting.kind, self._config
        if (given := self._given.get(setting.name)) not in (None, []):
            return Chosen(kind.value(given, Place(f"--{key}")), COMMAND_LINE, 0)
        if text := self._environ.get(setting.variable):
            value = kind.value(text, Place(setting.variable))
            return Chosen(value, setting.variable, 1)
        name = config.file.name if config.file else ""
        own = config.profiles.get(self.profile, {})
        if key in own:
            return Chosen(own[key], f"{name} {profile_section(self.profile)}", 2)
        if key in config.values:
            return Chosen(config.values[key], f"{name} {SECTION}", 3)
        if self.profile in setting.profiles:
            return Chosen(setting.profiles[self.profile], f"profile {self.profile}", 4)
        return Chosen(setting.default, UNSAID, 5)

    def where(self, key: str) -> str:
        """Return what says a setting, for error messages."""
        return self._place(key, self.chosen[key])

    def _place(self, key: str, picked: Chosen) -> str:
        if picked.rank < 2:
            return f"--{key}" if picked.rank == 0 else picked.source
        section = profile_section(self.profile) if picked.rank == 2 else SECTION
        return f"{self._config.file}: {section} {key}"

    def _known(self, picked: Chosen) -> str:
        """Return the name of the profile.

        Raises:
            UsageError: if there is no such profile.
        """
        valid = [*PROFILES, *self._config.profiles]
        if picked.value not in valid:
            what = f"{picked.value!r:.60} is no profile"
            where = self._place("profile", picked)
            raise UsageError(what, where=where, fix=suggestion(picked.value, valid))
        return str(picked.value)

    def _settle(self) -> None:
        """Settle what depends on two settings.

        Raises:
            UsageError: if one place asks for what excludes each other.
        """
        chosen = self.chosen
        cases, limit = chosen["max-cases"], chosen["max-time"]
        if cases.value is not None and limit.source == UNSAID:
            chosen["max-time"] = Chosen(None, "default beside max-cases", 5)
        quiet, verbose = chosen["quiet"], chosen["verbose"]
        if quiet.value and verbose.value:
            if quiet.rank == verbose.rank:
                raise UsageError("-q and -v exclude each other", fix="give one of them")
            later = "quiet" if quiet.rank > verbose.rank else "verbose"
            other = verbose if later == "quiet" else quiet
            chosen[later] = Chosen(False, other.source, other.rank)


def config(
    profile: Annotated[
        str | None,
        option(
            "--profile",
            f"{', '.join(PROFILES)}, or one of the project's own. Default: the "
            "one in force.",
            metavar="NAME",
        ),
    ] = None,
    format: FormatOption = "text",
) -> int:
    """Print the settings of `kfuzz run` as they hold here, each with its source.

    The command line goes before the environment (KFUZZ_MAX_TIME for --max-time), that
    before [tool.kfuzz.profiles.NAME], that before [tool.kfuzz] in pyproject.toml, that
    before what the profile sets by itself.
    """
    project = open_project(None)
    settings = Effective({"profile": profile}, project.config)
    chosen = {key: (c.value, c.source) for key, c in settings.chosen.items()}
    chosen["corpus"] = (project.place, chosen["corpus"][1])
    file = project.config.file
    strangers = settings.unknown_variables()

    def document() -> dict[str, Any]:
        return {
            "file": None if file is None else str(file),
            "profile": settings.profile,
            "profiles": sorted({*PROFILES, *project.config.profiles}),
            "settings": {
                key: {"value": as_plain(value), "source": source}
                for key, (value, source) in chosen.items()
            },
            "unknown_variables": [name for name, _ in strangers],
        }

    def lines() -> Iterator[str]:
        rows = [(key, as_text(value), said) for key, (value, said) in chosen.items()]
        yield from table(rows)
        yield f"file: {file or 'no pyproject.toml here or above'}"
        for name, hint in strangers:
            yield f"{name} is set and is no setting: {hint}"

    print_report(format, document, lines)
    return ExitCode.OK
