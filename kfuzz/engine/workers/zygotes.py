"""Zygotes: begun before torch is imported here, and kept for the next campaign.

A zygote needs a second or more to import torch, on a machine with a GPU several. Begun
first, it does so while the campaign does the same; kept, it serves the campaigns that
follow in this process at once. Nothing here imports torch.
"""

import atexit
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from kfuzz.contracts.binding import BoundKernel
from kfuzz.core.budget import SizeBudget
from kfuzz.core.errors import BindingError, KfuzzError
from kfuzz.engine.workers.jobs import LOOK_SECONDS, Stopped
from kfuzz.execution.device.backends import (
    BACKENDS,
    DeviceBackend,
    environment_for,
    first_of,
    guess,
    resolve,
)
from kfuzz.execution.processes import (
    Child,
    ChildDied,
    ChildRaised,
    ChildTimeout,
    Message,
    Template,
    Zygote,
    ZygoteError,
    forking,
    held,
    load_modules,
    unforkable,
)
from kfuzz.execution.processes.wire import Once, to_stderr
from kfuzz.targets import load
from kfuzz.targets.load import Source
from kfuzz.targets.own_code import is_triton_free

# The templates of a run: each user's file is imported once, children fork from there.
#
# Nothing here imports torch.

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
    imports: Any = forking.resolve(PREPARE)
    return not imports(_message(home))["problem"]


def _message(home: Home) -> Message:
    return {"cwd": os.getcwd(), **asdict(home), "name": ""}


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

    def adopt(self, home: Home, made: Template | Zygote | None, why: str = "") -> None:
        """Take as a file's template what has imported it; or say why there is none."""
        with self._lock:
            begun = self._begun[home] = _Begun(home.file or home.module)
            begun.why, begun.template = why, made
            begun.made += [] if made is None else [made]
            begun.over.set()

    def require_import(self, home: Home, expired: Callable[[], bool]) -> None:
        """Have a file imported in a process of its own, and wait until that is done.

        What it raises is not told: whoever imports it then meets it again.

        Raises:
            BindingError: the import ended its process, or did not end in time.
            Stopped: the run is over.
        """
        begun = self._of(home, expired)
        if begun.broken is not None:
            raise begun.broken

    def give_up(self, home: Home, why: str) -> None:
        """Have children import a file by themselves; those that there are go on."""
        if (begun := self.known(home)) is not None:
            begun.why, begun.template = why, None

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
        template = self._of(home, expired).template
        if template is not None:
            try:
                return template.fork(output)
            except ZygoteError as error:
                self.give_up(home, str(error.what))
        return self._zygote.fork(output)

    def known(self, home: Home) -> "_Begun | None":
        """Return what is known now of the template of a file, if one was begun."""
        return self._begun.get(home)

    def _of(self, home: Home, expired: Callable[[], bool]) -> "_Begun":
        """Return the template of a file once its import is over.

        Raises:
            Stopped: the run is over.
        """
        with self._lock:
            if (begun := self._begun.get(home)) is None:
                begun = self._begun[home] = _Begun(home.file or home.module)
                begun.begin(
                    partial(
                        Template, self._zygote, PREPARE, _message(home),
                        output=self._output,
                    )
                )  # fmt: skip
        while not begun.over.wait(LOOK_SECONDS):
            if expired():
                raise Stopped
        return begun

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
        template: what children are forked from; None where there is none.
        made: what is to be ended.
        over: whether the import is.
        why: why there is none, as far as that is worth telling.
        broken: what is said of an import that ended its process, or does not end.
    """

    def __init__(self, target: str) -> None:
        self.template: Template | Zygote | None = None
        self.made: list[Template | Zygote] = []
        self.over = threading.Event()
        self.why = ""
        self.broken: BindingError | None = None
        self._target = target
        self._closed = False

    def begin(self, make: Callable[[], Template]) -> None:
        """Make one, while the caller goes on."""
        until = time.monotonic() + load.limit()
        threading.Thread(target=self._import, args=(make, until), daemon=True).start()

    def close(self) -> None:
        """End it, or keep it from coming to be."""
        self._closed = True
        self.over.set()
        while self.made:
            self.made.pop().close()

    def _import(self, make: Callable[[], Template], until: float) -> None:
        """Make the template; what goes wrong its children meet again by themselves."""
        try:
            template = make()
            self.made.append(template)
            if self._imported(template, until):
                self.template = template
        except (KfuzzError, OSError):
            return
        finally:
            self.over.set()
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
                self.broken = load.ended(self._target, how)
                return False
            except (ChildRaised, ZygoteError):
                return False
            self.why = str(told["unforkable"])
            return not self.why and not told["made"]["problem"]
        if not self._closed:
            self.broken = load.overdue(self._target, load.limit())
            template.close()
        return False


SERVE: Final = "kfuzz.evaluation.worker:serve"
# Set while this process runs, and of no meaning to a child.
_OF_THIS_PROCESS: Final = frozenset({"PYTEST_CURRENT_TEST"})
# An idle one holds some hundred megabytes, most of them shared with the others.
KEPT: Final = 2


class Lent:
    """A zygote that a campaign has for itself until it gives it back.

    Attributes:
        zygote: the zygote.
        templates: what has imported users' files, for the campaign.
        guessed: whether it was begun before anyone asked for it.
    """

    def __init__(
        self,
        backend: DeviceBackend,
        serve: str,
        *,
        device: str = "",
        guessed: bool = False,
        here: bool = False,
    ) -> None:
        """Begin a zygote.

        Args:
            backend: where its children run kernels.
            serve: as for `Zygote`.
            device: the one device that its children see; the first by default.
            guessed: as the attribute.
            here: whether it is a fork of this process.
        """
        self.guessed = guessed
        self.output: Callable[[bytes], None] = _to_stderr
        self._key = _key(backend, serve, device)
        self._seen = backend.only([device], os.environ)
        self.new = partial(
            Zygote,
            serve,
            env=environment_for(backend, os.environ, device),
            preload=backend.preload,
            output=self._told,
        )
        self.zygote = self.new()
        if here:
            self.zygote.start_here(self._seen)
        else:
            self.zygote.start()
        self.templates = Templates(self.zygote, self._told)

    def again(self) -> Zygote:
        """Return another such zygote, a fork of this process as it is now."""
        made = self.new()
        made.start_here(self._seen)
        return made

    @contextmanager
    def sight(self) -> Iterator[None]:
        """Have this process see what the children do; it has asked no driver yet."""
        before = {name: os.environ.get(name) for name in self._seen}
        os.environ.update(self._seen)
        try:
            yield
        finally:
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value

    def _told(self, data: bytes) -> None:
        self.output(data)

    def fits(self, backend: DeviceBackend, serve: str, device: str = "") -> bool:
        """Whether it was begun for such children, in these surroundings.

        One that was begun ahead is for what this process does next: where the
        surroundings changed meanwhile, a file that was imported here changed them
        (torch._inductor sets a variable), and a template's import does so too.
        """
        key = _key(backend, serve, device)
        if self.guessed:
            return self._key[:3] == key[:3]
        return self._key == key

    def give_back(self) -> None:
        """End its children, and keep it for whoever asks next."""
        self.output, self.guessed = _to_stderr, False
        self.templates.close()  # a file may be another by the next campaign
        self.zygote.end_children()
        _waiting.append(self)
        while len(_waiting) > KEPT:
            _waiting.pop(0).zygote.close()


def begin_here(device: str, homes: Sequence[Home]) -> None:
    """Have a fork of this process be the zygote for the device that is asked for.

    This process imports what a zygote does and is forked. Where one file is to be
    tested it goes on to import that too, and another fork is the template. Templates of
    several begin when they are needed: what a file does once, as it is imported first,
    is not done twice at a time.
    """
    backend = guess(device)
    if backend is None:
        return
    load_modules(backend.preload)
    lent = Lent(backend, SERVE, device=first_of(device), guessed=True, here=True)
    _waiting.append(lent)
    if len(homes) != 1:
        return
    before = held()
    with lent.sight():
        imported = prepare(homes[0])
    why = unforkable(before)
    lent.templates.adopt(homes[0], lent.again() if imported and not why else None, why)


def expect(device: str) -> None:
    """Begin a zygote for the device that `--device` names, by the look of the machine.

    A guess that proves wrong costs the start of a process.
    """
    backend, first = guess(device), first_of(device)
    if backend and not any(lent.fits(backend, SERVE, first) for lent in _waiting):
        _waiting.append(Lent(backend, SERVE, device=first, guessed=True))


def lend(
    backend: DeviceBackend,
    serve: str = SERVE,
    *,
    device: str = "",
    output: Callable[[bytes], None],
) -> Lent:
    """Return a zygote for a backend, one that waits if it fits.

    Args:
        backend: where its children run kernels.
        serve: as for `Zygote`.
        device: the one device that its children see; the first by default.
        output: takes what it and its children print.
    """
    found = next((w for w in _waiting if w.fits(backend, serve, device)), None)
    for lent in list(_waiting):
        if lent is found or lent.guessed:
            _waiting.remove(lent)
        if lent is not found and lent.guessed:
            lent.zygote.close()
    made = found or Lent(backend, serve, device=device)
    made.output = output
    return made


def _key(
    backend: DeviceBackend, serve: str, device: str
) -> tuple[str, str, dict[str, str], dict[str, str]]:
    """Return what zygotes have to agree in to be put for each other."""
    env = environment_for(backend, os.environ)
    for name in _OF_THIS_PROCESS:
        env.pop(name, None)
    return backend.name, serve, backend.only([device], os.environ), env


def _to_stderr(data: bytes) -> None:
    os.write(2, data)


def waiting() -> tuple[Lent, ...]:
    """Return the zygotes that nobody has, the one that waits longest first."""
    return tuple(_waiting)


def end_all() -> None:
    """End the zygotes that nobody has."""
    while _waiting:
        _waiting.pop().zygote.close()


_waiting: Final[list[Lent]] = []
atexit.register(end_all)
# A process that is forked from this one has no part in them.
os.register_at_fork(after_in_child=_waiting.clear)


# Where kernels run: the devices, and the zygotes that children are forked from.


def runs_on(kernel: BoundKernel, backend: str) -> DeviceBackend:
    """Return what a kernel runs on: one of none of Triton is not interpreted."""
    native = BACKENDS[backend].without_triton
    return BACKENDS[native if native and is_triton_free(kernel) else backend]


def budget_for(kernel: BoundKernel, backend: str) -> SizeBudget:
    """Return the limits on the sizes of a kernel's cases; see `runs_on`."""
    return runs_on(kernel, backend).limits.sizes


class Backend:
    """Chooses where kernels run, and has the zygotes for it, one for each device.

    A child sees one device, as its first: much of what runs on a GPU takes the current
    device for the one that its arguments lie on.

    Attributes:
        on: the device backend.
        name: its name.
        devices: those that kernels are divided among, as this process has them: all
            GPUs, unless some are named.
        device: what whoever runs a kernel calls its device.
        quiet: whether what children print is dropped.
    """

    def __init__(
        self, device: str, *, isolate: str = "auto", serve: str = SERVE
    ) -> None:
        self.on, self.devices = resolve(device)
        self.name = self.on.name
        self.isolated = isolate != "none"
        self.quiet = False
        self._serve = serve
        self._printed = Once(to_stderr)
        self._lent: dict[str, Lent] = {}
        self._lending = threading.Lock()
        self._turns = -1
        self.device = self.called(self.devices[0])
        if self.isolated:
            self._of(self.devices[0])
        else:
            self.on.select(self.device)

    def called(self, device: str) -> str:
        """Return what whoever runs a kernel on one of the devices calls it."""
        return self.on.alone(device) if self.isolated else device

    def fork(
        self,
        quiet: Callable[[], bool] | None = None,
        *,
        device: str = "",
        home: Home | None = None,
        serve: str = "",
        expired: Callable[[], bool] = lambda: False,
    ) -> Child:
        """Return a new child.

        Args:
            quiet: tells whether what this child prints is dropped.
            device: one of `devices`, the only one that it sees; the first by default.
            home: what it has imported already, if that is possible.
            serve: what it serves in place of what the backend's children do.
            expired: whether the run is over.

        Raises:
            Stopped: if the run is over before there is one.
            ZygoteError: if none can be had.
        """
        assert self.isolated
        lent = self._of(device or self.devices[0])
        output = self._forward if quiet is None else _unless(quiet, self._forward)
        if home is None or lent.zygote.serve != SERVE:
            return lent.zygote.fork(output, serve=serve)
        return lent.templates.fork(home, output, expired)

    def use(self, devices: tuple[str, ...]) -> None:
        """Divide kernels among these devices only."""
        for left in set(self.devices) - set(devices):
            with self._lending:
                lent = self._lent.pop(left, None)
            if lent is not None:
                lent.give_back()
        self.devices = devices

    def turn(self) -> str:
        """Return the device that is next, where each is to have its share of work."""
        with self._lending:
            self._turns += 1
            return self.devices[self._turns % len(self.devices)]

    def own_zygote(self, device: str = "") -> Zygote:
        """Return a zygote that nobody else's children are forked from."""
        return self._of(device or self.devices[0]).new()

    def require_import(self, home: Home, expired: Callable[[], bool]) -> None:
        """Have a file imported in a process of its own first; see `Templates`.

        Raises:
            BindingError: that ended its process, or did not end.
            Stopped: the run is over.
        """
        if self.isolated and self._serve == SERVE:
            first = self._of(self.devices[0])
            first.templates.require_import(home, expired)

    def shares(self, home: Home, device: str = "") -> bool:
        """Whether children of a file come from one that imported it."""
        lent = self._lent.get(device or self.devices[0])
        begun = None if lent is None else lent.templates.known(home)
        return begun is not None and begun.template is not None

    def distrust(self, home: Home, why: str) -> None:
        """Have children import a file by themselves from now on."""
        for lent in self._all():
            lent.templates.give_up(home, why)

    def unshared(self, home: Home) -> str:
        """Return why each child imports a file by itself, "" where none does."""
        every = (lent.templates.known(home) for lent in self._all())
        return next((begun.why for begun in every if begun and begun.why), "")

    def beside(self, device: str) -> dict[str, str]:
        """Return variables under which a process sees a device and then the others."""
        others = (other for other in self.devices if other != device)
        return self.on.only([device, *others], os.environ)

    def _of(self, device: str) -> Lent:
        """Return the zygote of a device, begun when it is first asked for."""
        with self._lending:
            if device not in self._lent:
                self._lent[device] = lend(
                    self.on, self._serve, device=device, output=self._forward
                )
            return self._lent[device]

    def _all(self) -> list[Lent]:
        with self._lending:
            return list(self._lent.values())

    def _forward(self, data: bytes) -> None:
        if not self.quiet:
            self._printed(data)

    def close(self) -> None:
        """End every child; the zygotes wait for another campaign."""
        with self._lending:
            while self._lent:
                self._lent.popitem()[1].give_back()


def _unless(
    quiet: Callable[[], bool], forward: Callable[[bytes], None]
) -> Callable[[bytes], None]:
    return lambda data: None if quiet() else forward(data)
