"""What holds for a run: each setting and the place that says it; `kfuzz config`.

The command line goes before the environment, that before the project's file, where a
profile's table goes before [tool.kfuzz]; then comes what the profile sets by itself.
What a person wrote down holds whatever profile is in force.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from kfuzz.cli.exit_codes import ExitCode
from kfuzz.cli.project import SECTION, Config, open_project, profile_section
from kfuzz.cli.settings import (
    PROFILES,
    SETTINGS,
    FormatOption,
    Setting,
    as_plain,
    as_text,
    option,
)
from kfuzz.cli.standard_streams import print_report
from kfuzz.cli.values import Place
from kfuzz.core.errors import UsageError, suggestion

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
        said: what the command line or a variable says, as a file would.
    """

    value: Any
    source: str
    rank: int = 0
    said: Any = None


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
        if (said := self._given.get(setting.name)) not in (None, []):
            said = kind.text(said) if isinstance(said, str) else said
            return Chosen(kind.read(said, Place(f"--{key}")), COMMAND_LINE, 0, said)
        if text := self._environ.get(setting.variable):
            said = kind.text(text)
            value = kind.read(said, Place(setting.variable))
            return Chosen(value, setting.variable, 1, said)
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
            raise UsageError(
                f"{picked.value!r:.60} is no profile",
                where=self._place("profile", picked),
                fix=suggestion(picked.value, valid),
            )
        name: str = picked.value
        return name

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
        widths = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:2]]
        for key, value, source in rows:
            yield f"{key:<{widths[0]}}  {value:<{widths[1]}}  {source}"
        yield f"file: {file or 'no pyproject.toml here or above'}"
        for name, hint in strangers:
            yield f"{name} is set and is no setting: {hint}"

    print_report(format, document, lines)
    return ExitCode.OK
