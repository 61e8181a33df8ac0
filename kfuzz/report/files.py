"""Reports in files, beside what the terminal shows."""

import os
import stat
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from kfuzz.core.errors import LISTED, HarnessError, UsageError
from kfuzz.core.event import Event, Exited
from kfuzz.report.kinds import Document, ReportFile
from kfuzz.report.tables import Gathered
from kfuzz.store.files import replace_file

# Files that are asked for on the command line: checked before, written whole after.


def require_writable(path: Path, *, where: str, with_folder: bool = False) -> None:
    """Check, before the work is done, that a file can be written.

    Args:
        path: the file, existing or not; a link is followed.
        where: as the user wrote it.
        with_folder: whether to make its folder where it is not there.

    Raises:
        UsageError: if it is a folder, or nothing can be written there.
    """
    place = Path(os.path.realpath(path))
    try:
        if place.is_dir():
            raise UsageError("is a folder", where=where, fix="name a file in it")
        if _is_special(place):
            return
        if with_folder and not place.parent.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place.parent):
            pass
        if place.exists():
            with open(place, "ab"):
                pass
    except OSError as error:
        fix = "name a file in a folder that exists and can be written"
        what = f"cannot be written here: {error.strerror}"
        raise UsageError(what, where=where, fix=fix) from None


def write(path: Path, text: str) -> None:
    """Write a file at once; a link is followed, a device or pipe written to.

    Raises:
        OSError: if it is refused; what a plain file held is then still there.
    """
    place = Path(os.path.realpath(path))
    content = text.encode(errors="backslashreplace")
    if _is_special(place):
        with open(place, "wb") as out:
            out.write(content)
        return
    replace_file(place, content, prefix=f".{place.name[:64]}.")


def write_new(path: Path, text: str) -> None:
    """Write a file that is not there yet, or leave none.

    Raises:
        FileExistsError: if it is there.
        OSError: if it is refused.
    """
    file = path.open("x", encoding="utf-8")
    try:
        with file:
            file.write(text)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _is_special(path: Path) -> bool:
    """Whether a path is there and no plain file: a device, a pipe."""
    return path.exists() and not stat.S_ISREG(path.stat().st_mode)


class ReportFiles:
    """Folds events to files.

    A report that cannot be written costs neither the run nor the others: it is named
    at the end.

    Args:
        wanted: which reports.
        root: the project's folder, for the source lines of kernels.
        options: what the replay commands in them need to find the corpus.
        findings: ids of all that will be reported; None where that is not known yet.
        corpus: where what earlier runs saw is kept; None to leave that out.

    Raises:
        UsageError: if two have one path, one cannot be written where it is to be, or
            one is of a single finding and there is another number of them.
    """

    def __init__(
        self,
        wanted: Sequence[ReportFile],
        *,
        root: Path,
        options: str = "",
        findings: Sequence[str] | None = None,
        corpus: Path | None = None,
    ) -> None:
        for report in wanted:
            if report.load().of_one:
                _require_one(report, findings)
        paths = [os.path.realpath(report.path) for report in wanted]
        for report, path in zip(wanted, paths, strict=True):
            require_writable(
                report.path, where=str(report), with_folder=report.with_folder
            )
            if paths.count(path) > 1:
                raise UsageError("two reports have this file", where=str(report))
        self._root, self._options = root, options
        self._run = Gathered(corpus=corpus)
        self._problems: list[str] = []
        self._streams: list[tuple[ReportFile, TextIO, Callable[[Event], None]]] = []
        self._documents: list[tuple[ReportFile, Document]] = []
        for report in wanted:
            kind = report.load()
            if kind.document is not None:
                self._documents.append((report, kind.document))
            if kind.stream is not None:
                out = open(report.path, "w", encoding="ascii")  # noqa: SIM115
                self._streams.append((report, out, kind.stream(out)))

    def feed(self, event: Event) -> None:
        """Take the next event; never raises."""
        self._run.feed(event)
        for stream in list(self._streams):
            report, out, feed = stream
            try:
                feed(event)
            except (OSError, ValueError, TypeError) as error:
                self._streams.remove(stream)
                self._fail(report, error)
                with suppress(OSError):  # what is still buffered
                    out.close()

    def finish(self, exited: Exited) -> None:
        """Write what is known by now; once, and never raises."""
        self.feed(exited)
        for report, out, _ in self._streams:
            try:
                out.close()
            except OSError as error:
                self._fail(report, error)
        self._streams = []
        for report, document in self._documents:
            try:
                text = document(self._run, root=self._root, options=self._options)
                write(report.path, text)
            except Exception as error:
                self._fail(report, error)

    @property
    def problems(self) -> tuple[str, ...]:
        """The reports that were not written, each with the reason."""
        return tuple(self._problems)

    def require_written(self) -> None:
        """Check that every report was written.

        Raises:
            HarnessError: naming those that were not, and why.
        """
        if self._problems:
            fix = "the corpus has every finding: `kfuzz report` makes reports of it"
            raise HarnessError("; ".join(self._problems), fix=fix)

    def _fail(self, report: ReportFile, error: Exception) -> None:
        why = error.strerror if isinstance(error, OSError) else None
        text = why or f"{type(error).__name__}: {error}"
        self._problems.append(f"{report} could not be written: {text}")


def _require_one(report: ReportFile, findings: Sequence[str] | None) -> None:
    """Check that a report of a single finding gets one.

    Raises:
        UsageError: if not; it names them.
    """
    if findings is not None and len(findings) == 1:
        return
    what = "is of one finding"
    what += "" if findings is None else f", and there are {len(findings)}"
    fix = f"write `kfuzz report {report.kind}={report.path} ID`"
    if findings:
        fix += f" with one of: {', '.join(findings[:LISTED])}"
    raise UsageError(what, where=str(report), fix=fix)
