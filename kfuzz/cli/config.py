"""[tool.kfuzz] of the nearest pyproject.toml: targets and corpus."""

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kfuzz.core.errors import UsageError, suggestion

_SECTION: Final = "[tool.kfuzz]"
_KEYS: Final = ("targets", "corpus")
DEFAULT_CORPUS: Final = "corpus"


@dataclass(frozen=True)
class Config:
    """What a project says about kfuzz.

    Attributes:
        file: the nearest pyproject.toml, None where there is none.
        targets: as on the command line; paths relative to the working folder.
        corpus: absolute path of the folder of findings, None if not said.
    """

    file: Path | None = None
    targets: tuple[str, ...] = ()
    corpus: Path | None = None


def read_config(start: Path | None = None) -> Config:
    """Read the nearest pyproject.toml at or above a folder.

    Args:
        start: the folder, the working one by default.

    Raises:
        UsageError: if it cannot be read, or says what kfuzz does not know.
    """
    here = (start or Path.cwd()).resolve()
    folders = (here, *here.parents)
    file = next((f for d in folders if (f := d / "pyproject.toml").is_file()), None)
    if file is None:
        return Config()
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # TOMLDecodeError and bad UTF-8 too
        raise UsageError(
            f"cannot be read: {error}", where=str(file), fix="it must be valid TOML"
        ) from None
    tool = document.get("tool", {})
    section = tool.get("kfuzz", {}) if isinstance(tool, dict) else {}
    where = f"{file}: {_SECTION}"
    if not isinstance(section, dict):
        raise UsageError("is not a table", where=where)
    for key in section:
        if key not in _KEYS:
            fix = suggestion(key, _KEYS)
            raise UsageError(f"unknown key {key!r:.60}", where=where, fix=fix)
    corpus = section.get("corpus")
    if corpus is not None and not (isinstance(corpus, str) and corpus):
        raise UsageError(
            f"corpus = {corpus!r:.60} is not a folder", where=where,
            fix='write corpus = "corpus"',
        )  # fmt: skip
    return Config(
        file=file,
        targets=_targets(section.get("targets", []), file.parent, here, where),
        corpus=file.parent / corpus if corpus else None,
    )


def corpus_folder(option: str | None, config: Config, root: Path) -> Path:
    """Return the folder of findings.

    Args:
        option: what --corpus says; relative to the working folder.
        config: of the project.
        root: the project; its corpus/ is the default.

    Raises:
        UsageError: if it is there and no folder.
    """
    if option == "":
        raise UsageError("is empty", where="--corpus", fix="give a folder")
    folder = Path(option) if option else config.corpus or root / DEFAULT_CORPUS
    try:
        # A name that the system cannot hold says so here, not amid a run.
        folder.lstat()
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot be used: {reason}", where=str(folder)) from None
    if folder.exists() and not folder.is_dir():
        raise UsageError(
            "is not a folder", where=str(folder), fix="--corpus names a folder"
        )
    return folder


def _targets(value: Any, base: Path, here: Path, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(t, str) and t for t in value):
        raise UsageError(
            f"targets = {value!r:.60} is not a list of targets",
            where=where,
            fix='write targets = ["kernels.py", "package.module"]',
        )
    return tuple(_from_here(target, base, here) for target in value)


def _from_here(target: str, base: Path, here: Path) -> str:
    """Return a target of a project as it is written in the working folder."""
    path, separator, name = target.partition("::")
    is_path = "/" in path or path.endswith(".py") or (base / path).exists()
    if not is_path or base == here:
        return target
    return os.path.relpath(base / path, here) + separator + name
