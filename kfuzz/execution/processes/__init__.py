"""Campaign, zygote and children: kernels run where they may hang, crash or exit."""

from kfuzz.execution.processes.child import Child, Zygote
from kfuzz.execution.processes.wire import ChildDied, ChildTimeout

__all__ = ["Child", "ChildDied", "ChildTimeout", "Zygote"]
