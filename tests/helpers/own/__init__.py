"""References of one's own, each with kernels that are right and such as are not.

The right ones differ from their reference in order, algorithm, form and the data type
of sums; each wrong one has one fault that real kernels have had.
"""

from collections.abc import Iterator

from tests.helpers.own import dense, pointwise, ragged, values, whole
from tests.helpers.own.subject import Kernel

MODULES = (dense, pointwise, ragged, values, whole)


def kernels() -> Iterator[Kernel]:
    """Yield every kernel of every reference."""
    for module in MODULES:
        for subject in module.SUBJECTS:
            yield from subject.kernels()
