"""Which reports there are, and one that is asked for; light, for the command line."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class ReportKind(StrEnum):
    """What a report is for.

    JSONL keeps every event, for programs and for `kfuzz report`. JUNIT is for what
    shows test results, SARIF for what shows findings beside code, MARKDOWN for the
    summary of a job, HTML for people who would rather look than read.
    """

    JSONL = "jsonl"
    JUNIT = "junit"
    SARIF = "sarif"
    MARKDOWN = "markdown"
    HTML = "html"


@dataclass(frozen=True)
class ReportFile:
    """One report that is asked for.

    Attributes:
        kind: what it is.
        path: where it goes, as given.
        with_folder: whether its folder is made where it is not there: what a file
            configures holds in a fresh checkout too, while on a command line a folder
            that is not there is mostly a slip.
    """

    kind: ReportKind
    path: Path
    with_folder: bool = False

    def __str__(self) -> str:
        return f"report {self.kind}={self.path}"
