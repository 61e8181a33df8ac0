"""`kfuzz.launch`: a bare `@triton.jit` kernel with the recipe of its launch."""

import copy
import functools
import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

from kfuzz.contracts.operator import Form, Operator
from kfuzz.contracts.oracle import lead_of, name_of
from kfuzz.core.declaration import Declaration
from kfuzz.core.errors import (
    BindingError,
    BuildError,
    LanguageLimit,
    message_of,
    suggestion,
)
from kfuzz.execution.calls.compiling import at_work, import_compiler
from kfuzz.execution.processes.wire import is_child
from kfuzz.store.files import cache_folder

if TYPE_CHECKING:
    import torch
    from torch import Tensor


_DIMENSIONS: Final = 3

# What a launch takes besides the kernel's own parameters, whatever the backend.
_OPTIONS: Final = (
    "num_warps", "num_stages", "num_ctas", "maxnreg", "enable_fp_fusion",
    "launch_cooperative_grid", "launch_pdl", "ptx_options", "ir_override",
    "waves_per_eu", "matrix_instr_nonkdim", "kpack",
)  # fmt: skip

Grid = Sequence[int] | Callable[..., Sequence[int]]


def launch(
    jit_kernel: Any,
    *,
    grid: Grid,
    args: Callable[..., Any],
    num_warps: int | None = None,
    num_stages: int | None = None,
    **constexprs: Any,
) -> "Launch":
    """Return a Triton kernel in a form that `kfuzz.kernel(...)` binds.

    A grid with a dimension of 0 launches no program and is no error: Triton's compiled
    launcher skips it, and the interpreter has nothing to run.

    Args:
        jit_kernel: a function under `@triton.jit`, also under `@triton.autotune` and
            `@triton.heuristics`.
        grid: the number of programs in one to three dimensions; or a function of
            parameters of `args`. A parameter that `args` lacks gets Triton's `meta`.
        args: a function of the operator's tensors, the destinations and the scalars, by
            name. It returns the kernel's arguments: a tuple, or a mapping by parameter.
        num_warps: as for Triton.
        num_stages: as for Triton.
        constexprs: constant parameters, and other options of the launch.

    Raises:
        BindingError: if `jit_kernel` is no Triton kernel, or the parameters of `args`
            or `grid` cannot be inferred.
    """
    given = {"num_warps": num_warps, "num_stages": num_stages}
    options = {name: n for name, n in given.items() if n is not None}
    return Launch(jit_kernel, grid, args, {**constexprs, **options})


class Launch(Form):
    """A kernel and how it is launched; calling it launches it on torch's stream."""

    def __init__(
        self,
        jit_kernel: Any,
        grid: Grid,
        args: Callable[..., Any],
        keywords: Mapping[str, Any],
    ) -> None:
        self.fn = jit_kernel
        body = _body_of(jit_kernel)
        self.__name__ = body.__name__
        self.__qualname__ = body.__qualname__
        self.__module__ = body.__module__
        self.__doc__ = body.__doc__
        self.__wrapped__ = body  # its file and lines
        where = f"launch of {body.__name__}"
        known = (*inspect.signature(body).parameters, *_OPTIONS)
        for name in keywords:  # an interpreter drops what it does not know
            if name not in known:
                what = f"{name!r} is no parameter of the kernel and no option"
                raise BindingError(what, where=where, fix=suggestion(name, known))
        self.__signature__ = _recipe_of(args, where)
        self._grid = grid
        self._args = args
        self._keywords = dict(keywords)
        self._of_grid, self._meta = _parameters_of_grid(
            grid, self.__signature__, where
        )  # fmt: skip

    def fitted(
        self, operator: Operator, declaration: Declaration, where: str
    ) -> Callable[..., Any]:
        """Return itself: what it computes is in arguments that it is given.

        Raises:
            BindingError: if neither destinations nor a parameter take the results.
        """
        if not (declaration.out or declaration.inplace):
            listed = ", ".join(map(repr, operator.outputs))
            raise BindingError(
                "a launch returns nothing: its results need memory",
                where=where,
                fix=f"declare out=({listed},) and take it in args, or inplace=",
            )
        return self

    def __call__(self, *tensors: Any, **keywords: Any) -> None:
        """Launch the kernel on the device of its first tensor."""
        passed, grid = self.planned(*tensors, **keywords)
        placed = next((t for t in tensors if getattr(t, "is_cuda", False)), None)
        launcher = self.fn[grid]
        if placed is None:
            self._launch(launcher, passed)
            return
        import torch

        with torch.cuda.device(placed.device):  # Triton launches on the current one
            self._launch(launcher, passed)

    def planned(self, *tensors: Any, **keywords: Any) -> tuple[Any, Any]:
        """Return what a call would pass to the kernel, and its grid, as Triton's.

        Raises:
            Exception: whatever the recipe raises.
        """
        given = self.__signature__.bind(*tensors, **keywords)
        given.apply_defaults()
        passed = self._args(*given.args, **given.kwargs)
        return passed, self._grid_for(given.arguments)

    def problem(self, passed: Any, grid: Any) -> str:
        """Return why the kernel cannot be launched like this, "" where it can."""
        own = inspect.signature(self.__wrapped__)
        try:
            if isinstance(passed, Mapping):
                given = own.bind_partial(**passed)
            elif isinstance(passed, tuple | list):
                given = own.bind_partial(*passed)
            else:
                return f"args= returns {type(passed).__name__}, no tuple or mapping"
        except TypeError as error:
            names = ", ".join(own.parameters)
            return f"args= does not fit {self.__wrapped__.__name__}({names}): {error}"
        if twice := [name for name in self._keywords if name in given.arguments]:
            return f"{twice[0]!r} comes from args= and as a keyword of the launch"
        if callable(grid):  # what it is takes Triton's meta
            return ""
        if not 1 <= len(grid) <= _DIMENSIONS:
            return f"grid= gives {len(grid)} dimensions, not 1 to {_DIMENSIONS}"
        wrong = [n for n in grid if not hasattr(n, "__index__")]
        return f"grid= gives {wrong[0]!r}, no whole number" if wrong else ""

    def _launch(self, launcher: Any, passed: Any) -> None:
        if isinstance(passed, Mapping):
            launcher(**passed, **self._keywords)
        elif isinstance(passed, tuple | list):
            launcher(*passed, **self._keywords)
        else:
            raise TypeError(
                f"args= returns {type(passed).__name__}, not a tuple or a mapping"
            )

    def _grid_for(self, named: Mapping[str, Any]) -> Any:
        """Return the grid of one call, as Triton takes it."""
        if not callable(self._grid):
            return tuple(self._grid)
        make = self._grid
        known = {name: named[name] for name in self._of_grid}
        if not self._meta:
            return tuple(make(**known))
        return lambda meta: tuple(make(**known, **{self._meta: meta}))


def _body_of(jit_kernel: Any) -> FunctionType:
    """Return the Python function that Triton made a kernel of.

    Raises:
        BindingError: if it is no such kernel.
    """
    inner = jit_kernel
    for _ in range(100):  # heuristics around an autotuner around the kernel
        if isinstance(inner, FunctionType) or not hasattr(inner, "fn"):
            break
        inner = inner.fn
    if inner is jit_kernel or not isinstance(inner, FunctionType):
        raise BindingError(
            f"{jit_kernel!r:.60} is no @triton.jit kernel",
            where="kfuzz.launch",
            fix="a Python function that launches one is bound as it is: "
            "@kfuzz.kernel(...)",
        )
    return inner


def _recipe_of(args: Any, where: str) -> inspect.Signature:
    """Return the parameters of a recipe.

    Raises:
        BindingError: if it is no function, or takes any number of arguments.
    """
    if not callable(args):
        raise BindingError(
            f"args is {type(args).__name__}, no function", where=where,
            fix="write args=lambda x, y: (x, y, x.shape[0])",
        )  # fmt: skip
    signature = inspect.signature(args)
    for p in signature.parameters.values():
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            raise BindingError(
                f"args takes {p}: which tensors these are is not stated", where=where,
                fix="name them: args=lambda x, y: ...",
            )  # fmt: skip
    return signature


def _parameters_of_grid(
    grid: Grid, recipe: inspect.Signature, where: str
) -> tuple[tuple[str, ...], str]:
    """Return which of a grid's parameters the recipe has, and which one is Triton's.

    Raises:
        BindingError: if several are unknown to the recipe.
    """
    if not callable(grid):
        return (), ""
    names = list(inspect.signature(grid).parameters)
    known = tuple(n for n in names if n in recipe.parameters)
    others = [n for n in names if n not in recipe.parameters]
    if len(others) > 1:
        raise BindingError(
            f"grid takes {', '.join(others)}, which args does not", where=where,
            fix="one parameter of its own is Triton's meta; the others are those of "
            "args",
        )  # fmt: skip
    return known, "".join(others)


# `kfuzz.module`: a `torch.nn.Module` as a function of its inputs and parameters.

# Modules kept, one for each thread, size, dtype and device.
_KEPT: Final = 64
_SEED: Final = 0


def module(
    source: "torch.nn.Module | Callable[..., torch.nn.Module]",
    *,
    parameters: Mapping[str, str] | None = None,
) -> "ModuleForm":
    """Return a torch.nn.Module in a form that `kfuzz.kernel(...)` binds.

    `forward` takes the operator's tensors that are not parameters of the module, in
    order. The named parameters get the drawn values (`torch.func.functional_call`). The
    others keep the module's values. The module runs on the device and in the dtype of
    the case.

    Args:
        source: a module, which kfuzz runs at every shape unless `shape_class` limits
            them; or a function that makes one from sizes of the operator's dimensions
            and from its scalars, by name.
        parameters: the operator's tensors that are parameters or buffers of the
            module, and their names in it, e.g. `{"weight": "norm.weight"}`.

    Raises:
        BindingError: if the source is neither, or the module lacks a parameter.
    """
    return ModuleForm(source, dict(parameters or {}))


class ModuleForm(Form):
    """A module, or what makes one, with the parameters that are drawn."""

    def __init__(
        self,
        source: "torch.nn.Module | Callable[..., torch.nn.Module]",
        parameters: Mapping[str, str],
    ) -> None:
        import torch

        self._source = source
        self._parameters = parameters
        if isinstance(source, torch.nn.Module):
            self.__name__ = type(source).__name__
            _check_names(source, parameters, f"module {self.__name__}")
        elif callable(source):
            self.__name__ = getattr(source, "__name__", "")
        else:
            raise BindingError(
                f"{source!r:.60} is neither a module nor a function that makes one",
                where="kfuzz.module",
            )

    def fitted(
        self, operator: "Operator", declaration: "Declaration", where: str
    ) -> Callable[..., Any]:
        """Return the module as a function of the operator's tensors.

        Raises:
            BindingError: if it takes what the operator has not.
        """
        import torch

        for name in self._parameters:
            if name not in operator.tensors:
                raise BindingError(
                    f"parameters= names {name!r}, no tensor of "
                    f"{operator.signature_text()}",
                    where=where,
                    fix=suggestion(name, operator.tensors),
                )
        taken = [
            name
            for name, p in operator.tensors.items()
            if name in self._parameters or not p.optional
        ]
        if taken != list(operator.tensors)[: len(taken)]:
            raise BindingError(
                f"of {operator.signature_text()} it takes {', '.join(taken)}: what is "
                "left out stands before one of them",
                where=where,
                fix="name it in parameters=",
            )
        if isinstance(self._source, torch.nn.Module):
            forward = self._source.forward
            known = inspect.signature(forward).parameters
            scalars = tuple(name for name in operator.scalars if name in known)
            return _Function(self, operator, taken, scalars, (), forward)
        sizes, scalars = _sizes_of(self._source, operator, where)
        return _Function(self, operator, taken, scalars, sizes, self._source)


class _Function:
    """A module as a function; what it is made of is made where it is called."""

    def __init__(
        self,
        form: ModuleForm,
        operator: "Operator",
        taken: list[str],
        scalars: tuple[str, ...],
        sizes: tuple[str, ...],
        code: Callable[..., Any],
    ) -> None:
        self._form = form
        self._tensors = operator.tensors
        self._taken = taken
        self._scalars = scalars
        self._sizes = sizes
        self._kept: dict[object, torch.nn.Module] = {}
        self.__name__ = form.__name__
        self.__wrapped__ = code
        kinds = inspect.Parameter
        self.__signature__ = inspect.Signature(
            [kinds(name, kinds.POSITIONAL_OR_KEYWORD) for name in taken]
            + [
                kinds(name, kinds.KEYWORD_ONLY, default=operator.default_of(name))
                for name in scalars
            ]
        )

    def __call__(self, *tensors: "Tensor", **scalars: Any) -> Any:
        """Call the module with the tensors in place of its parameters."""
        from torch.func import functional_call

        given = dict(zip(self._taken, tensors, strict=True))
        parameters = self._form._parameters
        swapped = {parameters[name]: given[name] for name in parameters}
        inputs = tuple(x for name, x in given.items() if name not in parameters)
        passed = {} if self._is_factory else scalars
        made = self._module(given, scalars)
        return functional_call(made, swapped, inputs, passed)

    @property
    def _is_factory(self) -> bool:
        """Whether scalars go to what makes the module, not to its `forward`."""
        import torch

        return not isinstance(self._form._source, torch.nn.Module)

    def _module(
        self, given: Mapping[str, "Tensor"], scalars: Mapping[str, Any]
    ) -> "torch.nn.Module":
        """Return the module for sizes, scalars, dtype and device of a call.

        Each thread has its own: parameters are swapped in the module itself.
        """
        found: dict[str, int] = {}
        for name, x in given.items():
            found |= self._tensors[name].sizes(x.shape)
        sizes = {name: found[name] for name in self._sizes}
        lead = next((x for x in given.values() if x.is_floating_point()), None)
        place = None if lead is None else (lead.device, lead.dtype)
        own = scalars if self._is_factory else {}
        thread = threading.get_ident()
        key = (thread, tuple(sizes.items()), tuple(own.items()), place)
        made = self._kept.get(key)
        if made is None:
            made = self._kept[key] = self._made({**sizes, **own}, lead)
            for old in list(self._kept)[:-_KEPT]:
                self._kept.pop(old, None)
        return made

    def _made(
        self, keywords: Mapping[str, Any], lead: "Tensor | None"
    ) -> "torch.nn.Module":
        """Make a module, out of sight of what watches the kernel.

        Raises:
            BuildError: if what makes it gives no module, or it lacks a parameter.
            Exception: what that raises: sizes that it declines are declined by the
                kernel.
        """
        import copy

        import torch
        from torch.utils._python_dispatch import _disable_current_modes

        source, where = self._form._source, f"module {self.__name__}"
        # Equal in every call and child, and without a part in the call's own numbers.
        with _disable_current_modes(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(_SEED)
            made: Any
            if isinstance(source, torch.nn.Module):
                made = copy.deepcopy(source)
            else:
                made = source(**keywords)
            if not isinstance(made, torch.nn.Module):
                what = f"what makes it returns {type(made).__name__}"
                raise BuildError(what, where=where)
            try:
                _check_names(made, self._form._parameters, where)
            except BindingError as error:
                raise BuildError(error.what, where=where, fix=error.fix) from None
            module: torch.nn.Module = made
            return module if lead is None else module.to(lead.device, lead.dtype)


def _check_names(
    made: "torch.nn.Module", parameters: Mapping[str, str], where: str
) -> None:
    known = [n for n, _ in (*made.named_parameters(), *made.named_buffers())]
    for name in parameters.values():
        if name not in known:
            raise BindingError(
                f"the module has no parameter or buffer {name!r}",
                where=where,
                fix=suggestion(name, known) if known else "it has none",
            )


def _sizes_of(
    factory: Callable[..., Any], operator: "Operator", where: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the dimensions and the scalars that what makes a module takes.

    Raises:
        BindingError: if it needs anything else.
    """
    known = {n for p in operator.tensors.values() for n in p.names}
    sizes, scalars = [], []
    for p in inspect.signature(factory).parameters.values():
        if p.name in known:
            sizes.append(p.name)
        elif p.name in operator.scalars:
            scalars.append(p.name)
        elif p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            raise BindingError(
                f"{p.name!r} is no dimension or scalar of {operator.signature_text()}",
                where=where,
                fix=suggestion(p.name, (*known, *operator.scalars)),
            )
    return tuple(sizes), tuple(scalars)


# `kfuzz.arrays`: a function of another library's arrays.


def arrays(
    through: Callable[["Tensor"], Any],
) -> Callable[[Callable[..., Any]], "Arrays"]:
    """Return a decorator for a kernel that takes and returns a library's arrays.

    A language's simulator and what it keeps between calls serve one caller: calls do
    not overlap (C-ORD-03). A tensor that the library cannot hold in the tensor's memory
    and type is the language's limit, and the case is not judged.

    Args:
        through: makes an array of a tensor, in its memory: `np.from_dlpack` (NumPy, and
            Numba's simulator), `jnp.from_dlpack`, `wp.from_dlpack`,
            `cupy.from_dlpack`, `cuda.as_cuda_array`.
    """
    return lambda function: Arrays(function, through)


class Arrays(Form):
    """A function of arrays, and what makes these of tensors."""

    def __init__(
        self, function: Callable[..., Any], through: Callable[["Tensor"], Any]
    ) -> None:
        self.__name__ = name_of(function)
        self.__wrapped__ = function
        self._through = through
        self._library = through.__module__.partition(".")[0]

    def fitted(
        self, operator: Operator, declaration: Declaration, where: str
    ) -> Callable[..., Any]:
        """Return it as a function of tensors."""
        import torch

        function = self.__wrapped__
        writes = bool(declaration.out or declaration.inplace)
        ran = set[int]()

        def given(value: Any) -> Any:
            if isinstance(value, tuple | list):
                return type(value)(map(given, value))
            return self._array(value, writes) if torch.is_tensor(value) else value

        @functools.wraps(function)
        def call(*tensors: Any, **named: Any) -> Any:
            # Threads that it makes and what it compiles are of a process: none forks.
            is_first = os.getpid() not in ran
            ran.add(os.getpid())
            with at_work() if is_first else nullcontext():
                getattr(sys.modules.get(self._library), "init", lambda: None)()
                arrays = [given(value) for value in tensors]
                named = {name: given(value) for name, value in named.items()}
                return _tensors(function(*arrays, **named))

        call.overlaps = False  # type: ignore[attr-defined]
        return call

    def _array(self, tensor: "Tensor", writes: bool) -> Any:
        """Return a tensor as an array.

        Raises:
            LanguageLimit: if the library has none like it.
        """
        name = f"{self._library}.{name_of(self._through)}"
        kind = str(tensor.dtype).removeprefix("torch.")
        try:
            array = self._through(tensor)
            back = _tensors(array)  # the array itself, of a library without a way back
        except Exception as error:
            text = message_of(error).partition("\n")[0]
            raise LanguageLimit(f"{name} takes no {kind}: {text}") from error
        if back is array:
            return array
        if back.dtype != tensor.dtype:
            raise LanguageLimit(f"{name} makes {back.dtype} of {kind}")
        if writes and tensor.numel() and back.data_ptr() != tensor.data_ptr():
            raise LanguageLimit(f"{name} copies: what is written there is lost")
        return array


def _tensors(value: Any) -> Any:
    """Return what a kernel returned with tensors in place of arrays."""
    import numpy as np
    import torch
    from torch.utils.dlpack import from_dlpack

    if isinstance(value, tuple | list):
        return [_tensors(each) for each in value]
    if isinstance(value, np.generic):
        value = np.asarray(value)
    strides = value.strides if isinstance(value, np.ndarray) else ()
    if any(step < 0 or step % value.itemsize for step in strides):
        value = value.copy()  # of negative ones torch ends the process
    if torch.is_tensor(value):
        return value
    if hasattr(value, "__dlpack__"):
        return from_dlpack(value)
    if hasattr(value, "__cuda_array_interface__"):
        return torch.as_tensor(value, device="cuda")
    return value


# `kfuzz.compiled`: torch.compile held against eager execution.

# Shapes, dtypes and layouts are many; each may be compiled anew.
_RECOMPILATIONS: Final = 1 << 20
# What the machine lacks, or kfuzz has set, by the class of an exception.
_MACHINES: Final = frozenset(
    {"InvalidCxxCompiler", "TritonMissing", "GPUTooOldForTriton",
     "FailOnRecompileLimitHit", "RecompileLimitExceeded", "RecompileError"}
)  # fmt: skip
_MACHINES_WORDS: Final = (
    "Failed to find C compiler",
    "No working C++ compiler found",
    "Python.h: No such file",
    "omp.h: No such file",
)


def compiled(function: Callable[..., Any], **options: Any) -> "Compiled":
    """Return a function or module under torch.compile, as a kernel.

    The first call compiles it, in a child process. Shapes are dynamic unless the
    options say otherwise. It may recompile without a limit, so that torch never falls
    back to eager execution silently. Without a compiler the verdict is `error`.
    Any other exception of the compiler counts as raised by the kernel.

    Args:
        function: takes tensors by position, and scalars by keyword.
        options: those of `torch.compile`.

    Raises:
        BindingError: if the function is not callable.
    """
    if not callable(function):
        raise BindingError(f"{function!r:.60} is not callable", where="kfuzz.compiled")
    return Compiled(function, options)


class Compiled:
    """A function under torch.compile, compiled on its first call in a process."""

    def __init__(
        self, function: Callable[..., Any], options: Mapping[str, Any]
    ) -> None:
        import torch

        self._function = function
        self._options = {"dynamic": True, **options}
        self._is_module = isinstance(function, torch.nn.Module)
        # By process, and for a module by device and dtype.
        self._made: dict[object, Callable[..., Any]] = {}
        forward = (
            function.forward if isinstance(function, torch.nn.Module) else function
        )
        self.__name__ = name_of(function)
        self.__qualname__ = getattr(function, "__qualname__", self.__name__)
        self.__doc__ = function.__doc__
        self.__wrapped__ = forward
        self.__signature__ = inspect.signature(forward)
        if is_child():
            _environment()  # torch settles it while its compiler is imported
        import_compiler()

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Call what it is compiled to.

        Raises:
            BuildError: if this machine cannot compile, or nothing is compiled.
            Exception: what the compiler, or the function, raises.
        """
        key = self._key(arguments)
        with _compiling() as counts:
            if key not in self._made:
                self._made[key] = self._compiled(arguments)
            try:
                returned = self._made[key](*arguments, **keywords)
            except Exception as error:
                if (why := _machines(error)) is not None:
                    raise BuildError(
                        f"torch.compile cannot compile {self.__name__} here: {why}"
                    ) from error
                raise
            code = os.getpid(), id(getattr(self.__wrapped__, "__code__", self))
            if counts():
                _seen.add(code)
            elif code not in _seen:
                raise BuildError(
                    f"torch.compile compiled nothing of {self.__name__}: "
                    "it runs eagerly",
                    fix="see TORCH_COMPILE_DISABLE, TORCHDYNAMO_DISABLE and what its "
                    "first call is given",
                )
        return returned

    def _key(self, arguments: tuple[Any, ...]) -> object:
        if not self._is_module:
            return os.getpid()
        lead = lead_of(arguments)
        return os.getpid(), *((lead.device, lead.dtype) if lead is not None else ())

    def _compiled(self, arguments: tuple[Any, ...]) -> Callable[..., Any]:
        import torch

        function = self._function
        if isinstance(function, torch.nn.Module):
            from torch.utils._python_dispatch import _disable_current_modes

            lead = lead_of(arguments)
            with _disable_current_modes():  # its weights are no allocation of a call
                function = copy.deepcopy(function)
                if lead is not None:
                    function.to(lead.device, lead.dtype)
        made: Callable[..., Any] = torch.compile(function, **self._options)
        return made


_lock = threading.RLock()
# What has been compiled at least once, by process and code: torch keeps it by the code.
_seen: Final[set[tuple[int, int]]] = set()


@functools.cache
def _counting() -> Callable[[], int]:
    """Prepare this process for compiling; return what counts compilations.

    In-process, without workers that a fork would leave behind, with its files in
    kfuzz's cache, and as often as new shapes ask for it.
    """
    import torch._dynamo
    import torch._inductor.config as inductor
    from torch._dynamo.callback import callback_handler

    from kfuzz.execution.calls.compiling import starts_and_ends

    dynamo = torch._dynamo.config
    for limit in ("recompile_limit", "accumulated_recompile_limit"):
        setattr(dynamo, limit, _RECOMPILATIONS)
    dynamo.fail_on_recompile_limit_hit = True
    dynamo.suppress_errors = False
    inductor.compile_threads = 1
    count = 0
    start, end = starts_and_ends()

    def starts(*_: object) -> None:
        nonlocal count
        count += 1
        start()

    callback_handler.register_start_callback(starts)
    callback_handler.register_end_callback(lambda *_: end())
    return lambda: count


@contextmanager
def _compiling() -> Iterator[Callable[[], int]]:
    """Give a block a function that returns how often torch has compiled in it."""
    if not _counting.cache_info().currsize:
        with _lock, at_work():  # importing the compiler takes seconds
            _environment()  # of no effect where it is imported already
            _counting()
    count = _counting()
    before = count()
    yield lambda: count() - before


def _environment() -> None:
    """Have torch's compiler keep its files in kfuzz's cache, unless one is set."""
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    if "TORCHINDUCTOR_CACHE_DIR" not in os.environ:
        try:
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(cache_folder("inductor"))
        except OSError:
            return


def _machines(error: BaseException) -> str | None:
    """Return why this machine, not the kernel, keeps torch from compiling, or None."""
    seen: BaseException | None = error
    why = None
    for _ in range(100):
        if seen is None:
            break
        text = str(seen).strip()
        by_name = any(kind.__name__ in _MACHINES for kind in type(seen).__mro__)
        if by_name or any(words in text for words in _MACHINES_WORDS):
            why = text.partition("\n")[0] or type(seen).__name__  # the innermost's
        seen = getattr(seen, "inner_exception", None) or seen.__cause__
    return why
