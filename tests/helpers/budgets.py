"""The limits on the sizes of cases, by the name of a backend."""

from typing import Final

from kfuzz.execution.device.backends import BACKENDS

SIZE_BUDGETS: Final = {name: each.limits.sizes for name, each in BACKENDS.items()}
