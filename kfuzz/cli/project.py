"""Where a verb works: the project, its settings and its corpus."""

from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from kfuzz.cli.config import Config, corpus_folder, read_config
from kfuzz.corpus import Corpus


@dataclass(frozen=True)
class Project:
    """What every verb needs to know.

    Attributes:
        root: the project's folder.
        config: of its pyproject.toml.
        corpus: the folder of findings.
        corpus_option: what --corpus said, "" where it did not.
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


def open_project(corpus: str | None) -> Project:
    """Return the project around the working folder.

    Args:
        corpus: what --corpus says.

    Raises:
        UsageError: if its pyproject.toml or the folder cannot be used.
    """
    from kfuzz.targets.load import project_root

    config, root = read_config(), project_root()
    folder = corpus_folder(corpus, config, root)
    return Project(root, config, folder, corpus or "")
