"""Arrays with one value per program of a launch.

The interpreter computes with NumPy arrays, for one program at a time. An array of
`Programs` holds the values of many along a leading axis, and NumPy's functions take it
for an array of one of them: the interpreter's code, and kfuzz's corrections of it, run
unchanged. The results of each program are bit for bit those that it has alone: what
NumPy computes in an order that depends on the layout of the memory is computed in the
same layout, and what it computes otherwise for part of an array, program by program.
"""

import math
import operator
from collections.abc import Callable, Sequence
from functools import wraps
from types import ModuleType
from typing import Any, Final

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

Array = NDArray[Any]
Function = Callable[..., Any]

LIMIT_BYTES: Final = 8 << 20
"""The most bytes of one value, of all programs together: beyond it nothing is gained
by more of them at once, and caches are lost."""


class NotVectorised(BaseException):
    """What programs do can only be had by running one at a time; its text says why.

    No `Exception`: the interpreter, and kernels' code, catch those.
    """


class Diverged(BaseException):
    """Python's control flow depends on a value that differs between programs.

    Attributes:
        values: one per program.
    """

    def __init__(self, values: Array) -> None:
        super().__init__()
        self.values = values


class TooLarge(BaseException):
    """One value takes more memory than it may.

    Attributes:
        nbytes: how much.
    """

    def __init__(self, nbytes: int) -> None:
        super().__init__()
        self.nbytes = nbytes


class Programs(NDArrayOperatorsMixin):
    """An array of each program.

    Attributes:
        data: all of them, [programs, *shape]; the first axis has the greatest stride.
    """

    __slots__ = ("data",)
    largest = 0
    """The most bytes of one value so far."""

    def __init__(self, data: Array) -> None:
        self.data = data
        if data.nbytes > Programs.largest:
            Programs.largest = data.nbytes
            if data.nbytes > LIMIT_BYTES:
                raise TooLarge(data.nbytes)

    @property
    def dtype(self) -> Any:
        """The type of an element."""
        return self.data.dtype

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.data.itemsize

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that each program has."""
        return self.data.shape[1:]

    @property
    def ndim(self) -> int:
        """Its number of axes."""
        return self.data.ndim - 1

    @property
    def size(self) -> int:
        """Its number of elements."""
        return self.data.size // len(self.data)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise NotVectorised("a function of NumPy's takes no values of many programs")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotVectorised(f"an array's {name}")

    def __repr__(self) -> str:
        raise NotVectorised("values are printed")

    __str__ = __repr__

    def __array_ufunc__(
        self, ufunc: Any, method: str, *inputs: Any, **named: Any
    ) -> Any:
        out = named.pop("out", None) if named else None
        if method != "__call__":
            made = per_program(getattr(ufunc, method), *inputs, **named)
        elif ufunc.signature is not None:
            made = Programs(ufunc(*_spread(inputs), **named))
        elif ufunc not in _EXACT and any(
            getattr(x, "dtype", None) == np.float16 for x in inputs
        ):
            made = per_program(ufunc, *inputs, **named)
        else:
            made = _wrapped(ufunc(*_aligned(inputs), **named))
        if out is None:
            return made
        if not isinstance(out[0], Programs):
            raise NotVectorised("values of many programs are put into an array of one")
        out[0].data[...] = made.data
        return out[0]

    def __array_function__(
        self, function: Any, types: Any, inputs: Any, named: Any
    ) -> Any:
        known = _FUNCTIONS.get(function)
        if known is not None:
            return known(*inputs, **named)
        return per_program(function, *inputs, **named)

    def astype(self, dtype: Any) -> "Programs":
        """Convert to a type.

        Where a whole number cannot hold a float, NumPy gives one thing for a number and
        another for many.
        """
        x, kind = self.data, np.dtype(dtype)
        if x.dtype.kind == "f" and kind.kind in "iu":
            low, high = np.iinfo(kind).min, np.iinfo(kind).max
            if not ((x >= low) & (x < high)).all():
                return per_program(operator.methodcaller("astype", kind), self)  # type: ignore[no-any-return]
        return Programs(x.astype(dtype))

    def view(self, dtype: Any) -> "Programs":
        """Take the bits for those of a type."""
        return Programs(self.data.view(dtype))

    def copy(self) -> "Programs":
        """Return a copy."""
        return Programs(self.data.copy())

    def reshape(self, *shape: Any) -> "Programs":
        """Change the shape that each program has."""
        if len(shape) == 1 and not isinstance(shape[0], int):
            shape = tuple(shape[0])
        return Programs(self.data.reshape(len(self.data), *shape))

    def squeeze(self) -> "Programs":
        """Leave out axes of one element."""
        return self.reshape([n for n in self.shape if n != 1])

    def any(self) -> bool:
        """Return whether any of any program is true: code that asks goes by element."""
        return bool(self.data.any())

    def all(self) -> bool:
        """Return whether all of every program are true."""
        return bool(self.data.all())

    def sum(self, axis: Any = None) -> Any:
        """Return sums along an axis."""
        return np.sum(self, axis=axis)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> "Programs":
        keys = key if isinstance(key, tuple) else (key,)
        if any(isinstance(k, Programs | np.ndarray) for k in keys):
            if any(k.dtype == np.bool_ for k in keys if hasattr(k, "dtype")):
                raise NotVectorised("elements of a mask, as many as a program has")
            return per_program(operator.getitem, self, key)  # type: ignore[no-any-return]
        return Programs(self.data[(slice(None), *keys)])

    def __setitem__(self, key: Any, value: Any) -> None:
        whole = value.data if isinstance(value, Programs) else value
        if isinstance(key, Programs):
            if key.dtype != np.bool_ or key.shape != self.shape or np.ndim(value):
                raise NotVectorised("elements are replaced by number")
            self.data[key.data] = whole
            return
        keys = key if isinstance(key, tuple) else (key,)
        part = Programs(self.data[(slice(None), *keys)])
        part.data[...] = _aligned((part, value))[1]

    def __bool__(self) -> bool:
        return bool(self._common())

    def __int__(self) -> int:
        return int(self._common())

    def __index__(self) -> int:
        return operator.index(self._common())

    def _common(self) -> Any:
        """Return the value of one program that is the value of all.

        Raises:
            Diverged: if it is not.
        """
        first = self.data[0]
        if first.size == 1:
            values = self.data.reshape(-1)
            if not _same(values):
                raise Diverged(values)
        return first


def _same(values: Array) -> bool:
    bits = values.view(f"u{values.itemsize}") if values.dtype.kind != "b" else values
    return bool((bits == bits[0]).all())


def _wrapped(made: Any) -> Any:
    return tuple(map(Programs, made)) if isinstance(made, tuple) else Programs(made)


def _aligned(inputs: Sequence[Any]) -> list[Any]:
    """Return operands of a function of elements, programs along the first axis."""
    found = [x.data if isinstance(x, Programs) else x for x in inputs]
    sizes = [x.ndim for x in inputs if isinstance(x, _ARRAYS)]
    ndim = max(sizes)
    if min(sizes) < ndim:
        for place, x in enumerate(inputs):
            if isinstance(x, Programs) and (missing := ndim - x.ndim):
                shape = len(x.data), *(1,) * missing, *x.shape
                found[place] = x.data.reshape(shape)
    return found


def count_of(values: Any) -> int:
    """Return how many programs the values are of, 0 where all have the same ones."""
    if isinstance(values, Programs):
        return len(values.data)
    if isinstance(values, list | tuple):
        return max(map(count_of, values), default=0)
    return 0


def spread(x: Any, count: int) -> Array:
    """Return an array of each of so many programs, what is the same for all too."""
    if isinstance(x, Programs):
        return x.data
    x = np.asarray(x)
    return np.broadcast_to(x, (count, *x.shape))


def _spread(inputs: Sequence[Any]) -> list[Array]:
    count = count_of(inputs)
    return [spread(x, count) for x in inputs]


def _one(value: Any, number: int) -> Any:
    if isinstance(value, Programs):
        return value.data[number]
    if isinstance(value, list | tuple):
        return type(value)(_one(item, number) for item in value)
    return value


def per_program(function: Function, *inputs: Any, **named: Any) -> Any:
    """Call a function for one program after the other, and put together its results."""
    count = count_of([*inputs, *named.values()])
    made = [
        function(
            *(_one(x, n) for x in inputs), **{k: _one(x, n) for k, x in named.items()}
        )
        for n in range(count)
    ]
    if isinstance(made[0], list | tuple):
        return type(made[0])(map(_stacked, zip(*made, strict=True)))
    return _stacked(made)


def _stacked(made: Sequence[Any]) -> Programs:
    """Return results of programs, each in the layout that it has."""
    first = np.asarray(made[0])
    if any(np.shape(each) != first.shape for each in made):
        raise NotVectorised("programs have results of different sizes")
    order = sorted(range(first.ndim), key=lambda axis: -abs(first.strides[axis]))
    room = np.empty((len(made), *(first.shape[a] for a in order)), first.dtype)
    data = room.transpose(0, *(order.index(axis) + 1 for axis in range(first.ndim)))
    for place, each in zip(data, made, strict=True):
        place[...] = each
    return Programs(data)


_ARRAYS: Final = (Programs, np.ndarray)

# NumPy's functions that take all programs at once.

# Of halves the other functions compute otherwise at the end of an array.
_EXACT: Final = frozenset(
    {np.add, np.subtract, np.multiply, np.divide, np.negative, np.absolute, np.sqrt,
     np.fmod, np.maximum, np.minimum, np.fmax, np.fmin, np.less, np.less_equal,
     np.greater, np.greater_equal, np.equal, np.not_equal, np.isnan, np.isinf,
     np.isfinite, np.signbit, np.floor, np.ceil, np.trunc, np.rint, np.copysign,
     np.nextafter}
)  # fmt: skip


def _elements(function: Any) -> Function:
    """Return a function of elements for operands of many programs."""

    def called(*inputs: Any, **named: Any) -> Any:
        return _wrapped(function(*_aligned(inputs), **named))

    return called


def elementwise(function: Any) -> Function:
    """Return a function of elements that takes arrays, and operands of many programs.

    Its result for an element must not depend on where that lies in the array.
    """
    many = _elements(function)

    @wraps(function)
    def called(*inputs: Any, **named: Any) -> Any:
        return (many if count_of(inputs) else function)(*inputs, **named)

    return called


def one_by_one(function: Any) -> Function:
    """Return a function of arrays that takes operands of many programs, one by one."""

    @wraps(function)
    def called(*inputs: Any, **named: Any) -> Any:
        if count_of([*inputs, *named.values()]):
            return per_program(function, *inputs, **named)
        return function(*inputs, **named)

    return called


def array(values: Any) -> Any:
    """Return an array; values of many programs are one."""
    return values if isinstance(values, Programs) else np.asarray(values)


def shaped(values: Any, shape: tuple[int, ...]) -> Any:
    """Return an operand in the shape of the pointers: scalars come in several."""
    values = array(values)
    if values.shape == shape:
        return values
    if values.size == math.prod(shape):
        return values.reshape(shape)
    return np.broadcast_to(values, shape)


def _along(function: Any) -> Function:
    """Return a reduction or scan along an axis."""

    def called(x: Any, axis: Any = None, **named: Any) -> Any:
        if axis is None:
            if function in _BY_INDEX or function in _SCANS:
                return per_program(function, x, axis=axis, **named)
            axes: Any = tuple(range(1, x.data.ndim))
        else:
            axes = axis + 1 if axis >= 0 else axis
        return Programs(function(x.data, axis=axes, **named))

    return called


def _of_first(function: Any) -> Function:
    """Return a function of which only shape and type of its argument matter."""
    return lambda x, *others, **named: function(x.data[0], *others, **named)


def _broadcast(x: Any, shape: Any) -> Programs:
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    (data, _) = _aligned((x, np.broadcast_to(np.uint8(0), shape)))
    return Programs(np.broadcast_to(data, (len(data), *shape)))


def _expanded(x: Any, axis: Any) -> Programs:
    return Programs(np.expand_dims(x.data, axis + 1 if axis >= 0 else axis))


def _transposed(x: Any, axes: Any = None) -> Programs:
    order = range(x.ndim)[::-1] if axes is None else [a % x.ndim for a in axes]
    return Programs(x.data.transpose(0, *(axis + 1 for axis in order)))


def _moved(x: Any, source: int, destination: int) -> Programs:
    places = (axis % x.ndim + 1 for axis in (source, destination))
    return Programs(np.moveaxis(x.data, *places))


def _joined(function: Any) -> Function:
    def called(arrays: Any, axis: int = 0) -> Programs:
        return Programs(function(_spread(arrays), axis=axis + 1 if axis >= 0 else axis))

    return called


_BY_INDEX: Final = (np.argmax, np.argmin, np.nanargmax, np.nanargmin)
_SCANS: Final = (np.cumsum, np.cumprod, np.flip)
_FUNCTIONS: Final[dict[Any, Function]] = {
    **{f: _elements(f) for f in (np.where, np.clip)},
    **{
        f: _along(f)
        for f in (np.sum, np.max, np.min, np.prod, np.nanmax, np.nanmin,
                  *_BY_INDEX, *_SCANS)
    },
    **{
        f: _of_first(f)
        for f in (np.zeros_like, np.ones_like, np.full_like, np.ndim, np.shape, np.size)
    },
    **{f: _joined(f) for f in (np.concatenate, np.stack)},
    np.any: Programs.any, np.broadcast_to: _broadcast, np.expand_dims: _expanded,
    np.transpose: _transposed, np.moveaxis: _moved,
}  # fmt: skip


def numpy_for(module: ModuleType) -> ModuleType:
    """Return NumPy with the functions that make arrays of numbers, of programs' too.

    Args:
        module: NumPy.
    """
    made = ModuleType(module.__name__)
    vars(made).update(vars(module))

    def full(shape: Any, fill_value: Any, dtype: Any = None, **named: Any) -> Any:
        if not isinstance(fill_value, Programs):
            return module.full(shape, fill_value, dtype=dtype, **named)
        wanted = fill_value.dtype if dtype is None else dtype
        (data, _) = _aligned((fill_value, np.broadcast_to(np.uint8(0), shape)))
        if len(shape) == 1:  # no layout but one
            return _broadcast(Programs(data.astype(wanted, copy=False)), shape)
        filled = np.empty((len(data), *shape), wanted)
        filled[...] = data
        return Programs(filled)

    def array_of(object: Any, dtype: Any = None, **named: Any) -> Any:
        if not count_of(object):
            return module.array(object, dtype=dtype, **named)
        (value,) = object
        data = value.data.reshape(len(value.data), 1)
        return Programs(data if dtype is None else data.astype(dtype))

    def contiguous(a: Any, dtype: Any = None) -> Any:
        if isinstance(a, Programs):
            return Programs(module.ascontiguousarray(a.data, dtype))
        return module.ascontiguousarray(a, dtype)

    vars(made).update(full=full, array=array_of, ascontiguousarray=contiguous)
    return made
