"""What must be the same on all machines of a run: else they judge differently."""

import functools
import hashlib
import platform
from pathlib import Path

from kfuzz.core.fingerprint import version_of
from kfuzz.core.home import HOME

_PACKAGES = ("torch", "triton", "numpy", "hypothesis")


@functools.cache
def versions() -> dict[str, str]:
    """Return the versions here by name; that of kfuzz is a hash of its source."""
    made = {"kfuzz": _source_hash(), "python": platform.python_version()}
    return made | {name: version_of(name) or "none" for name in _PACKAGES}


def differences(theirs: dict[str, str]) -> str:
    """Return how the versions of a worker differ from those here, "" if they do not."""
    ours = versions()
    return ", ".join(
        f"{name} {theirs.get(name, 'none')} (here {ours[name]})"
        for name in ours
        if theirs.get(name) != ours[name]
    )


def _source_hash() -> str:
    digest = hashlib.sha256()
    home = Path(HOME, "kfuzz")
    # The folders behind links, which `rglob` does not enter.
    for folder in (home, home / "contracts", home / "strategies"):
        for path in sorted(folder.resolve().rglob("*.py")):
            digest.update(path.relative_to(folder.resolve()).as_posix().encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
