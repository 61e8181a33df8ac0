"""What holds for a run: each setting, and which place said it.

The command line goes before the environment, that before the project's file, where a
profile's table goes before [tool.kfuzz]; then comes what the profile sets by itself.
What a person wrote down holds whatever profile is in force.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kfuzz.cli.config import SECTION, Config, profile_section
from kfuzz.cli.settings import SETTINGS, Place, Setting
from kfuzz.core.errors import UsageError, suggestion
from kfuzz.engine.search.profiles import DEFAULT, PROFILES

COMMAND_LINE: Final = "command line"
UNSAID: Final = "default"


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
            given: what the command line says, by key; None where it says nothing.
            config: of the project.
            environ: the environment; the process's by default.

        Raises:
            UsageError: if a place says what cannot be; names place and way out.
        """
        self._given, self._config = given, config
        self._environ = os.environ if environ is None else environ
        picked = self._pick(SETTINGS["profile"], {}, {})
        self.profile = self._known(picked)
        base = PROFILES.get(self.profile, PROFILES[DEFAULT]).settings()
        own = config.profiles.get(self.profile, {})
        self.chosen = {
            key: self._pick(setting, own, base) for key, setting in SETTINGS.items()
        }
        self._settle()

    def __getitem__(self, key: str) -> Any:
        """Return the value of a setting."""
        return self.chosen[key].value

    def unknown_variables(self) -> list[tuple[str, str]]:
        """Return variables that look like settings and are none, each with a hint."""
        valid = {s.variable for s in SETTINGS.values()} | _OTHER_VARIABLES
        unknown = (v for v in self._environ if v.startswith("KFUZZ_"))
        return [(v, suggestion(v, valid)) for v in sorted(unknown) if v not in valid]

    def _pick(self, setting: Setting, own: Any, base: Mapping[str, Any]) -> Chosen:
        key, config = setting.key, self._config
        if (said := self._given.get(key)) is not None:
            value = setting.read(said, Place(f"--{key}"))
            return Chosen(value, COMMAND_LINE, 0, said)
        if text := self._environ.get(setting.variable):
            said = setting.text(text)
            value = setting.read(said, Place(setting.variable))
            return Chosen(value, setting.variable, 1, said)
        name = config.file.name if config.file else ""
        if key in own:
            section = profile_section(self.profile)
            return Chosen(own[key], f"{name} {section}", 2)
        if key in config.values:
            return Chosen(config.values[key], f"{name} {SECTION}", 3)
        usual = PROFILES[DEFAULT].settings()
        if key in base and base[key] != usual[key]:
            return Chosen(base[key], f"profile {self.profile}", 4)
        return Chosen(base.get(key, setting.default), UNSAID, 5)

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


# Of other parts of kfuzz.
_OTHER_VARIABLES: Final = frozenset({"KFUZZ_CACHE", "KFUZZ_CHILD_MEMORY"})
