"""The part of a script that calls a kernel without some of its optional tensors."""

from string import Template
from typing import Final

from kfuzz.contracts.operators import OPERATORS
from kfuzz.core.finding import Finding

_TAKES: Final = Template("""\
takes = $takes
""")
# A user's operator is known where its kernel is.
_BOUND: Final = 'getattr(getattr(kernel, "arguments", None), "tensors", {names!r})'

_SOME: Final = Template('''
every = kernel


def kernel(*given, **scalars):
    """Call it on the tensors that the case has, with None for the others."""
    named = dict(zip($names, given))
    tensors = [named.get(name) for name in takes]
    return every(*tensors, *given[len(named) :], **scalars)

''')


def gap(finding: Finding) -> tuple[str, str]:
    """Return code that notes what the kernel takes, and code that wraps `kernel`.

    Both are "" where no tensor is missing before another one.
    """
    names = tuple(finding.case.tensors)
    known = OPERATORS.get(finding.operator.removesuffix(".backward"))
    if known is None:
        takes = _BOUND.format(names=names)
    else:
        every = tuple(known.tensors)
        own = tuple(name for name in names if name in every)  # no gradient
        takes = repr(every[: every.index(own[-1]) + 1]) if own else repr(own)
        if takes == repr(own):
            return "", ""
    return _TAKES.substitute(takes=takes), _SOME.substitute(names=repr(names))
