"""Where a verb works: the project, what its pyproject.toml says, and its corpus."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import Any, Final

from kfuzz.cli.settings import REMOVED, SETTINGS
from kfuzz.cli.values import Place
from kfuzz.core.errors import UsageError, suggestion
from kfuzz.core.finding import ATEN
from kfuzz.store.corpus import Corpus
from kfuzz.store.objects import is_url
from kfuzz.store.toml_file import read_toml

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
    for name, table in tables.items():
        place = f"{file}: {profile_section(name)}"
        profiles[name] = _values(_table(table, place), own, place, file.parent, here)
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
            if key in REMOVED:
                fix = f"delete the line: {REMOVED[key]}"
                raise UsageError(f"{key} is no setting any more", where=where, fix=fix)
            fix = suggestion(key, valid)
            raise UsageError(f"unknown key {key!r:.60}", where=where, fix=fix)
        values[key] = SETTINGS[key].kind.read(
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
        named = (
            *self.config.values.get("targets", ()),
            *self.config.values.get("aten", ()),
        )
        texts = (text.removeprefix(ATEN).partition(":")[0] for text in named)
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
        folder.lstat()
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot be used: {reason}", where=str(folder)) from None
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise UsageError(
            "is not a folder", where=str(folder), fix="--corpus names a folder"
        )
    return folder
