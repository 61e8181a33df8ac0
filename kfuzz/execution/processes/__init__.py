"""Campaign, zygote and children: kernels run where they may hang, crash or exit."""

from kfuzz.execution.processes.child import Child, InProcess
from kfuzz.execution.processes.client import Template, Zygote, held, unforkable
from kfuzz.execution.processes.forking import load_modules
from kfuzz.execution.processes.wire import (
    ChildDied,
    ChildFault,
    ChildRaised,
    ChildTimeout,
    Handler,
    Message,
    ZygoteError,
)

__all__ = [
    "Child",
    "ChildDied",
    "ChildFault",
    "ChildRaised",
    "ChildTimeout",
    "Handler",
    "InProcess",
    "Message",
    "Template",
    "Zygote",
    "ZygoteError",
    "held",
    "load_modules",
    "unforkable",
]
