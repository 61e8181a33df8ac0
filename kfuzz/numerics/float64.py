"""Running a reference in float64 even where it asks for a narrower float."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from kfuzz.core.errors import BindingError
from kfuzz.numerics.formats import WHOLE

_NARROW: Final = frozenset(
    {
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.float8_e4m3fn,
        torch.float8_e5m2,
    }
)


class Uncompiled(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode that torch's compiler is not imported for, which takes seconds."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Whether to keep that compiler out: torch would import it to do so."""
        return False


class KeepFloat64(Uncompiled):  # type: ignore[no-untyped-call]
    """A mode in which casts to, and constructors of, narrower floats give float64.

    A reference may say `x.float()` or `torch.zeros(n)`; as an oracle it must not
    lose bits by it.
    """

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run one operator with every narrow `dtype` argument widened."""
        kwargs = dict(kwargs or {})
        if kwargs.get("dtype") in _NARROW:
            kwargs["dtype"] = torch.float64
        args = tuple(
            torch.float64 if isinstance(a, torch.dtype) and a in _NARROW else a
            for a in args
        )
        out = func(*args, **kwargs)
        if not isinstance(out, Tensor) or out.dtype not in _NARROW:
            return out
        given = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, Tensor)]
        if any(x.is_floating_point() for x in given):
            return out
        # Constructors and quotients of integers take torch's default, float32.
        if not given and _draws_nothing(func):
            return func(*args, **{**kwargs, "dtype": torch.float64})
        if not given:
            return out.to(torch.float64)
        return func(*tree_map(_widened, args), **tree_map(_widened, kwargs))


class InOwnIntegers(Uncompiled):  # type: ignore[no-untyped-call]
    """A mode in which quotients of narrow integers wrap as their sums do.

    The least integer divided by -1 ends the process on processors that divide in its
    width.
    """

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run one operator, a quotient in int64."""
        name, kwargs = func._schema.name.removeprefix("aten::"), kwargs or {}
        given = [x for x in args if isinstance(x, Tensor)]
        real = any(x.is_floating_point() for x in given)
        if name.rstrip("_") not in _QUOTIENTS or real:
            return func(*args, **kwargs)
        wide = (x.to(torch.int64) if isinstance(x, Tensor) else x for x in args)
        out = func(*wide, **kwargs)
        if name.endswith("_"):
            return args[0].copy_(out)
        return out if out.is_floating_point() else out.to(torch.result_type(*args[:2]))


_QUOTIENTS: Final = frozenset({"div", "floor_divide", "remainder", "fmod"})


@cache
def _draws_nothing(func: Any) -> bool:
    """Whether a constructor that takes a data type gives the same numbers in any."""
    takes = any(a.name == "dtype" for a in func._schema.arguments)
    return takes and torch.Tag.nondeterministic_seeded not in func.tags


def _widened(x: Any) -> Any:
    return x.to(torch.float64) if isinstance(x, Tensor) else x


def in_float64(
    oracle: Callable[..., Any],
    tensors: Sequence[Tensor],
    scalars: dict[str, Any],
    *,
    name: str,
) -> tuple[Tensor, ...]:
    """Return an oracle's results on one member, all float64.

    Args:
        oracle: takes the tensors positionally and the scalars by keyword. It may write
            to them: they are copied before.
        tensors: in float64, without a member dimension.
        scalars: keyword arguments.
        name: the operator's name, for error messages.

    Raises:
        BindingError: if a floating result is not float64, or is no tensor.
    """
    copies = [x.clone() for x in tensors]
    with torch.no_grad(), KeepFloat64():  # type: ignore[no-untyped-call]
        returned = oracle(*copies, **scalars)
    return results_of(returned, name=name)


def results_of(returned: Any, *, name: str) -> tuple[Tensor, ...]:
    """Return what an oracle returned as a tuple of tensors.

    Raises:
        BindingError: if a floating result is not float64, or is no tensor.
    """
    results = returned if isinstance(returned, tuple | list) else (returned,)
    for result in results:
        if not isinstance(result, Tensor):
            raise BindingError(
                f"the oracle returns {type(result).__name__}, not a tensor",
                where=f"operator {name}",
            )
        kind = str(result.dtype).removeprefix("torch.")
        if not result.is_floating_point() and kind not in WHOLE:
            raise BindingError(
                f"the oracle returns {result.dtype}",
                where=f"operator {name}",
                fix=f"results are floating, or {', '.join(WHOLE)}",
            )
        if result.is_floating_point() and result.dtype is not torch.float64:
            raise BindingError(
                f"the oracle returns {result.dtype} for float64 inputs",
                where=f"operator {name}",
                fix="write it in plain torch without casts to narrower floats",
            )
    return tuple(results)
