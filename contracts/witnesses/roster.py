"""Every witness there is for a device, and the impostors."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final

from kfuzz.contracts.binding import BoundKernel
from kfuzz.contracts.witnesses.witness import Witness, declared_in
from kfuzz.core.verdict import Role

# Modules of this package, below it, that bind what the roster lists.
_INCIDENTS: Final = "incidents"
_CHEATS: Final = "classes.cheats"
_BASELINES: Final = "classes.baselines"
_GRADIENTS: Final = ("backward.gradients", "backward.faults")
_GPU: Final = "gpu.faults"
# Where witnesses of a device run: on the first of these that they name.
_BACKENDS: Final = {"cpu": ("cpu", "interpret"), "cuda": ("cuda",)}
# Not pairs of a correct kernel and its fault.
_APART: Final = frozenset({_INCIDENTS, _CHEATS, _BASELINES})


@cache
def everywhere() -> dict[str, Witness]:
    """Return the witnesses of all modules beside this one, and in `classes`, by name.

    It imports these modules. What is planted, of gradients or for a GPU alone is
    listed elsewhere.
    """
    folder = Path(__file__).parent
    places = ("*.py", "classes/*.py")
    files = [file for place in places for file in sorted(folder.glob(place))]
    names = [".".join(f.relative_to(folder).with_suffix("").parts) for f in files]
    names = [n for n in names if n not in _APART and not n.endswith("__init__")]
    return {w.kernel: w for name in names for w in declared_in(name)}


@dataclass(frozen=True)
class Entry:
    """One implementation to be searched.

    Attributes:
        witness: where it is bound, its class and its functional test.
        role: what it is there to show.
        backend: where it runs: "cpu", "interpret" or "cuda".
        alone: whether it may crash or hang, and needs a child of its own.
    """

    witness: Witness
    role: Role
    backend: str
    alone: bool = False

    def load(self) -> BoundKernel:
        """Import its module and return the bound kernel."""
        return self.witness.load()


def roster(device: str) -> Iterator[Entry]:
    """Yield every witness and impostor of a device.

    Args:
        device: "cpu", where Triton kernels are interpreted, or "cuda".
    """
    planted = import_module(f"{__package__}.planted.on_{device}")
    listed = [*everywhere().values(), *planted.WITNESSES, *declared_in(_INCIDENTS)]
    for module in _GRADIENTS:
        listed += import_module(f"{__package__}.{module}").WITNESSES
    if device == "cpu":
        listed += declared_in(_CHEATS)
    else:
        listed += import_module(f"{__package__}.{_GPU}").WITNESSES
    for witness in listed:
        backend = _backend(witness, device)
        if backend:
            role = Role.CONFORMING if witness.conforming else Role.VIOLATING
            yield Entry(witness, role, backend, _is_fatal(witness))
    if device == "cpu":
        for witness in import_module(f"{__package__}.{_BASELINES}").WITNESSES:
            yield Entry(witness, Role.IMPOSTOR, "cpu")


def unplanted(device: str) -> dict[str, str]:
    """Return why contracts have no planted fault, by identifier."""
    planted = import_module(f"{__package__}.planted.on_{device}")
    return {
        f"{p.fault.contract}/{p.operator}": p.reason
        for p in planted.PLANTED
        if p.base is None
    }


def _backend(witness: Witness, device: str) -> str:
    """Return where a witness runs on a device, "" if it shows nothing there."""
    return next((b for b in _BACKENDS[device] if b in witness.backends), "")


def _is_fatal(witness: Witness) -> bool:
    """Whether a witness ends or stalls its process, or touches foreign pages."""
    native = witness.backends == ("cpu",) and not witness.conforming
    native = native and witness.module not in _GRADIENTS
    # What a page on the device shows takes children that have one.
    paged = witness.backends == ("cuda",) and witness.contract == "K-MEM-01"
    module = witness.module.partition(".")[0]
    stops = witness.contract == "K-LIV-01" and module != "planted"
    return native or paged or stops
