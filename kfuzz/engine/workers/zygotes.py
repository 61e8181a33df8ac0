"""Zygotes: begun before torch is imported here, and kept for the next campaign.

A zygote needs a second or more to import torch, on a machine with a GPU several. Begun
first, it does so while the campaign does the same; kept, it serves the campaigns that
follow in this process at once. Nothing here imports torch.
"""

import atexit
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from kfuzz.contracts.binding import BoundKernel
from kfuzz.core.budget import SizeBudget
from kfuzz.core.errors import BindingError, KfuzzError
from kfuzz.engine.workers.jobs import LOOK_SECONDS, Stopped, waited
from kfuzz.execution.device.backends import (
    BACKENDS,
    DeviceBackend,
    environment_for,
    first_of,
    guess,
    resolve,
)
from kfuzz.execution.processes import forking, wire
from kfuzz.execution.processes.child import Child, Template, Zygote, held, unforkable
from kfuzz.execution.processes.forking import load_modules
from kfuzz.targets.load import Source, ended, limit, overdue, request_for
from kfuzz.targets.own_code import is_triton_free

# The templates of a run: each user's file is imported once, children fork from there.
#
# Nothing here imports torch.

PREPARE: Final = "kfuzz.evaluation.worker:prepare"
OPEN_SECONDS: Final = 300.0
"""Importing a user's file and, on a device, creating a context."""


class Home(NamedTuple):
    """What a template imports.

    Attributes:
        source: the file or module.
        root: the project.
    """

    source: Source
    root: Path


def home_of(source: Source, root: Path) -> Home:
    """Return what a template has to import for the kernels of a source."""
    return Home(replace(source, only=()), root)


class Import:
    """The import of a user's file in a template, which its children are forked from.

    Attributes:
        template: what children are forked from; None where there is none.
        why: why there is none, as far as that is worth reporting.
        broken: what is reported of an import that ended its process, or does not end.
        is_over: whether the import is.
        lock: held by who waits for it.
    """

    def __init__(self, home: Home) -> None:
        self.template: Template | Zygote | None = None
        self.why = ""
        self.broken: BindingError | None = None
        self.is_over = False
        self.lock = threading.Lock()
        self._home = home
        self._made: Template | Zygote | None = None

    def adopt(self, made: Zygote | None, why: str) -> None:
        """Take what has imported it already; or say why there is none."""
        self.template = self._made = made
        self.why, self.is_over = why, True

    def give_up(self, why: str) -> None:
        """Have children import it by themselves; those that there are go on."""
        self.why, self.template = why, None

    def close(self) -> None:
        """End the template and its children."""
        if self._made is not None:
            self._made.close()

    def run(
        self,
        zygote: Zygote,
        output: Callable[[bytes], None],
        expired: Callable[[], bool],
    ) -> None:
        """Make the template; what goes wrong its children meet again by themselves.

        Raises:
            Stopped: the run is over.
        """
        source, root = self._home
        target = str(source.file or source.module)
        try:
            request = request_for(source, root)
            made = self._made = Template(zygote, PREPARE, request, output=output)
            try:
                reply = waited(made.wait, limit(), expired)
            except wire.ChildTimeout:
                raise overdue(target, limit()) from None
            self.why = str(reply["unforkable"])
            self.template = None if self.why else made
        except wire.ChildDied as died:
            self.broken = ended(target, died.how)
        except BindingError as late:
            self.broken = late
        except (KfuzzError, OSError):
            pass
        finally:
            if self.template is None:
                self.close()
        self.is_over = True


SERVE: Final = "kfuzz.evaluation.worker:serve"
# Set while this process runs, and of no meaning to a child.
_OF_THIS_PROCESS: Final = frozenset({"PYTEST_CURRENT_TEST"})
# An idle one holds some hundred megabytes, most of them shared with the others.
KEPT: Final = 2


class Leased:
    """A zygote that a campaign has for itself until it gives it back.

    Attributes:
        zygote: the zygote.
        imports: what has imported users' files, for the campaign.
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
        self.output: Callable[[bytes], None] = wire.to_stderr
        self._key = _key(backend, serve, device)
        self._seen = backend.only([device], os.environ)
        self.new = partial(
            Zygote,
            serve,
            env=environment_for(backend, os.environ, device),
            preload=backend.preload,
            output=self._told,
            pickled=True,
        )
        self.zygote = self.new()
        if here:
            self.zygote.start_here(self._seen)
        else:
            self.zygote.start()
        self.imports: dict[Home, Import] = {}

    def imported(self, home: Home, expired: Callable[[], bool]) -> Import:
        """Return the import of a file once it is over, begun if it was not yet.

        Raises:
            Stopped: the run is over.
        """
        begun = self.imports.setdefault(home, Import(home))
        while not begun.lock.acquire(timeout=LOOK_SECONDS):
            if expired():
                raise Stopped
        try:
            if not begun.is_over:
                begun.run(self.zygote, self._told, expired)
        finally:
            begun.lock.release()
        return begun

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
        self.output, self.guessed = wire.to_stderr, False
        while self.imports:  # a file may be another by the next campaign
            self.imports.popitem()[1].close()
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
    leased = Leased(backend, SERVE, device=first_of(device), guessed=True, here=True)
    _waiting.append(leased)
    if len(homes) != 1:
        return
    before, [home] = held(), homes
    begun = leased.imports[home] = Import(home)
    prepare: Any = forking.resolve(PREPARE)
    try:
        with leased.sight():
            prepare(request_for(*home))
        why = unforkable(before)
        begun.adopt(None if why else leased.again(), why)
    except KfuzzError:  # whoever imports it meets that again
        begun.adopt(None, "")


def expect(device: str) -> None:
    """Begin a zygote for the device that `--device` names, by the look of the machine.

    A guess that proves wrong costs the start of a process.
    """
    backend, first = guess(device), first_of(device)
    if backend and not any(leased.fits(backend, SERVE, first) for leased in _waiting):
        _waiting.append(Leased(backend, SERVE, device=first, guessed=True))


def lend(
    backend: DeviceBackend,
    serve: str = SERVE,
    *,
    device: str = "",
    output: Callable[[bytes], None],
) -> Leased:
    """Return a zygote for a backend, one that waits if it fits.

    Args:
        backend: where its children run kernels.
        serve: as for `Zygote`.
        device: the one device that its children see; the first by default.
        output: takes what it and its children print.
    """
    found = next((w for w in _waiting if w.fits(backend, serve, device)), None)
    for leased in [w for w in _waiting if w is found or w.guessed]:
        _waiting.remove(leased)
        if leased is not found:
            leased.zygote.close()
    made = found or Leased(backend, serve, device=device)
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


def end_all() -> None:
    """End the zygotes that nobody has."""
    while _waiting:
        _waiting.pop().zygote.close()


_waiting: Final[list[Leased]] = []
atexit.register(end_all)
# A process that is forked from this one has no part in them.
os.register_at_fork(after_in_child=_waiting.clear)


# Where kernels run: the devices, and the zygotes that children are forked from.


def runs_on(kernel: BoundKernel, backend: str) -> DeviceBackend:
    """Return what a kernel runs on: one of none of Triton is not interpreted.

    Those of other libraries may be, and get smaller sizes.
    """
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
        self._printed = wire.Once(wire.to_stderr)
        self._leased: dict[str, Leased] = {}
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
        quiet: Callable[[], bool] = lambda: False,
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
        leased = self._of(device or self.devices[0])

        def output(data: bytes) -> None:
            if not quiet():
                self._forward(data)

        if home is not None and leased.zygote.serve == SERVE:
            begun = leased.imported(home, expired)
            if begun.template is not None:
                try:
                    return begun.template.fork(output)
                except wire.ZygoteError as error:
                    begun.give_up(error.what)
        return leased.zygote.fork(output, serve=serve)

    def use(self, devices: tuple[str, ...]) -> None:
        """Divide kernels among these devices only."""
        for left in set(self.devices) - set(devices):
            with self._lending:
                leased = self._leased.pop(left, None)
            if leased is not None:
                leased.give_back()
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
        """Have a file imported in a process of its own, and wait until that is done.

        What it raises is not reported: whoever imports it then meets it again.

        Raises:
            BindingError: that ended its process, or did not end in time.
            Stopped: the run is over.
        """
        if self.isolated and self._serve == SERVE:
            begun = self._of(self.devices[0]).imported(home, expired)
            if begun.broken is not None:
                raise begun.broken

    def shares(self, home: Home, device: str = "") -> bool:
        """Whether children of a file come from one that imported it."""
        leased = self._leased.get(device or self.devices[0])
        begun = None if leased is None else leased.imports.get(home)
        return begun is not None and begun.template is not None

    def distrust(self, home: Home, why: str) -> None:
        """Have children import a file by themselves from now on."""
        for begun in self._imports(home):
            begun.give_up(why)

    def unshared(self, home: Home) -> str:
        """Return why each child imports a file by itself, "" where none does."""
        return next((begun.why for begun in self._imports(home) if begun.why), "")

    def _of(self, device: str) -> Leased:
        """Return the zygote of a device, begun when it is first asked for."""
        with self._lending:
            if device not in self._leased:
                self._leased[device] = lend(
                    self.on, self._serve, device=device, output=self._forward
                )
            return self._leased[device]

    def _imports(self, home: Home) -> list[Import]:
        with self._lending:
            every = [leased.imports.get(home) for leased in self._leased.values()]
        return [begun for begun in every if begun is not None]

    def _forward(self, data: bytes) -> None:
        if not self.quiet:
            self._printed(data)

    def close(self) -> None:
        """End every child; the zygotes wait for another campaign."""
        with self._lending:
            while self._leased:
                self._leased.popitem()[1].give_back()
