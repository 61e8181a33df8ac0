"""Binding the gradients of a kernel beside it."""

import functools
from collections.abc import Sequence

from kfuzz.contracts.binding import REGISTRY, Arguments, BoundKernel
from kfuzz.contracts.gradients.function import Backward
from kfuzz.contracts.gradients.operators import declaration_of, gradients_of
from kfuzz.contracts.gradients.rules import PREFIX
from kfuzz.core.errors import BindingError

SUFFIX = "backward"


def bind_gradients(forward: BoundKernel, wanted: bool | Sequence[str]) -> None:
    """Bind the gradients of a bound kernel, in its module, as kernels of their own.

    They are named `<name>.backward`, and are attributes of that name of it.

    Args:
        forward: the kernel.
        wanted: the arguments whose gradients are judged; True for all.

    Raises:
        BindingError: if the operator has no gradients, the kernel works in place or
            into destinations, or declares no format in which gradients are judged.
    """
    where, claims = f"kernel {forward.name}", forward.declaration
    if claims.inplace or claims.out:
        given = "inplace" if claims.inplace else "out"
        raise BindingError(
            f"gradients= of a kernel with {given}=: autograd sees no result",
            where=where,
            fix="bind the function that returns its results",
        )
    takes = forward.arguments
    try:
        made = gradients_of(
            forward.operator, wanted, tensors=takes.tensors, scalars=takes.scalars
        )
    except BindingError as error:
        raise BindingError(error.what, where=where, fix=error.fix) from None
    for suffix, operator in made.items():
        declaration = declaration_of(operator, claims, forward.explicit)
        if not declaration.dtypes:
            raise BindingError(
                f"gradients are judged in {', '.join(operator.dtypes)} alone",
                where=where,
            )
        grads = tuple(n for n in operator.tensors if n.startswith(PREFIX))
        outputs = operator.forward.outputs if operator.forward else ()
        function = Backward(
            forward.function,
            tensors=takes.tensors,
            wanted=[name[1:] for name in operator.outputs],
            places=[outputs.index(name[len(PREFIX) :]) for name in grads],
            one_sided=[
                name
                for name, parameter in operator.tensors.items()
                if parameter.role in ("variance", "mask")
            ],
        )
        tensors = (*takes.tensors, *grads)
        attribute = f"{SUFFIX}{suffix}"
        bound = BoundKernel(
            function,
            name=f"{forward.name}.{attribute}",
            operator=operator,
            declaration=declaration,
            explicit=forward.explicit,
            arguments=Arguments(tensors, takes.scalars, (), tensors),
            module=forward.module,
            line=forward.line,
            top_level=forward.top_level,
        )
        bound.tuners = forward.tuners
        functools.update_wrapper(bound, forward.function, updated=())
        setattr(forward, attribute, bound)
        REGISTRY[forward.module].append(bound)
