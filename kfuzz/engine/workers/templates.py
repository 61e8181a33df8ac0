"""The templates of a run: each user's file is imported once, children fork from there.

Nothing here imports torch.
"""

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from kfuzz.core.errors import KfuzzError
from kfuzz.engine.workers.jobs import LOOK_SECONDS, Stopped
from kfuzz.execution.processes import (
    Child,
    ChildDied,
    ChildRaised,
    ChildTimeout,
    Message,
    Template,
    Zygote,
    ZygoteError,
    serving,
)
from kfuzz.targets.load import Source

PREPARE: Final = "kfuzz.evaluation.worker:prepare"
OPEN_SECONDS: Final = 300.0
"""Importing a user's file and, on a device, creating a context."""


@dataclass(frozen=True)
class Home:
    """What a template imports.

    Attributes:
        file: the file's path, "" where it is a module.
        module: the module's dotted name, "" where it is a file.
        root: the project.
    """

    file: str
    module: str
    root: str


def home_of(source: Source, root: Path) -> Home:
    """Return what a template has to import for the kernels of a source."""
    return Home(str(source.file or ""), source.module, str(root))


def prepare(home: Home) -> None:
    """Import a file in this process, as a template does."""
    imports: Any = serving.resolve(PREPARE)
    imports(_message(home))


def _message(home: Home) -> Message:
    return {
        "cwd": os.getcwd(),
        "root": home.root,
        "file": home.file,
        "module": home.module,
    }


class Templates:
    """Templates of one zygote, by what they import.

    Args:
        zygote: what they are forked from.
        output: takes what they and their children print.
    """

    def __init__(self, zygote: Zygote, output: Callable[[bytes], None]) -> None:
        self._zygote = zygote
        self._output = output
        self._lock = threading.Lock()
        self._begun: dict[Home, _Begun] = {}

    def expect(self, home: Home) -> None:
        """Have a file imported, while the caller goes on."""
        with self._lock:
            if home not in self._begun:
                self._begun[home] = _Begun(self._zygote, home, self._output)

    def fork(
        self,
        home: Home,
        output: Callable[[bytes], None],
        expired: Callable[[], bool] = lambda: False,
    ) -> Child:
        """Return a child that has imported a file, or is to import it by itself.

        Raises:
            Stopped: the run is over.
            ZygoteError: none can be had.
        """
        self.expect(home)
        template = self._begun[home].wait(expired)
        if template is not None:
            try:
                return template.fork(output)
            except ZygoteError as error:
                self._begun[home].give_up(str(error.what))
        return self._zygote.fork(output)

    def why_not(self, home: Home) -> str:
        """Return why children import a file by themselves, "" while they do not."""
        begun = self._begun.get(home)
        return "" if begun is None else begun.why

    def close(self) -> None:
        """End them and their children."""
        with self._lock:
            for begun in self._begun.values():
                begun.close()
            self._begun.clear()


class _Begun:
    """A template that is being made, was made, or cannot be.

    Attributes:
        why: why there is none, as far as that is worth telling.
    """

    def __init__(
        self, zygote: Zygote, home: Home, output: Callable[[bytes], None]
    ) -> None:
        self.why = ""
        self._template: Template | None = None
        self._over = threading.Event()
        self._closed = False
        self._until = time.monotonic() + OPEN_SECONDS
        self._make = partial(Template, zygote, PREPARE, _message(home), output=output)
        self._thread = threading.Thread(target=self._import, daemon=True)
        self._thread.start()

    def wait(self, expired: Callable[[], bool]) -> Template | None:
        """Return the template, None where there is none.

        Raises:
            Stopped: the run is over.
        """
        while not self._over.wait(LOOK_SECONDS):
            if expired():
                raise Stopped
        return self._template

    def give_up(self, why: str) -> None:
        """Use it no more."""
        self.why = why
        template, self._template = self._template, None
        if template is not None:
            template.close()

    def close(self) -> None:
        """End it, or keep it from coming to be."""
        self._closed = True
        self._over.set()
        if self._template is not None:
            self._template.close()

    def _import(self) -> None:
        """Make the template; what goes wrong its children meet again by themselves."""
        try:
            template = self._make()
        except KfuzzError:
            self._over.set()
            return
        kept = self._imported(template)
        if kept and not self._closed:
            self._template = template
        else:
            template.close()
        self._over.set()
        if self._closed:
            template.close()

    def _imported(self, template: Template) -> bool:
        while not self._closed and time.monotonic() < self._until:
            try:
                told = template.wait(LOOK_SECONDS)
            except ChildTimeout:
                continue
            except (ChildDied, ChildRaised, ZygoteError):
                return False
            self.why = str(told["unforkable"])
            return not self.why and not told["made"]["problem"]
        return False
