"""The operators: what kernels compute, each with oracle and error model.

Each module gives the names of its own, for editors and type checkers too.
"""

from typing import Final

from kfuzz.contracts.operator import Operator
from kfuzz.contracts.operators.convolutions import *  # noqa: F403
from kfuzz.contracts.operators.elementwise import *  # noqa: F403
from kfuzz.contracts.operators.indexing import *  # noqa: F403
from kfuzz.contracts.operators.losses import *  # noqa: F403
from kfuzz.contracts.operators.normalisation import *  # noqa: F403
from kfuzz.contracts.operators.products import *  # noqa: F403
from kfuzz.contracts.operators.quantization import *  # noqa: F403
from kfuzz.contracts.operators.recurrent import *  # noqa: F403
from kfuzz.contracts.operators.reductions import *  # noqa: F403
from kfuzz.contracts.operators.routing import *  # noqa: F403
from kfuzz.contracts.operators.sampling import *  # noqa: F403
from kfuzz.contracts.operators.training import *  # noqa: F403

OPERATORS: Final[dict[str, Operator]] = {
    name: found
    for name, found in sorted(globals().items())
    if isinstance(found, Operator)
}
