"""Zygotes: begun before torch is imported here, and kept for the next campaign.

A zygote needs a second or more to import torch, on a machine with a GPU several. Begun
first, it does so while the campaign does the same; kept, it serves the campaigns that
follow in this process at once. Nothing here imports torch.
"""

import atexit
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

from kfuzz.engine.workers.templates import Home, Templates, prepare
from kfuzz.execution.device.backend import DeviceBackend
from kfuzz.execution.device.backends import environment_for, first_of, guess
from kfuzz.execution.processes import Zygote, held, load_modules, unforkable

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
        self._output: Callable[[bytes], None] = _to_stderr
        self._key = _key(backend, serve, device)
        self._seen = backend.only([device], os.environ)
        self._new = partial(
            Zygote,
            serve,
            env=environment_for(backend, os.environ, device),
            preload=backend.preload,
            output=self._told,
        )
        self.zygote = self._new()
        if here:
            self.zygote.start_here(self._seen)
        else:
            self.zygote.start()
        self.templates = Templates(self.zygote, self._told)

    def again(self) -> Zygote:
        """Return another such zygote, a fork of this process as it is now."""
        made = self._new()
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

    def own(self) -> Zygote:
        """Return another such zygote, a process of its own, not begun yet."""
        return self._new()

    def _told(self, data: bytes) -> None:
        self._output(data)

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

    def take(self, output: Callable[[bytes], None]) -> "Lent":
        """Return it, with its output and its children's going to `output`."""
        self._output = output
        return self

    def give_back(self) -> None:
        """End its children, and keep it for whoever asks next."""
        self._output, self.guessed = _to_stderr, False
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
    return (found or Lent(backend, serve, device=device)).take(output)


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
