"""Scripts of failures that show once a case's data are changed."""

from string import Template
from typing import Final

from kfuzz.contracts.changed import read_order, read_scaling, read_shift
from kfuzz.core.finding import Finding

_REWRITE: Final = '''\
def rewrite(view, values):
    """Give an argument other elements where it lies."""
    for dim, (n, s) in enumerate(zip(view.shape, view.stride())):
        if s == 0 and n > 1:  # an expanded dimension holds its values once
            view, values = view.narrow(dim, 0, 1), values.narrow(dim, 0, 1)
    view.copy_(values)
'''

_SCALED: Final = Template("""\
for i in $places:
    scaled = arguments[i].double() * 2.0**$exponent
    rewrite(arguments[i], scaled.to(arguments[i].dtype))
""")

_PERMUTED: Final = Template("""\
for i, axis in $places:
    n = arguments[i].shape[axis]
    every = list(range(n))
    order = torch.tensor($order, device=DEVICE, dtype=torch.int64)
    rewrite(arguments[i], arguments[i].index_select(axis, order))
""")

_BITS: Final = Template("""\
def run():
    result = kernel(*arguments, **scalars)
    $pick
    return result[$index].item() if result.dim() else result.item()


own = [a.clone() for a in arguments]
plain = run()
for argument, values in zip(arguments, own):
    rewrite(argument, values)
$change
got, wanted = run(), plain * 2.0**$shift
print($label, got, "not scaled", plain, "times 2^$shift is", wanted)
fails = got != wanted
print("FAILS" if fails else "passes")
sys.exit(1 if fails else 0)""")

_ORDERS: Final = {
    "reversed": "every[::-1]",
    "with its halves swapped": "every[n // 2 :] + every[: n // 2]",
}


def changed_data(finding: Finding) -> str | None:
    """Return code that changes the arguments as the failure says, None if unknown."""
    message, tensors = finding.failure.message, finding.case.tensors
    names, scaling, order = list(tensors), read_scaling(message), read_order(message)
    if scaling is not None:
        arguments, exponent = scaling
        places = [names.index(n) for n in arguments]
        return _SCALED.substitute(places=places, exponent=exponent)
    if order is None:
        return None
    axes = [
        (names.index(n), tensors[n].axes.index(order.axis)) for n in order.arguments
    ]
    return _PERMUTED.substitute(places=axes, order=_ORDERS[order.order])


def changed_check(finding: Finding, pick: str, value_check: str) -> str | None:
    """Return the check of a failure that changed data show.

    Args:
        finding: the finding, its result comparable.
        pick: code that takes the result concerned out of what the kernel returned.
        value_check: code that calls the kernel and compares with what is admitted.
    """
    failure, change = finding.failure, changed_data(finding)
    if change is None:
        return None
    shift = read_shift(failure.message)
    if shift is None:
        return f"{_REWRITE}\n\n{change}\n{value_check}"
    index = tuple(failure.index or ())
    made = _BITS.substitute(
        pick=pick,
        index=repr(index),
        change=change,
        shift=shift,
        label=repr(f"{failure.output}[{', '.join(map(str, index))}] ="),
    )
    return f"{_REWRITE}\n\n{made}"
