"""Where a verb works: the project, its settings and its corpus."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from kfuzz.cli.config import Config, corpus_folder, read_config
from kfuzz.core.errors import UsageError
from kfuzz.store.corpus import Corpus


@dataclass(frozen=True)
class Project:
    """What every verb needs to know.

    Attributes:
        root: the project's folder.
        config: of its pyproject.toml.
        corpus: the folder of findings.
        corpus_option: what --corpus or KFUZZ_CORPUS said, "" where neither did.
    """

    root: Path
    config: Config
    corpus: Path
    corpus_option: str

    @property
    def options(self) -> str:
        """What a printed command needs to work on the same corpus."""
        return f" --corpus {quote(self.corpus_option)}" if self.corpus_option else ""

    def store(self) -> Corpus:
        """Return the corpus."""
        return Corpus(self.corpus)

    def targets(self, given: Sequence[str] | None) -> tuple[str, ...]:
        """Return the targets given, or else those of the project.

        Raises:
            UsageError: if there are neither.
        """
        if given or self.config.targets:
            return tuple(given or self.config.targets)
        where = self.config.file
        raise UsageError(
            "no target given",
            where="" if where is None else f"{where}: [tool.kfuzz]",
            fix="name one, `kfuzz run my_kernels.py`, or set targets = "
            '["my_kernels.py"] under [tool.kfuzz] in pyproject.toml',
        )


def open_project(corpus: str | None) -> Project:
    """Return the project around the working folder.

    Args:
        corpus: what --corpus says.

    Raises:
        UsageError: if its pyproject.toml or the folder cannot be used.
    """
    from kfuzz.targets.load import project_root

    if corpus is None:
        corpus = os.environ.get("KFUZZ_CORPUS") or None
    config, root = read_config(), project_root()
    folder = corpus_folder(corpus, config, root)
    return Project(root, config, folder, corpus or "")
