"""The templates of a run: each user's file is imported once, children fork from there.

Nothing here imports torch.
"""

import os
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from kfuzz.core.errors import BindingError, KfuzzError
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
from kfuzz.targets import importing
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


def prepare(home: Home) -> bool:
    """Import a file in this process, as a template does; return whether that went."""
    imports: Any = serving.resolve(PREPARE)
    return not imports(_message(home))["problem"]


def _message(home: Home) -> Message:
    return {"cwd": os.getcwd(), **asdict(home), "name": ""}


class Origin(Protocol):
    """What children of a file are forked from."""

    def fork(self, output: Callable[[bytes], None]) -> Child:
        """Return a new child."""

    def close(self) -> None:
        """End it and its children."""


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
                self._begun[home] = begun = _Begun(home.file or home.module)
                message = _message(home)
                begun.begin(
                    partial(
                        Template, self._zygote, PREPARE, message, output=self._output
                    )
                )

    def adopt(self, home: Home, made: "Origin | None", why: str = "") -> None:
        """Take as a file's template what has imported it; or say why there is none."""
        with self._lock:
            self._begun[home] = begun = _Begun(home.file or home.module)
            begun.adopt(made, why)

    def require_import(self, home: Home, expired: Callable[[], bool]) -> None:
        """Have a file imported in a process of its own, and wait until that is done.

        What it raises is not told: whoever imports it then meets it again.

        Raises:
            BindingError: the import ended its process, or did not end in time.
            Stopped: the run is over.
        """
        self.expect(home)
        begun = self._begun[home]
        begun.wait(expired)
        if begun.broken is not None:
            raise begun.broken

    def give_up(self, home: Home, why: str) -> None:
        """Have children import a file by themselves from now on."""
        if home in self._begun:
            self._begun[home].give_up(why)

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
                self.give_up(home, str(error.what))
        return self._zygote.fork(output)

    def has(self, home: Home) -> bool:
        """Whether children of a file come from a template, as far as is known now."""
        begun = self._begun.get(home)
        return begun is not None and begun.is_used

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

    Args:
        target: what it imports.

    Attributes:
        why: why there is none, as far as that is worth telling.
        broken: what is said of an import that ended its process, or does not end.
    """

    def __init__(self, target: str) -> None:
        self.why = ""
        self.broken: BindingError | None = None
        self._target = target
        self._template: Origin | None = None
        self._made: list[Origin] = []
        self._over = threading.Event()
        self._closed = False

    def adopt(self, made: "Origin | None", why: str) -> None:
        """Take one that is there, or why there is none."""
        self.why, self._template = why, made
        self._made = [] if made is None else [made]
        self._over.set()

    def begin(self, make: Callable[[], Template]) -> None:
        """Make one, while the caller goes on."""
        until = time.monotonic() + importing.limit()
        threading.Thread(target=self._import, args=(make, until), daemon=True).start()

    def wait(self, expired: Callable[[], bool]) -> "Origin | None":
        """Return the template, None where there is none.

        Raises:
            Stopped: the run is over.
        """
        while not self._over.wait(LOOK_SECONDS):
            if expired():
                raise Stopped
        return self._template

    @property
    def is_used(self) -> bool:
        """Whether there is one."""
        return self._template is not None

    def give_up(self, why: str) -> None:
        """Use it no more; the children that it has go on."""
        self.why, self._template = why, None

    def close(self) -> None:
        """End it, or keep it from coming to be."""
        self._closed = True
        self._over.set()
        while self._made:
            self._made.pop().close()

    def _import(self, make: Callable[[], Template], until: float) -> None:
        """Make the template; what goes wrong its children meet again by themselves."""
        try:
            template = make()
            self._made.append(template)
            if self._imported(template, until):
                self._template = template
        except (KfuzzError, OSError):
            return
        finally:
            self._over.set()
            if self._closed:
                self.close()

    def _imported(self, template: Template, until: float) -> bool:
        while not self._closed and time.monotonic() < until:
            try:
                told = template.wait(LOOK_SECONDS)
            except ChildTimeout:
                continue
            except ChildDied as died:
                how = died.signal_name or f"exit code {died.exit_code}"
                self.broken = importing.ended(self._target, how)
                return False
            except (ChildRaised, ZygoteError):
                return False
            self.why = str(told["unforkable"])
            return not self.why and not told["made"]["problem"]
        if not self._closed:
            self.broken = importing.overdue(self._target, importing.limit())
            template.close()
        return False
