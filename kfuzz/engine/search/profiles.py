"""Profiles: what a search is for, and the settings that follow from it.

This is the one place that says what each sets; the help of the command line is made of
it, and the table in README.md is held against it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Final

from kfuzz.core.budget import Scale
from kfuzz.core.burst import MEMBERS


@dataclass(frozen=True)
class Profile:
    """The settings of `kfuzz run` that depend on what it is for.

    Attributes:
        purpose: when to use it, in words.
        max_time: for the whole run, as on the command line.
        replay: whether the findings stored for the targets are replayed first.
        seed: "fresh" where each run draws other cases than the one before.
        engine: what chooses the cases.
        burst: most members of a burst.
        probes: share of the cases that get the sampled probes: a second call, changed
            data, other batches, calls at once.
        scale: which sizes are searched.
    """

    purpose: str
    max_time: str = "60s"
    replay: bool = False
    seed: str = "fresh"
    engine: str = "hypothesis"
    burst: int = MEMBERS
    probes: float = 1 / 16
    scale: Scale = Scale.USUAL

    def settings(self) -> dict[str, str | int | float | bool]:
        """Return what it sets, by the names of the settings."""
        named = (f.name for f in fields(self) if f.name != "purpose")
        return {name.replace("_", "-"): getattr(self, name) for name in named}


DEFAULT: Final = "quick"
PROFILES: Final[Mapping[str, Profile]] = MappingProxyType(
    {
        "quick": Profile("while a kernel is being written"),
        "pr": Profile("on a pull request", max_time="5m", replay=True),
        "nightly": Profile("at night", max_time="3h", replay=True, probes=1 / 4),
        "large": Profile(
            "for tensors above 2^31 elements, more than 65,535 rows and strides that "
            "span gigabytes, on a GPU",
            scale=Scale.LARGE,
        ),
    }
)


def described(name: str) -> str:
    """Return a profile in words: when to use it, and what it sets beside the default.

    Args:
        name: one of `PROFILES`.
    """
    profile, usual = PROFILES[name], PROFILES[DEFAULT].settings()
    own = {k: v for k, v in profile.settings().items() if v != usual[k]}
    own.pop("scale", None)  # the purpose says it
    texts = [f"{key} {shown(value)}" for key, value in own.items()]
    return f"{name}: {profile.purpose}" + (f" ({', '.join(texts)})" if texts else "")


def shown(value: object) -> str:
    """Return the value of a setting as text."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)
