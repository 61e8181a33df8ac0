"""Functions whose calls are judged by a plain reference."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from typing import Any, Final

from torch import Tensor

from kfuzz.contracts.binding import BoundKernel, match_signature
from kfuzz.contracts.reference import reference
from kfuzz.core.declaration import Declaration
from kfuzz.core.errors import BindingError
from kfuzz.core.recipe import Scalar
from kfuzz.monitor.judged import judged
from kfuzz.monitor.seen import Call, Seen, can_copy
from kfuzz.monitor.subjects.arithmetic import tf32_allowed
from kfuzz.monitor.subjects.references import (
    FLOATS,
    MAX_RANK,
    Outcome,
    Reference,
    Structure,
    is_same,
    main_dtype,
    misfit,
    numbers_of,
)
from kfuzz.monitor.subjects.subject import (
    Judged,
    Outside,
    Subject,
    case_of,
    dtype_name,
    is_plain,
    outside,
    scalar_of,
    signature_of,
)
from kfuzz.numerics.formats import FORMATS

# A reference may return its own argument, or say nothing of order and memory.
WITHOUT: Final = frozenset({"K-MEM-04", "C-CMP-01", "K-OWN-01"})
# Claims that say nothing of what is computed.
_NO_ARITHMETIC: Final = frozenset({"inplace", "out", "dtypes"})


class ReferenceSubject(Subject):
    """A function whose calls are judged by a reference in plain torch."""

    def __init__(
        self,
        function: Callable[..., Any],
        plain: Callable[..., Any],
        declaration: Declaration,
        *,
        outputs: tuple[str, ...],
        **named: Any,
    ) -> None:
        """Take a function and its reference.

        Args:
            function: what is called.
            plain: the reference; takes the same arguments, without the owner and
                the destinations.
            declaration: what the function claims; `inplace` names parameters of the
                reference, `out` of the function.
            outputs: names of the results that are tensors.
            named: as for `Subject`: name, explicit and arguments.
        """
        known_as = getattr(plain, "__name__", type(plain).__name__)
        super().__init__(function, declaration, operator_name=known_as, **named)
        self._reference = plain
        self._outputs = outputs
        self._signature = signature_of(function)
        self._wanted = signature_of(plain)
        if declaration.out and self._signature is None:
            raise BindingError(
                "out= of a function without signature", where=f"monitor of {self.name}"
            )

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """Return the arguments of a call; see `Subject.call`."""
        written = self._destinations(args, kwargs)
        if self.arguments is not None:
            made: Any = self.arguments(*args, **kwargs)
            if isinstance(made, Mapping):
                args, kwargs = (), dict(made)
            else:
                args, kwargs = (made,) if isinstance(made, Tensor) else tuple(made), {}
        else:
            args, kwargs = self._without(args, kwargs, written)
        bound = self._bound(args, kwargs)
        structure, found = Structure.of(bound, args, kwargs)
        for name, x in zip(structure.names, found, strict=True):
            if not can_copy(x):
                raise Outside(f"{name} is {type(x).__name__} of {x.dtype}")
        tensors = dict(zip(structure.names, found, strict=True))
        for name in self.declaration.inplace:
            if name not in tensors:
                raise Outside(f"no tensor for {name}")
            written = {self._outputs[0]: tensors[name]}
        scalars = {n: v for n, v in bound.items() if is_plain(v)}
        return Call(
            tensors, scalars, written, frozenset(self.declaration.inplace), structure,
            self._products() if on_gpu(found) else frozenset(),
        )  # fmt: skip

    def _products(self) -> frozenset[str]:
        """Return what torch's flags allow, unless an accumulator is declared."""
        return frozenset() if "accumulator" in self.explicit else tf32_allowed()

    def _destinations(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> dict[str, Tensor]:
        if not self.declaration.out:
            return {}
        assert self._signature is not None
        bound = self._signature.bind(*args, **kwargs)
        given = {**bound.arguments, **kwargs}
        found = {}
        for output, name in zip(self._outputs, self.declaration.out, strict=True):
            place = given.get(name)
            if not isinstance(place, Tensor) or not can_copy(place):
                raise Outside(f"no tensor for {name}")
            found[output] = place
        return found

    def _without(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        written: Mapping[str, Tensor],
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return a call's arguments without the owner and the destinations."""
        places = [id(x) for x in written.values()]
        rest = args[1:] if self.owner else args
        kept = tuple(x for x in rest if id(x) not in places)
        return kept, {n: x for n, x in kwargs.items() if id(x) not in places}

    def _bound(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the arguments by the reference's parameters, defaults left out."""
        if self._wanted is None:
            return {**{f"x{i}": x for i, x in enumerate(args)}, **kwargs}
        return dict(self._wanted.bind(*args, **kwargs).arguments)

    def judge(self, seen: Seen) -> Judged:
        """Judge a call by the reference; see `Subject.judge`."""
        if seen.handed:
            raise Outside(seen.handed)
        dtypes = {n: dtype_name(c.dtype) for n, c in seen.tensors.items()}
        main = main_dtype(dtypes)
        own = {n: "" if d == main else d for n, d in dtypes.items()}
        scalars = {n: scalar_of(v, n) for n, v in seen.scalars.items()}
        scalars = {n: v for n, v in scalars.items() if n not in own}
        structure: Structure = seen.rest
        of = partial(
            Reference, self._reference, name=self.operator_name, dtypes=own,
            scalars=scalars, rebuild=structure.rebuild, outputs=self._outputs,
            declaration=self.declaration, tf32=seen.tf32,
        )  # fmt: skip
        made = of(results=len(seen.returned.copies))
        native = made.native([c.values.contiguous() for c in seen.tensors.values()], {})
        metadata = None
        if native is not None:
            if native.changed:
                name = tuple(own)[native.changed[0]]
                what = f"the reference overwrites {name}: declare inplace={name!r}"
                raise Outside(what)
            made = of(results=len(native.tensors))
            metadata = misfit(seen, native, made.operator.outputs)
            # A call that did to the bit what the reference does, of which no more is
            # asked, needs no bound, which costs many passes over the data.
            stored = {dtype_name(x.dtype) for x in native.tensors} <= FORMATS.keys()
            plain = stored and self.explicit <= _NO_ARITHMETIC
            if metadata is None and plain and is_same(seen, native):
                made = of(results=len(native.tensors), known=native.tensors)
        operator = made.operator
        case = case_of(operator, seen, scalars, by_size=True)
        if why := outside(operator, self.declaration, case):
            raise Outside(why)
        report = judged(
            operator, self.declaration, self.explicit, case, numbers_of(seen),
            without=WITHOUT, metadata=metadata,
        )  # fmt: skip
        return Judged(case, report, self._takes(own, main, scalars, native))

    def _takes(
        self,
        dtypes: Mapping[str, str],
        main: str,
        scalars: Mapping[str, Scalar],
        native: Outcome | None,
    ) -> bool:
        """Whether the kernel can be called on the case as it was here."""
        if self.kernel is None or native is None:
            return False
        operator, takes = self.kernel.operator, self.kernel.arguments
        fits = takes.tensors[: len(dtypes)] == tuple(dtypes)
        fits = fits and len(dtypes) == len(takes.tensors)
        fits = fits and not any(dtypes.values()) and set(scalars) <= set(takes.scalars)
        # Such an operator stores all results in the format of its arguments.
        plain = {dtype_name(x.dtype) for x in native.tensors} == {main}
        return fits and plain and len(operator.outputs) == len(native.tensors)

    def bind(self, function: Callable[..., Any], **place: Any) -> None:
        """Make a kernel that kfuzz calls by itself, where the signatures tell how.

        Args:
            function: the monitored one.
            place: module, line and top_level, as of `BoundKernel`.
        """
        if self.owner or self.arguments or self.declaration.out:
            return
        plain = self._reference
        if self.declaration.inplace:
            plain = _pure(plain, self.declaration.inplace[0])
        try:
            operator = reference(
                plain, name=self.operator_name, outputs=self._outputs,
                dtypes=FLOATS, ranks=range(MAX_RANK + 1), defaults=self.declaration,
            )  # fmt: skip
            arguments = match_signature(operator, function, f"monitor of {self.name}")
        except BindingError:
            return
        self.kernel = BoundKernel(
            function,
            name=self.name,
            operator=operator,
            declaration=self.declaration,
            explicit=self.explicit,
            arguments=arguments,
            **place,
        )


def _pure(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return a function that returns what another one writes to a parameter."""

    @wraps(function)
    def pure(*tensors: Tensor, **scalars: Any) -> Any:
        given = [x.clone() for x in tensors]
        returned = function(*given, **scalars)
        at = list(inspect.signature(function).parameters).index(name)
        return returned if isinstance(returned, Tensor) else given[at]

    return pure


def reference_declaration(name: str, **claims: Any) -> Declaration:
    """Return what a function held to a reference claims.

    `out` and `inplace` name parameters here.

    Raises:
        BindingError: if a claim is unknown, or several parameters are overwritten.
    """
    claims.setdefault("dtypes", FLOATS)
    made = Declaration().declare(f"monitor of {name}", **claims)
    if len(made.inplace) > 1:
        raise BindingError(
            "inplace= names one parameter of a reference", where=f"monitor of {name}"
        )
    return made


def on_gpu(tensors: Sequence[Tensor]) -> bool:
    """Whether some tensors lie on a GPU."""
    return any(x.is_cuda for x in tensors)
