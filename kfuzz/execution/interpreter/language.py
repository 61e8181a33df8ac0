"""Failures of Triton's interpreter and their causes, in words.

They surface as errors about something else; none is evidence against a kernel.
"""

import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import CodeType, FunctionType, ModuleType, SimpleNamespace
from typing import Any, Final

import numpy as np

from kfuzz.core.errors import chain, message_of
from kfuzz.execution.calls.patches import Patches
from kfuzz.execution.interpreter.programs import array


class NoForm(NotImplementedError):
    """What a kernel uses has no form in Triton's interpreter.

    Its text names it, and the way out.
    """


# Text that an error holds -> what happened and the way out.
_TRAPS: Final = {
    # Triton 3.6 makes numbers of arrays of one element; NumPy 2.4 refuses.
    "only 0-dimensional arrays can be converted": (
        "triton 3.6's interpreter needs numpy older than 2.4; install 'numpy<2.4' or "
        "a newer triton"
    ),
    "waits for a program that has yet to run": (
        "a program waits for one that comes after it, and here they run one after the "
        "other; run on a GPU"
    ),
}

# Where nothing is interpreted, too: the kernel was defined for a GPU that is not there,
# or asks its driver.
_NO_DRIVER: Final = "0 active drivers"
_UNINTERPRETED: Final = (
    "Triton looked for a GPU, and there is none: the wrapper asks for one itself, or "
    "TRITON_INTERPRET was not set when the kernel was defined: child processes set it "
    "(--device auto or interpret, --isolate auto)"
)


def explanation(error: BaseException, *, interpreted: bool = True) -> str:
    """Return what an exception from Triton means, "" if it is no trap.

    Args:
        error: what left the kernel.
        interpreted: whether this process runs Triton kernels in the interpreter.
    """
    related = list(chain(error))
    if any(_NO_DRIVER in message_of(e) for e in related):
        return _UNINTERPRETED
    for seen in related if interpreted else ():
        if isinstance(seen, NoForm):
            return str(seen)
        for sign, meaning in _TRAPS.items():
            if sign in message_of(seen):
                return meaning
    return ""


# What Triton's interpreter looks up time and again, looked up once in a watch.
#
# Before each launch, and for each call of a function of the device's, it goes through
# all of triton.language; for each block it makes a table of all dtypes. What comes of
# it is the same each time. Keeping it costs less than it saves, and pays for checks.

# Of modules and classes, by them and their number of attributes (the interpreter adds
# some, and so may others): the names of builtins, what they are, and what stands for
# each in a launch; None where something did already.
_StandIns = list[tuple[str, Any, Any]]
_builtins: dict[tuple[Any, int], _StandIns] = {}


def _remembered(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Ask once for each dtype; names tell them apart."""
    known: dict[str, Any] = {}

    def np_dtype(tt_dtype: Any) -> Any:
        name = getattr(tt_dtype, "name", None)
        if name.__class__ is not str:
            return original(tt_dtype)
        found = known.get(name)
        if found is None:
            found = known[name] = original(tt_dtype)
        return found

    return np_dtype


def _shaped(original: Callable[..., None]) -> Callable[..., None]:
    """Make the shape of tensors once for each."""
    known: dict[tuple[Any, ...], tuple[Any, Any]] = {}

    def created(tensor: Any, handle: Any, kind: Any) -> None:
        shape = tuple(kind.shape.values) if kind.is_block() else ()
        found = known.get(shape)
        if found is None:
            original(tensor, handle, kind)
            known[shape] = tensor.shape, tensor.numel
            return
        tensor.handle, tensor.type, tensor.dtype = handle, kind, kind.scalar
        tensor.shape, tensor.numel = found

    return created


def _typed(original: Callable[..., None]) -> Callable[..., None]:
    """Check the shape of blocks once for each, and name their types."""
    known: dict[tuple[Any, ...], dict[str, Any]] = {}

    def created(block: Any, element_ty: Any, shape: Any) -> None:
        key = (element_ty.name, *shape)
        found = known.get(key)
        if found is None:
            original(block, element_ty, shape)
            known[key] = vars(block).copy()
            return
        vars(block).update(found)
        block.element_ty = element_ty

    return created


# What kernels see of Triton's language, by whatever name they have it.
#
# For a launch the interpreter replaces the functions of the modules `triton.language`
# and `triton.language.math`. A compiler goes by the object instead: a function that a
# file has under a name of its own (`exp = tl.exp`, `from triton.language import load`),
# those of libdevice and of `tl.extra`, loops whose index is a tensor, and values of an
# enclosing function are the same to it. Here they are replaced for the launch where a
# function that runs in it names them.

_STUBS: Final = "triton.language.extra.libdevice"
_DEVICE: Final = "triton.language.extra.cuda.libdevice"
_PACKAGE: Final = "triton.language.extra."
# Modules whose functions no launch replaces.
_EXTRA: Final = (_STUBS, _DEVICE, "triton.language.extra.cuda")
# What the interpreter replaces besides builtins.
_REPLACED: Final = (
    "range", "static_range", "static_assert", "static_print", "multiple_of",
    "max_contiguous", "max_constancy", "reduce", "associative_scan",
)  # fmt: skip
_MOST: Final = {False: 1 << 31, True: 1 << 63}
_ABSENT: Final = object()


def install(module: Any, patches: Patches) -> None:
    """Have launches see all names until the patches are undone.

    Args:
        module: `triton.runtime.interpreter`, with kfuzz's other patches in place,
            and no launch running.
        patches: takes what is replaced.
    """
    names = _Names(module)
    options = module.interpreter_builder.options
    if not options.debug:  # what checks sums for overflow is computed for nothing
        kept = replace(options, sanitize_overflow=False)
        patches.set(module.interpreter_builder, "options", kept)
    patches.set(module, "_get_np_dtype", _remembered(module._get_np_dtype))
    core = module.tl.core
    patches.set(core.tensor, "__init__", _shaped(core.tensor.__init__))
    patches.set(core.block_type, "__init__", _typed(core.block_type.__init__))
    patches.set(module, "_patch_builtin", names.patch_builtin)
    patches.set(module, "_patch_lang", names.patch_lang)
    patches.set(module.GridExecutor, "__call__", names.launching())
    patches.set(module.InterpretedFunction, "rewrite", names.rewriting())
    for owner, name in (
        (module.ReduceOps, "generic_reduce"), (module.ScanOps, "generic_scan"),
    ):  # fmt: skip
        patches.set(owner, name, names.combining(getattr(owner, name)))


class _Names:
    """Replaces names of functions once in a launch, and restores them after it.

    The interpreter patches all of triton.language for the kernel and for every call of
    a device function; here it does so once, too.
    """

    def __init__(self, module: Any) -> None:
        self._module, self._tl = module, module.tl
        self._executor = module.GridExecutor.__call__
        self._rewrite = module.InterpretedFunction.rewrite
        self._patch_attr, self._patch_lang = module._patch_attr, module._patch_lang
        # By their ids, in a launch: modules, classes, and what functions see.
        self._patched: dict[int, Any] | None = None
        # What a launch replaces in Triton's modules, by its id: where it is.
        self._known: dict[int, tuple[ModuleType, str]] = {
            id(member): (home, name)
            for home in (self._tl.math, self._tl.core, self._tl)
            for name, member in list(vars(home).items())
            if self._tl.core.is_builtin(member) or name in _REPLACED
        }
        # Of functions within functions: what they see of these, by their code.
        self._enclosed: dict[CodeType, dict[str, Any]] = {}
        # In a launch: the codes seen, and (names, name, what stood there).
        self._seen: set[CodeType] | None = None
        self._replaced: list[tuple[dict[str, Any], str, Any]] = []

    def patch_builtin(self, pkg: Any, builder: Any, scope: Any) -> None:
        """Replace the builtins of a module or class, if that is still to do."""
        if self._patched is not None:
            if id(pkg) in self._patched:
                return
            self._patched[id(pkg)] = pkg
        is_builtin = self._tl.core.is_builtin
        for name, known, stand_in in self._stand_ins(pkg, builder):
            member = getattr(pkg, name)
            if member is known:
                scope.set_attr(pkg, name, stand_in)
            elif is_builtin(member):
                self._patch_attr(pkg, name, member, builder, scope)

    def _stand_ins(self, pkg: Any, builder: Any) -> _StandIns:
        """Return what is a builtin, or stands for one already."""
        key = pkg, len(vars(pkg))
        found = _builtins.get(key)
        if found is None:
            found = _builtins[key] = []
            taker = SimpleNamespace(set_attr=lambda *made: taken.append(made[-1]))
            for name, member in inspect.getmembers(pkg):
                if self._tl.core.is_builtin(member):
                    taken: list[Any] = []
                    self._patch_attr(pkg, name, member, builder, taker)
                    found.append((name, member, taken[0]))
                elif getattr(member, "__module__", None) == self._module.__name__:
                    found.append((name, None, None))
        return found

    def patch_lang(self, fn: Any) -> Any:
        """Patch what a function sees that runs in a launch, if that is still to do."""
        patched, sees = self._patched, fn.__globals__
        if patched is not None and id(sees) in patched:
            scope = self._module._LangPatchScope()
        else:
            # It goes through all names of a file.
            tl = self._tl
            homes = {n: v for n, v in sees.items() if v is tl or v is tl.core}
            scope = self._patch_lang(SimpleNamespace(__globals__=homes))
            if patched is not None:
                patched[id(sees)] = sees
        if not self._seen:
            # Of Triton's own module: the launch's scope restores them.
            scope.set_attr(self._tl, "range", self._loop)
            # Triton 3.6 makes an index of an array, which NumPy 2.4 refuses.
            scope.set_attr(self._tl.tensor, "__index__", number)
        self._see(fn)
        return scope

    def launching(self) -> Callable[..., Any]:
        """Return the launch of a grid, which restores all names after it."""

        def launch(executor: Any, *arguments: Any, **named: Any) -> Any:
            outer = self._seen, self._replaced, self._patched
            self._seen, self._replaced, self._patched = set(), [], {}
            try:
                return self._executor(executor, *arguments, **named)
            finally:
                for names, name, before in reversed(self._replaced):
                    if before is _ABSENT:
                        del names[name]
                    else:
                        names[name] = before
                self._seen, self._replaced, self._patched = outer

        return launch

    def rewriting(self) -> Callable[[Any], Any]:
        """Return the rewriting of a function, which forgets what encloses it."""

        def rewrite(function: Any) -> Any:
            made = self._rewrite(function)
            if function.fn.__closure__:
                self._enclosed[made.__code__] = _enclosed(function.fn)
            return made

        return rewrite

    def combining(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a reduction or scan that sees what its combining function names."""

        def combine(operation: Any, *arguments: Any) -> Any:
            self._see(operation.combine_fn.fn)
            return original(operation, *arguments)

        return combine

    def _see(self, fn: Any) -> None:
        """Replace what a function names, if that is still to do in this launch."""
        code = fn.__code__
        if self._seen is None or code in self._seen:
            return
        self._seen.add(code)
        sees, loaded = fn.__globals__, (sys.modules.get(name) for name in _EXTRA)
        extra = [vars(home) for home in loaded if home is not None]
        for name, value in (self._enclosed.get(code) or _enclosed(fn)).items():
            self._put(sees, name, self._meant(value, value))
        for name in code.co_names:
            for home in extra:
                member = home.get(name)
                if member is not None:
                    self._put(home, name, self._device_function(name, member))
            value = sees.get(name)
            if value is not None:
                self._put(sees, name, self._meant(value, value))
            elif name == "range":
                self._put(sees, name, self._loop)

    def _put(self, names: dict[str, Any], name: str, value: Any) -> None:
        before = names.get(name, _ABSENT)
        if before is not value:
            self._replaced.append((names, name, before))
            names[name] = value

    def _meant(self, value: Any, otherwise: Any) -> Any:
        """Return what an object of Triton's stands for in a launch."""
        if isinstance(value, FunctionType):
            if value.__module__.startswith(_PACKAGE):
                return self._device_function(value.__name__, value)
        elif not isinstance(value, type):
            return otherwise
        home, name = self._known.get(id(value), (None, ""))
        return otherwise if home is None else getattr(home, name)

    def _device_function(self, name: str, member: Any) -> Any:
        """Return a function of libdevice or `tl.extra` that can be called here."""
        if not isinstance(member, FunctionType):
            return member
        function: Any = member
        if member.__module__ == _STUBS:  # compiled, the module of the target stands in
            function = getattr(sys.modules.get(_DEVICE), name, None)
        elif not self._tl.core.is_builtin(member):
            return member
        semantic = self._module.interpreter_semantic

        def called(*arguments: Any, **named: Any) -> Any:
            if function is None:
                raise NoForm(f"libdevice has no {name} for NVIDIA's GPUs")
            try:
                return function(*arguments, **{**named, "_semantic": semantic})
            except KeyError as error:  # none of its forms takes such operands
                kinds = ", ".join(str(kind) for kind in error.args[0])
                raise NoForm(f"Triton compiles no {name} of ({kinds})") from error

        return called

    def _loop(self, *bounds: Any, **named: Any) -> Iterator[Any]:
        """Yield the indices of a loop, each a tensor as in compiled code.

        Their type is the bounds': 32 bits unless one has 64 or needs them.
        """
        given = [named[key] for key in ("arg1", "arg2", "step") if key in named]
        numbers, wide = [], False
        for bound in (*bounds, *given):
            if bound is None:
                continue
            if (handle := getattr(bound, "handle", None)) is not None:
                wide = wide or handle.data.dtype.itemsize > 4
            numbers.append(number(bound))
        if named.get("step") is not None and len(numbers) == 2:  # no arg2
            numbers.insert(0, 0)
        places = range(*numbers)
        wide = wide or any(not -_MOST[False] <= n < _MOST[False] for n in numbers)
        kind, tl = (np.int64 if wide else np.int32), self._tl
        dtype = tl.int64 if wide else tl.int32
        for place in places:
            handle = self._module.TensorHandle(np.array([place], kind), dtype)
            yield tl.tensor(handle, dtype)


def _enclosed(fn: Any) -> dict[str, Any]:
    """Return what a function sees of the functions around it."""
    found = {}
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return found


def number(value: Any) -> int:
    """Return a whole number that may be a constexpr or a tensor of one element."""
    value = getattr(value, "value", value)
    handle = getattr(value, "handle", None)
    return int(value) if handle is None else int(array(handle.data).squeeze())
