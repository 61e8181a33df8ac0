"""`kfuzz.launch`: a bare `@triton.jit` kernel with the recipe of its launch."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any, Final

from kfuzz.contracts.forms import Form
from kfuzz.contracts.operator import Operator
from kfuzz.core.declaration import Declaration
from kfuzz.core.errors import BindingError, suggestion

_DIMENSIONS: Final = 3

Grid = Sequence[int] | Callable[..., Sequence[int]]

# What a launch takes besides the kernel's own parameters, whatever the backend.
_OPTIONS: Final = frozenset(
    {
        "num_warps", "num_stages", "num_ctas", "maxnreg", "enable_fp_fusion",
        "launch_cooperative_grid", "launch_pdl", "ptx_options", "ir_override",
        "waves_per_eu", "matrix_instr_nonkdim", "kpack",
    }
)  # fmt: skip


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
        BindingError: if `jit_kernel` is no Triton kernel, a name is not one of its
            parameters, or the parameters of `args` or `grid` cannot be inferred.
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
        _check_keywords(keywords, body, where)
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


def _check_keywords(
    keywords: Mapping[str, Any], body: FunctionType, where: str
) -> None:
    own = list(inspect.signature(body).parameters)
    for name in keywords:
        if name not in own and name not in _OPTIONS:
            raise BindingError(
                f"{name!r} is no parameter of {body.__name__}({', '.join(own)}) and "
                "no option of a launch",
                where=where,
                fix=suggestion(name, (*own, *_OPTIONS)),
            )


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
