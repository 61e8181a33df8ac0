"""Watching Triton's interpreter: what it runs, touches, and computes wrongly.

Every address is checked (`addresses`). The interpreter's own
bfloat16 and float8 arithmetic is wrong (casts truncate, maxima of bfloat16 compare
bit patterns). While a watch lasts it is corrected (`low_precision`); a
case that touches what cannot be corrected is not judged. Outside a watch Triton is as
its user installed it.
"""

import contextlib
import ctypes
import inspect
import math
import os
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from importlib import import_module
from linecache import getline
from operator import index
from traceback import walk_tb
from typing import Any, Final, cast

import numpy as np
import torch
from numpy.typing import NDArray

from kfuzz.core.errors import chain, message_of
from kfuzz.core.verdict import Access
from kfuzz.execution.calls import tuning
from kfuzz.execution.calls.compiling import gets_on
from kfuzz.execution.calls.patches import Patches
from kfuzz.execution.device import simulated
from kfuzz.execution.interpreter import (
    inline_assembly,
    language,
    libdevice,
    low_precision,
    memory,
    vectorised,
)
from kfuzz.execution.interpreter.memory import AddressCheck, Reach, tensors_in
from kfuzz.execution.interpreter.programs import NotVectorised

# Launches in Triton's interpreter, made as compiled kernels are launched.
#
# A number that a kernel is given is a tensor of its parameter's type there (a float one
# of 32 bits), a grid may be a list, a function that makes it sees the caller's
# arguments, and a parameter is a constant if its annotation says so, however the file
# has the name.

_CONSTANT: Final = "constexpr"


def install(module: Any, patches: Patches) -> None:
    """Have kernels launched so until the patches are undone.

    Args:
        module: `triton.runtime.interpreter`.
        patches: takes what is replaced.
    """
    executor = module.GridExecutor
    patches.set(module, "_implicit_cvt", _converted(module))
    patches.set(executor, "__call__", _launched(module, executor.__call__))


def _converted(module: Any) -> Callable[[Any], Any]:
    original = module._implicit_cvt

    def converted(argument: Any) -> Any:
        # A bool was made a wide integer up to some release.
        kind = {bool: "u1", float: "fp32"}.get(type(argument))
        return _scalar(module, argument, kind) if kind else original(argument)

    return converted


def _scalar(module: Any, value: Any, name: str) -> Any:
    """Return a number as a tensor of Triton's, of a type by its short name."""
    dtype = module.tl.str_to_ty(name, None)
    wanted = module._get_np_dtype(dtype)
    if dtype.is_int():  # bits of what the launcher packs
        kept = int(value) % (1 << 8 * wanted.itemsize)
        data = np.array([kept], f"u{wanted.itemsize}").astype(wanted)
    else:
        data = np.array([value]).astype(wanted)
    return module.tl.tensor(module.TensorHandle(data, dtype), dtype)


@lru_cache(256)
def _parameters(
    kernel: Any, normalized: Callable[[Any], str]
) -> tuple[inspect.Signature, dict[str, str]]:
    """Return what a kernel takes, and by name the types that it declares."""
    signature, declared = inspect.signature(kernel), inspect.get_annotations(kernel)
    kinds = {name: "" for name in signature.parameters}
    return signature, kinds | {name: normalized(t) for name, t in declared.items()}


def _launched(module: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    """Return the launch of a grid whose programs `Launches.run` runs."""
    builder, jit = module.interpreter_builder, module.triton.runtime.jit
    numeric = frozenset(jit.type_canonicalisation_dict.values())

    def launch(executor: Any, *arguments: Any, **named: Any) -> Any:
        kernel = executor.fn
        signature, kinds = _parameters(kernel, jit._normalize_ty)
        named = {name: value for name, value in named.items() if name in kinds}

        def bound(given: Any, by_name: Any) -> dict[str, Any]:
            made = signature.bind(*given, **by_name)
            made.apply_defaults()
            return made.arguments

        if callable(executor.grid):
            executor.grid = executor.grid(bound(arguments, named))
        if isinstance(executor.grid, list):
            executor.grid = tuple(executor.grid)
        if (grid := _sizes(executor.grid)) is None:
            return original(executor, *arguments, **named)

        def held(name: str, value: Any) -> Any:
            kind = kinds[name]
            if _CONSTANT in kind or name in executor.constexprs:
                return getattr(module, language.MEANT)(value)
            if isinstance(value, int | float) and kind in numeric:
                return _scalar(module, value, kind)
            return module._implicit_cvt(value)

        # What runs now asks of tensors where they are, not where they say.
        with torch._C.DisableTorchFunction():
            # The host's own are used as they are: a copy would be of all of a sparse
            # one, and Triton's keeps what it has copied in a cycle of references.
            given = tensors_in([arguments, named])
            here: Any = arguments, named
            if is_copied := any(t.device.type != "cpu" for t in given):
                here = executor._init_args_hst(arguments, named)
            _current.given = [*here[0], *here[1].values()]
            for hook in executor.pre_run_hooks:
                hook(*here[0], **here[1])
            scope = module._patch_lang(kernel)
            try:
                passed = {n: held(n, v) for n, v in bound(*here).items()}
                builder.set_grid_dim(*grid)
                _current.launch(grid)
                try:
                    _current.run(builder, kernel, **passed)
                except Exception as error:
                    if module.triton.knobs.compilation.front_end_debugging:
                        raise
                    raise module.InterpreterError(repr(error)) from error
            finally:
                scope.restore()
                _current.given = []
            if is_copied:
                executor._restore_args_dev(arguments, here[0], named, here[1])

    return launch


def _sizes(grid: Any) -> memory.Program | None:
    """Return the size of a grid, None where Triton itself shall say what is wrong."""
    if not isinstance(grid, tuple) or not 0 < len(grid) <= 3:
        return None
    try:
        x, y, z = (*map(index, grid), 1, 1)[:3]
    except TypeError:
        return None
    return (x, y, z) if min(x, y, z) > 0 else None


_MODULE: Final = "triton.runtime.interpreter"
# Launches of a call whose programs show that it gets on: a wrapper that launches again
# and again, until something converges that never does, hangs.
_LAUNCHES: Final = 64
# Triton type names of the formats that the interpreter computes in wrongly.
_UNRELIABLE: Final = low_precision.FORMATS | {"fp8e5b16", "fp8e4b8", "fp8e4b15"}


@dataclass
class Launches:
    """What the interpreter did during one call of a kernel.

    Attributes:
        programs: program instances run.
        unreliable: why its results may be wrong whatever the kernel does, or "".
        config: the autotune configuration that ran last, in words, or "".
        configs: of how many it is one, 0 where there are none.
        check: checks addresses; None where nothing is to be checked.
        reverse: whether the programs of a launch run in reverse order.
        last: the program to run last, in launches that have it.
        tuned: number of the autotune configuration to run, modulo how many.
        measuring: where autotuners measure; None where they do not.
        given: the arguments of the launch, on the host.
        grid: its size.
        together: whether the programs of a launch may run at once.
        at_once: launches whose programs did.
        alone: of the others how many, by why they did not.
    """

    programs: int = 0
    unreliable: str = ""
    config: str = ""
    configs: int = 0
    check: AddressCheck | None = None
    reverse: bool = False
    last: memory.Program | None = None
    tuned: int = 0
    measuring: tuning.Measuring | None = None
    given: list[Any] = field(default_factory=list, repr=False)
    grid: memory.Program = (1, 1, 1)
    together: bool = True
    at_once: int = 0
    alone: Counter[str] = field(default_factory=Counter)
    _launched: int = 0

    @property
    def accesses(self) -> tuple[Access, ...]:
        """What the call did to memory that it should not; see `Access.where`."""
        return () if self.check is None else self.check.accesses()

    def distrust(self, reason: str) -> None:
        """Keep the first reason not to judge by this call."""
        if self.following:  # the first program to give one does so alone
            raise NotVectorised(reason)
        self.unreliable = self.unreliable or reason

    @property
    def following(self) -> bool:
        """Whether programs run at once now."""
        return isinstance(self.check, vectorised.Session)

    def launch(self, grid: memory.Program) -> None:
        """Begin a launch of the arguments noted."""
        self.grid = grid
        self._launched += 1
        if self.check is not None:
            self.check.launch(self.given, math.prod(grid))

    def run(self, builder: Any, kernel: Callable[..., Any], **arguments: Any) -> None:
        """Run the programs of a launch, at once where that makes no difference."""
        order = self._order()
        check, why = self.check, "together they are not watched"
        if self.together:
            try:
                why = vectorised.run(
                    builder, kernel, arguments, self.grid, order,
                    partial(self._session, check),
                )  # fmt: skip
            finally:
                self.check = check
        if not why:
            self.at_once += 1
            self.programs += order.size
            return
        if order.size > 1:
            self.alone[why] += 1
        for x, y, z in np.stack(np.unravel_index(order, self.grid), 1).tolist():
            self._program((x, y, z))
            builder.set_grid_idx(x, y, z)
            kernel(**arguments)

    def _session(self, check: AddressCheck | None) -> vectorised.Session:
        """Return what follows the programs of the launch from now on."""
        regions = Reach({}, {}, None).regions(tensors_in(self.given))
        if check is not None:
            regions = check.regions
        session = vectorised.Session(regions, math.prod(self.grid), self._gets_on)
        session.hints = check is not None and check.hints
        self.check = cast(AddressCheck, session)  # it stands for one
        return session

    def _order(self) -> NDArray[np.int64]:
        """Return the programs' places in the grid, z fastest, in the order to run."""
        order = np.arange(math.prod(self.grid))
        if self.reverse:
            order = order[::-1].copy()
        last = self.last
        if last and all(i < n for i, n in zip(last, self.grid, strict=True)):
            chosen = int(np.ravel_multi_index(last, self.grid))
            at = [int(np.flatnonzero(order == n)[0]) for n in (chosen, order.size - 1)]
            order[at] = order[at[::-1]]
        return order

    def _gets_on(self) -> None:
        if self._launched <= _LAUNCHES:
            gets_on()

    def _program(self, place: memory.Program) -> None:
        """Begin a program."""
        self.programs += 1
        self._gets_on()
        if self.check is not None:
            self.check.program(place)


_current = Launches()
_installed = False
# Of the interpreter; made anew they take longer than most operations.
_corrections = Patches()
# Whether they stay until the process ends.
_stays = False


def interpreting() -> bool:
    """Whether this process runs Triton kernels through the interpreter."""
    return os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "yes", "on")


def is_interpreter_failure(error: BaseException) -> bool:
    """Whether an exception came from inside the interpreter.

    Such an exception may be the interpreter's own limit (no libdevice, no
    autotuner), so it is no evidence against the kernel. What no compiler takes either
    is the kernel's fault: see `_is_own_fault`.
    """
    related = list(chain(error))
    if any(map(_is_own_fault, related)):
        return False
    # A class may have any module's name, or none.
    homes = (getattr(type(seen), "__module__", "") for seen in related)
    return any(str(home).startswith("triton.") for home in homes)


def _is_own_fault(error: BaseException) -> bool:
    """Whether a kernel's own line is at fault, compiled or not.

    It reads a name that has no value on this path, or computes with a parameter that is
    None: an optional pointer whose absence it does not ask for.
    """
    frames = list(walk_tb(error.__traceback__))
    names = [str(f.f_globals.get("__name__", "")) for f, _ in frames]
    others = ("triton.", f"{__package__}.")
    own = [f for f, n in zip(frames, names, strict=True) if not n.startswith(others)]
    if not own:
        return False
    frame, at = own[-1]
    if isinstance(error, UnboundLocalError):
        return frames[-1] == own[-1]
    if "'NoneType'" not in message_of(error):
        return False
    code = frame.f_code
    words = set(re.findall(r"\w+", getline(code.co_filename, at)))
    given = code.co_varnames[: code.co_argcount]
    return any(n in words and frame.f_locals.get(n, at) is None for n in given)


def current() -> Launches:
    """Return what the innermost watch has seen so far."""
    return _current


@contextmanager
def watch(
    reach: Reach | None = None,
    *,
    reverse: bool = False,
    last: memory.Program | None = None,
    config: int = 0,
    measuring: tuning.Measuring | None = None,
    outdated: bool = False,
) -> Iterator[Launches]:
    """Correct the interpreter while the block runs, and check what it does.

    Where kernels are compiled, only the configuration is chosen. NumPy, which the
    interpreter computes with, does not warn of overflow and NaN: a GPU does not either.

    Args:
        reach: what memory is legal; None checks no address.
        reverse: run the programs of each launch in reverse order.
        last: run this program last, in its place the one that would be.
        config: of `@triton.autotune` this configuration runs, modulo their number:
            nothing is timed.
        measuring: have autotuners measure in this block, and come to that one.
        outdated: have loads that race with a store get what was there before it.
    """
    global _current
    check = None if reach is None else AddressCheck(reach, outdated=outdated)
    outer = _current
    _current = Launches(
        check=check, reverse=reverse, last=last, tuned=config, measuring=measuring
    )
    try:
        with ExitStack() as session:
            interpreted = interpreting() and _MODULE in sys.modules
            if interpreted:
                session.enter_context(np.errstate(all="ignore"))
                session.enter_context(  # of rows of NaN alone
                    warnings.catch_warnings(action="ignore", category=RuntimeWarning)
                )
                if simulated.is_met():
                    session.enter_context(simulated.gpu())
            if interpreted or not interpreting():
                session.enter_context(_session(interpreted))
            yield _current
    finally:
        _current = outer


@contextmanager
def _session(interpreted: bool) -> Iterator[None]:
    """Patch Triton while the block runs; within another session, do nothing."""
    global _installed, _corrections
    if _installed:
        yield
        return
    try:
        with Patches() as patches:
            _installed = True
            if interpreted and not _corrections.redo():
                _corrections = Patches()
                _hook(sys.modules[_MODULE], _corrections)
            _choose(patches)
            yield
    finally:
        _installed = False
        if not _stays:
            _corrections.undo()


def _choose(patches: Patches) -> None:
    """Have tuned kernels run the configuration that is asked for."""

    def chosen() -> int:
        return _current.tuned

    def note(config: str, configs: int) -> None:
        _current.config, _current.configs = config, configs

    if (tuner := tuning.loaded()) is not None:
        tuning.install(tuner, chosen, lambda: _current.measuring, note, patches)
    if (kernel := tuning.loaded(tuning.HELION, "Kernel")) is not None:
        tuning.install_helion(kernel, chosen, note, patches)
    tuning.measure_nothing(patches)


def stay_corrected() -> None:
    """Have this process keep the interpreter as a watch has it, once one was.

    For children, in which nobody else uses Triton: to make all patches again for each
    call takes as long as a small launch.
    """
    global _stays
    _stays = True


def _hook(module: Any, patches: Patches) -> None:
    """Make the patches that are the same in every session."""
    handle, corrected = module.TensorHandle, low_precision.correctable(module)
    created = handle.__post_init__
    wrong = _UNRELIABLE - corrected
    known: set[tuple[str, int]] = set()

    def created_handle(self: Any) -> None:
        kind = self.dtype.name, self.data.itemsize
        if kind in known:
            return
        created(self)
        name = str(self.get_element_ty())
        if name not in wrong:
            known.add(kind)
        elif not _current.unreliable:
            _current.distrust(f"Triton's interpreter computes {name} wrongly")

    patches.set(handle, "__post_init__", created_handle)
    if corrected:
        low_precision.install(module, lambda why: _current.distrust(why), patches)
    libdevice.install(module, patches)
    inline_assembly.install(module, patches)
    install(module, patches)
    memory.install(module, lambda: _current.check, patches)
    vectorised.install(module, lambda: _current.following, patches)
    language.install(module, lambda: _current.check, patches)


# What a child's first case would import or compute, had before it is forked.
#
# Measured on an H100 with Triton 3.6: 0.46 s of a fresh child's first case went into
# the hash of Triton's own files, 0.18 s into a part of Triton that its launcher imports
# late, 0.1 s into the bindings of CUDA. Nothing here touches a device or runs an
# operation of torch.

# Imported by the first launch.
_LAUNCHED: Final = ("triton.compiler.code_generator", "triton.experimental.gluon")
_INTERPRETED: Final = (
    "ml_dtypes",
    "triton.runtime.interpreter",
    "kfuzz.execution.interpreter.low_precision",
)
_COMPILED: Final = ("cuda.bindings.nvrtc",)


# Options of glibc's `mallopt`: M_TRIM_THRESHOLD and M_MMAP_THRESHOLD, in bytes.
_KEPT: Final = {-1: 1 << 28, -3: 1 << 25}


def for_interpret() -> None:
    """Import what Triton's interpreter needs, as far as it is there.

    Memory that arrays leave is kept for the next: else each operation has the kernel of
    the system make its pages anew, which takes as long as computing what they hold.
    """
    _import((*_LAUNCHED, *_INTERPRETED))
    with contextlib.suppress(AttributeError, OSError):  # another C library
        for option, nbytes in _KEPT.items():
            ctypes.CDLL(None).mallopt(option, nbytes)


def for_cuda() -> None:
    """Import what launches on a GPU need, and have Triton hash its own files."""
    _import((*_LAUNCHED, *_COMPILED))
    for name in ("triton.runtime.cache", "triton.compiler.compiler"):
        with contextlib.suppress(ImportError, AttributeError):
            import_module(name).triton_key()  # which it keeps
            return


def _import(names: tuple[str, ...]) -> None:
    for name in names:
        with contextlib.suppress(ImportError):
            import_module(name)
