"""`kfuzz.module`: a `torch.nn.Module` as a function of its inputs and parameters."""

import inspect
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from kfuzz.contracts.forms import Form
from kfuzz.core.errors import BindingError, BuildError, suggestion

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from kfuzz.contracts.operator import Operator
    from kfuzz.core.declaration import Declaration

# Modules kept, one for each size, dtype and device.
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
        self._kept: dict[object, list[torch.nn.Module]] = {}  # those not in use
        self._lock = threading.Lock()
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
        with self._module(given, scalars) as made:
            return functional_call(made, swapped, inputs, passed)

    @property
    def _is_factory(self) -> bool:
        """Whether scalars go to what makes the module, not to its `forward`."""
        import torch

        return not isinstance(self._form._source, torch.nn.Module)

    @contextmanager
    def _module(
        self, given: Mapping[str, "Tensor"], scalars: Mapping[str, Any]
    ) -> Iterator["torch.nn.Module"]:
        """Give the block the module for sizes, scalars, dtype and device of a call.

        No other call has it meanwhile: parameters are swapped in the module itself,
        and calls may overlap.
        """
        found: dict[str, int] = {}
        for name, x in given.items():
            found |= self._tensors[name].sizes(x.shape)
        sizes = {name: found[name] for name in self._sizes}
        lead = next((x for x in given.values() if x.is_floating_point()), None)
        place = None if lead is None else (lead.device, lead.dtype)
        own = scalars if self._is_factory else {}
        key = (tuple(sizes.items()), tuple(own.items()), place)
        with self._lock:
            if key not in self._kept and len(self._kept) >= _KEPT:
                self._kept.pop(next(iter(self._kept)))
            idle = self._kept.setdefault(key, [])
            made = idle.pop() if idle else self._made({**sizes, **own}, lead)
        try:
            yield made
        finally:
            idle.append(made)

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
