"""The part of a script that gives a kernel memory for its results."""

from string import Template
from typing import Final

from kfuzz.core.dtypes import DTYPES
from kfuzz.core.errors import KfuzzError
from kfuzz.core.finding import Finding
from kfuzz.engine.script.text import in_comment

_GIVEN: Final = Template('''

def destination(shape, strides, offset, dtype):
    """Make memory for a result, full of what must not look like one."""
    poison = $poison if dtype.is_floating_point else 90
    span = 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides))
    storage = torch.full((offset + span,), poison, dtype=dtype, device=DEVICE)
    return storage.as_strided(shape, strides, offset)


inputs = len(arguments)
names = $names
arguments += [
$places
]
bound = kernel
returned = None


def kernel(*given, **scalars):
    """Call it with its destinations where it names them; they are its results."""
    global returned
    tensors, named = list(given[: -len(names)]), dict(zip(names, given[-len(names) :]))
    positional = []
    for p in inspect.signature(bound).parameters.values():
        if p.kind is p.VAR_POSITIONAL:
            positional, tensors = positional + tensors, []
        elif p.name in named and (tensors or p.kind is p.POSITIONAL_ONLY):
            positional.append(named.pop(p.name))
        elif p.name not in names and tensors:
            positional.append(tensors.pop(0))
    returned = bound(*positional, *tensors, **named, **scalars)
    return given[-len(names) :] if len(names) > 1 else given[-1]
''')

HANDED_BACK: Final = """\
def same(a, b):
    if not isinstance(a, torch.Tensor) or a.shape != b.shape:
        return False
    there = (a.data_ptr(), a.stride(), a.dtype)
    return not b.numel() or there == (b.data_ptr(), b.stride(), b.dtype)


kernel(*arguments, **scalars)
items = returned if isinstance(returned, (tuple, list)) else [returned]
fails = returned is not None and (
    len(items) != len(names) or not all(map(same, items, arguments[inputs:]))
)
print("FAILS: it returns something else than its destination" if fails else "passes")
sys.exit(1 if fails else 0)"""


def given(finding: Finding, poison: str) -> str:
    """Return code that adds the destinations to `arguments` and wraps `kernel`.

    Args:
        finding: of a kernel that declares `out`.
        poison: what floating memory holds, as an expression.

    Raises:
        KfuzzError: if the shapes of the results are not known.
    """
    places = finding.case.destinations
    if not places:
        raise KfuzzError(
            "the shapes of its results are not known",
            where=finding.id,
            fix=f"run it by kfuzz replay {finding.id}",
        )
    lines = [
        f"    destination({d.shape!r}, {d.strides!r}, {d.offset},"
        f" torch.{DTYPES[d.dtype].name}),  # {in_comment(name)}"
        for name, d in places.items()
    ]
    text = _GIVEN.substitute(
        poison=poison, names=repr(tuple(places)), places="\n".join(lines)
    )
    return text.rstrip("\n")
