"""Kernels of one name that live in two places: a corpus sorts findings by name."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kfuzz.core.errors import BindingError
from kfuzz.core.finding import Target
from kfuzz.store.corpus import Corpus
from kfuzz.targets.homes import binds, file_of_module, home_of
from kfuzz.targets.load import LoadedKernel

# Below it are torch's own kernels, whose names no file writes down, once for each
# backend: these are the same kernels.
_PLATFORM: Final = "kfuzz.contracts.platform."


def require_own_entries(
    loaded: Sequence[LoadedKernel], corpus: Corpus, root: Path
) -> None:
    """Check that what is stored under the names of a run's kernels is theirs.

    Else what is known of one kernel would be known of another. Where the kernel of an
    entry has gone from its place, it has moved: the entry is taken for the run's.
    Entries that name no place (of notebooks, of files outside the project) are too, and
    so is anything of a kernel that has none. Candidates bear a name for each path.

    Args:
        loaded: the run's kernels.
        corpus: where their findings will be stored; only entries under their names are
            looked at.
        root: the project.

    Raises:
        BindingError: if an entry is of another kernel, which is where it was.
    """
    for kernel in loaded:
        here = _file_of(kernel, root)
        if here is None:
            continue
        for other in corpus.homes(kernel.kernel.name):
            if other != kernel.target and _is_elsewhere(other, kernel, here, root):
                raise BindingError(
                    f"{kernel.outside or kernel.node_id} has the name of "
                    f"{other.node_id}, of which findings are stored",
                    where=str(corpus.root),
                    fix="the corpus sorts findings and marks by kernel name: give this "
                    'kernel another with kernel(…, name="…"), or another folder to '
                    "its findings with --corpus",
                )


def _is_elsewhere(other: Target, kernel: LoadedKernel, here: Path, root: Path) -> bool:
    """Whether an entry's kernel is another one than a run's, and is still there."""
    if other.reference or other.name != kernel.kernel.name:
        return False
    if other.module.startswith(_PLATFORM):
        return not kernel.target.module.startswith(_PLATFORM)
    there = home_of(other, root)
    return there is not None and there != here and binds(there, other.name)


def _file_of(kernel: LoadedKernel, root: Path) -> Path | None:
    """Return the file of a run's kernel; None of a candidate or a notebook's."""
    source = kernel.source
    if source.file is None and source.module:
        return file_of_module(source.module, root)
    return source.file
