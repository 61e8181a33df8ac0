"""Failures of Triton's interpreter and their causes, in words.

They surface as errors about something else; none is evidence against a kernel.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from types import CodeType, FunctionType, ModuleType, SimpleNamespace
from typing import Any, Final, NamedTuple

import numpy as np

from kfuzz.core.errors import chain, message_of
from kfuzz.execution.calls.patches import Patches
from kfuzz.execution.interpreter.memory import ORIGIN, Current, untrue
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


# What Triton's interpreter looks up time and again, looked up once.
#
# For each block it makes a table of all dtypes. What comes of it is the same each time.


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


# What Triton's frontend makes of an operation, found out once for each.
#
# What it asks of the builder depends on the types of tensors and on the other operands,
# not on what tensors hold, and takes several times as long as the arithmetic.

_MOST_PLANS: Final = 1 << 13
"""Kept at once: an operation with a number that each launch gives anew makes many."""

_PLAIN: Final = frozenset({int, bool, str, type(None)})


class _Plan(NamedTuple):
    """What an operation asks of the builder.

    Attributes:
        steps: of each its name, its operands, and which of these are which handles: the
            operation's own come first, then what steps made.
        made: which handle the result has, None for none or the one in `kind`.
        kind: what else the result consists of; None where it is an operand itself.
    """

    steps: list[tuple[str, list[Any], list[tuple[int, Any]]]]
    made: int | None
    kind: dict[str, Any] | None


class _Frontend:
    """Triton's builtins as functions that plan once for each kind of operands."""

    def __init__(self, module: Any) -> None:
        self._semantic, self._tl = module.interpreter_semantic, module.tl
        names = ("TensorHandle", "TensorDescHandle", "BlockPointerHandle")
        found = (getattr(module, name, None) for name in names)
        self._handles = tuple(filter(None, found))
        self._plans: dict[tuple[Any, ...], _Plan | None] = {}
        self._planning = False

    def planned(self, member: Callable[..., Any]) -> Callable[..., Any]:
        """Return what stands for a builtin in a launch."""
        semantic, plans, tensor = self._semantic, self._plans, self._tl.tensor

        def stand_in(*operands: Any, **named: Any) -> Any:
            named.pop("_semantic", None)
            if self._planning:
                return member(*operands, **named, _semantic=semantic)
            key: list[Any] = [member]
            tensors: list[Any] = []
            for x in (*operands, *named, *named.values()) if named else operands:
                kind = x.__class__
                if kind is tensor:
                    tensors.append(x)
                    key.append(x.type.name)
                elif kind in _PLAIN:
                    key += kind, x
                elif not self._describe(x, key):
                    return member(*operands, **named, _semantic=semantic)
            handles = [x.handle for x in tensors]
            if len(handles) > 1:
                places = [id(handle) for handle in handles]
                if len(set(places)) < len(places):  # which operands are one
                    key += map(places.index, places)
            plan = plans.get(whole := tuple(key))
            if plan is None:
                operation = partial(member, *operands, **named, _semantic=semantic)
                if whole in plans:
                    return operation()
                return self._plan(whole, operation, tensors)
            for name, given, parts in plan.steps:
                given = given.copy()
                for place, number in parts:
                    given[place] = handles[number]
                handles.append(getattr(semantic.builder, name)(*given))
            if plan.kind is None:
                return None if plan.made is None else tensors[plan.made]
            made = tensor.__new__(tensor)
            vars(made).update(plan.kind)
            if plan.made is not None:
                made.handle = handles[plan.made]
            return made

        return stand_in

    def _describe(self, value: Any, key: list[Any]) -> bool:
        """Add what tells an operand from others; return whether anything does."""
        tl, kind = self._tl, value.__class__
        key.append(kind)
        if kind is tl.constexpr:
            return self._describe(value.value, key)
        if kind in (slice, list, tuple):
            parts = value
            if kind is slice:
                parts = value.start, value.stop, value.step
            key.append(len(parts))
            return all(self._describe(part, key) for part in parts)
        if kind is float:
            value = repr(value)  # 0.0 == -0.0
        elif isinstance(value, tl.dtype):
            value = value.name
        elif kind not in _PLAIN:
            return False
        key.append(value)
        return True

    def _plan(
        self, key: tuple[Any, ...], operation: Callable[[], Any], tensors: list[Any]
    ) -> Any:
        """Carry out an operation and keep what it asked of the builder."""
        semantic, builder = self._semantic, self._semantic.builder
        recorder = _Recorder(builder, [x.handle for x in tensors], self._handles)
        self._planning, semantic.builder = True, recorder
        try:
            made = operation()
        finally:
            self._planning, semantic.builder = False, builder
        if len(self._plans) >= _MOST_PLANS:
            self._plans.clear()
        plan = None
        same = next((n for n, x in enumerate(tensors) if x is made), None)
        if made is None or same is not None:
            plan = _Plan(recorder.steps, same, None)
        elif made.__class__ is self._tl.tensor:
            number = recorder.numbers.get(id(made.handle))
            kind = {**vars(made), "handle": recorder.constants.get(id(made.handle))}
            if number is not None or kind["handle"] is not None:
                plan = _Plan(recorder.steps, number, kind)
        self._plans[key] = plan if recorder.sound else None
        return made


class _Recorder:
    """Stands for the builder and notes what it is asked.

    Attributes:
        steps: as of a plan.
        numbers: which handle an object is, by its id.
        constants: handles that depend on no operand, by their ids.
        sound: whether the same would do for other values of the operands.
    """

    def __init__(self, builder: Any, handles: list[Any], kinds: Any) -> None:
        self._builder, self._handles, self._kinds = builder, handles, kinds
        self.steps: list[tuple[str, list[Any], list[tuple[int, Any]]]] = []
        self.numbers = {id(handle): n for n, handle in enumerate(handles)}
        self.constants: dict[int, Any] = {}
        self.sound = True

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._builder, name)
        return partial(self._asked, name, found) if callable(found) else found

    def _asked(self, name: str, method: Any, *operands: Any, **named: Any) -> Any:
        made = method(*operands, **named)
        given, places, kinds = list(operands), list[tuple[int, Any]](), self._kinds
        for place, x in enumerate(operands):
            if isinstance(x, kinds) and id(x) not in self.constants:
                places.append((place, self.numbers.get(id(x))))
                given[place] = None  # it may be large
        kept = isinstance(made, kinds)
        if not places and name.startswith("get_"):  # a number, or a type
            if kept:
                self.constants[id(made)] = made
            return made
        parts = [x for x in given if isinstance(x, list | tuple)]
        known = all(number is not None for _, number in places)
        known &= not named and not any(isinstance(x, kinds) for p in parts for x in p)
        self.sound &= known and (kept or made is None)
        self.steps.append((name, given, places))
        self.numbers[id(made)] = len(self._handles)
        self._handles.append(made)
        return made


# What kernels see of Triton's language, by whatever name they have it.
#
# For a launch the interpreter replaces the functions of the modules `triton.language`
# and `triton.language.math`. A compiler goes by the object instead: a function that a
# file has under a name of its own (`exp = tl.exp`, `from triton.language import load`),
# those of libdevice and of `tl.extra`, loops whose index is a tensor, and values of an
# enclosing function are the same to it. Here they are replaced for the launch where a
# function that runs in it names them.

MEANT: Final = "_kfuzz_meant"
"""Name in the interpreter of what tells what an object of Triton's stands for."""
_STUBS: Final = "triton.language.extra.libdevice"
_DEVICE: Final = "triton.language.extra.cuda.libdevice"
_PACKAGE: Final = "triton.language.extra."
# Modules whose functions no launch replaces.
_EXTRA: Final = (_STUBS, _DEVICE, "triton.language.extra.cuda")
_HINTS: Final = ("multiple_of", "max_contiguous", "max_constancy")
# What the interpreter replaces besides builtins.
_REPLACED: Final = (
    "range", "static_range", "static_assert", "static_print", "reduce",
    "associative_scan", *_HINTS,
)  # fmt: skip
_MOST: Final = {False: 1 << 31, True: 1 << 63}
_ABSENT: Final = object()
# What compilers take; the interpreter's own list lacks the last two.
_PRECISIONS: Final = ("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6")


def _reduced(ir: Any) -> Callable[..., Any]:
    """Return the atomics of tensor descriptors, which Triton's interpreter lacks."""

    def reduce(builder: Any, kind: Any, desc: Any, value: Any, indices: Any) -> Any:
        pointers, mask = desc.materialize_pointers(indices)
        name, dtype = kind.name, value.dtype.scalar
        if name == "ADD" and dtype.is_floating():
            name = "FADD"
        elif name in ("MIN", "MAX") and dtype.is_int_unsigned():
            name = f"U{name}"
        order = ir.MEM_SEMANTIC.RELAXED, ir.MEM_SYNC_SCOPE.GPU
        operation = getattr(ir.ATOMIC_OP, name)
        return builder.create_atomic_rmw(operation, pointers, value, mask, *order)

    return reduce


def install(module: Any, current: Current, patches: Patches) -> None:
    """Have launches see all names until the patches are undone.

    Args:
        module: `triton.runtime.interpreter`, with kfuzz's other patches in place,
            and no launch running.
        current: returns the check of the call that runs, if any.
        patches: takes what is replaced.
    """
    names = _Names(module, current)
    options = module.interpreter_builder.options
    kept = replace(
        options,
        # What checks sums for overflow is computed for nothing.
        sanitize_overflow=options.debug and options.sanitize_overflow,
        allowed_dot_input_precisions=_PRECISIONS,
    )
    patches.set(module.interpreter_builder, "options", kept)
    builder = module.InterpreterBuilder
    if not hasattr(builder, "create_descriptor_reduce"):
        patches.set(builder, "create_descriptor_reduce", _reduced(module._ir))
    patches.set(module, "_get_np_dtype", _remembered(module._get_np_dtype))
    patches.set(module, "_patch_attr", names.patch_attr)
    for owner, name, value in list(names.replaced()):
        patches.set(owner, name, value)
    patches.set(module, "_patch_lang", names.patch_lang)
    patches.set(module, MEANT, names.meant)
    patches.set(module.InterpretedFunction, "rewrite", names.rewriting())
    for owner, name in (
        (module.ReduceOps, "generic_reduce"), (module.ScanOps, "generic_scan"),
    ):  # fmt: skip
        patches.set(owner, name, names.combining(getattr(owner, name)))


class _Names:
    """Replaces names of functions once in a launch, and restores them after it.

    The interpreter patches all of triton.language for each launch and every call of a
    device function; here that is done once for all of them.
    """

    def __init__(self, module: Any, current: Current) -> None:
        self._module, self._tl, self._current = module, module.tl, current
        self._frontend = _Frontend(module)
        self._rewrite = module.InterpretedFunction.rewrite
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

    def patch_attr(self, obj: Any, name: str, member: Any, _: Any, scope: Any) -> None:
        """Replace a builtin of a module or class."""
        scope.set_attr(obj, name, self._frontend.planned(member))

    def replaced(self) -> Iterator[tuple[Any, str, Any]]:
        """Yield what launches replace in Triton's language, with what stands there."""
        homes = {"tl": self._tl, "core": self._tl.core}
        scope = self._module._patch_lang(SimpleNamespace(__globals__=homes))
        places = dict.fromkeys((owner, name) for owner, name, _ in scope._changes)
        made = [(owner, name, vars(owner)[name]) for owner, name in places]
        scope.restore()
        for owner, name, value in made:
            yield owner, name, self._hint(name, value) if name in _HINTS else value
        yield self._tl, "range", self._loop
        # Triton 3.6 makes an index of an array, which NumPy 2.4 refuses.
        yield self._tl.tensor, "__index__", number

    def _hint(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a hint to the compiler that is checked where hints are."""

        def hint(input: Any, values: Any) -> Any:
            made, check = original(input, values), self._current()
            if check is not None and check.hints and isinstance(input, self._tl.tensor):
                given = values if isinstance(values, list | tuple) else [values]
                numbers = [number(v) for v in given]
                kind, x, step = input.handle.dtype, input.handle.data, 1
                if kind.is_ptr():  # a GPU's allocations are aligned, the host's less
                    home = check.regions.home(input.handle.attr.get(ORIGIN))
                    if home is None:
                        return made
                    step = max(kind.element_ty.primitive_bitwidth // 8, 1)
                    x = x - np.uint64(home.low)
                if (found := untrue(name, x, numbers, step)).size:
                    text = ", ".join(map(str, numbers))
                    check.promised(f"tl.{name}({text})", found)
            return made

        return hint

    def patch_lang(self, fn: Any) -> Any:
        """Replace what a function sees, if that is still to do in this launch.

        Returns:
            What the interpreter restores at the end of a launch.
        """
        outermost = self._seen is None
        self._seen = self._seen or set()
        self._see(fn)
        return SimpleNamespace(restore=self._restore if outermost else lambda: None)

    def _restore(self) -> None:
        self._seen = None
        while self._replaced:
            names, name, before = self._replaced.pop()
            if before is _ABSENT:
                del names[name]
            else:
                names[name] = before

    def rewriting(self) -> Callable[[Any], Any]:
        """Return the rewriting of a function, which forgets what encloses it."""

        def rewrite(function: Any) -> Any:
            made = self._rewrite(function)
            made.__annotations__ = function.fn.__annotations__  # a decorator's, too
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
            self._put(sees, name, self.meant(value))
        for name in code.co_names:
            for home in extra:
                member = home.get(name)
                if member is not None:
                    self._put(home, name, self._device_function(name, member))
            value = sees.get(name)
            if value is not None:
                self._put(sees, name, self.meant(value))
            elif name == "range":
                self._put(sees, name, self._loop)

    def _put(self, names: dict[str, Any], name: str, value: Any) -> None:
        before = names.get(name, _ABSENT)
        if before is not value:
            self._replaced.append((names, name, before))
            names[name] = value

    def meant(self, value: Any) -> Any:
        """Return what an object of Triton's stands for in a launch."""
        if isinstance(value, FunctionType):
            if value.__module__.startswith(_PACKAGE):
                return self._device_function(value.__name__, value)
        elif not isinstance(value, type):
            return value
        home, name = self._known.get(id(value), (None, ""))
        return value if home is None else getattr(home, name)

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
