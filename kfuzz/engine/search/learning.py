"""What a run takes over from what earlier ones learnt, and leaves to later ones."""

import math
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from kfuzz.core.errors import DecodeError, KfuzzError
from kfuzz.engine.config import RunConfig
from kfuzz.engine.search.learnt import Learnt
from kfuzz.engine.search.learnt_store import Key, Store
from kfuzz.engine.search.round import KernelTurns
from kfuzz.targets.identity import identity

# Between two times that what a kernel's search has learnt is written.
_SECONDS: Final = 10.0


class Learning:
    """What a run takes over from earlier ones, and leaves to later ones.

    Args:
        config: the run.
        backend: "cpu", "interpret" or "cuda": sizes, and so cases, differ.

    Raises:
        UsageError: if what it is to begin with is not kept.
    """

    def __init__(self, config: RunConfig, backend: str) -> None:
        self._store = Store(config.root)
        self._backend = backend
        self._keeps = config.learn
        self._begun = self._store.begun(config.learnt) if config.learnt else {}
        self._dropped: defaultdict[str, list[str]] = defaultdict(list)
        self._unkept = ""
        self._keys: dict[str, Key] = {}
        self._told: dict[str, Learnt] = {}
        self._written: dict[str, float] = {}

    def of(self, kernel: KernelTurns) -> Learnt | None:
        """Return what earlier runs have learnt of a kernel, if it is of use."""
        if not self._begun:
            return None
        key = self._key(kernel)
        text = self._begun.get(key.file)
        if text is None:
            return None
        try:
            return key.read(text)
        except DecodeError as error:
            self._dropped[error.what].append(kernel.node_id)
            return None

    def keep(self, kernel: KernelTurns, *, now: bool) -> None:
        """Leave what a kernel's search has learnt to later runs; never raises.

        Args:
            kernel: between two turns.
            now: however little time has passed since the last time.
        """
        if not self._keeps or not kernel.rounds:
            return
        name, clock = kernel.node_id, time.monotonic()
        if not now and clock - self._written.get(name, -math.inf) < _SECONDS:
            return
        self._written[name] = clock
        learnt = kernel.discovery.learnt()
        told = self._told.get(name)
        try:
            self._store.add(
                self._key(kernel),
                learnt if told is None else learnt.without(told),
                first=told is None,
            )
        except (OSError, KfuzzError) as error:
            self._unkept = str(getattr(error, "strerror", None) or error)
            self._keeps = False  # to try again may take as long as this did
            return
        self._told[name] = learnt

    def notices(self) -> Iterator[str]:
        """Yield what a person should know of it, once."""
        for why, kernels in self._dropped.items():
            shown = ", ".join(kernels)
            yield f"what earlier runs learnt of {shown} is dropped: {why}"
        self._dropped.clear()
        if self._unkept:
            yield f"what this run learns is not kept: {self._unkept}"
            self._unkept = ""

    def _key(self, kernel: KernelTurns) -> Key:
        """Return what the state of a kernel is of: its code as it was at the start."""
        name = kernel.node_id
        if name not in self._keys:
            source = identity(kernel.loaded.kernel.function)
            self._keys[name] = Key(kernel.name, name, self._backend, source)
        return self._keys[name]
