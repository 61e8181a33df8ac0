"""Campaign, zygote and children: kernels run where they may hang, crash or exit."""

from kfuzz.execution.processes.child import Child
from kfuzz.execution.processes.client import Zygote
from kfuzz.execution.processes.faults import (
    ChildDied,
    ChildFault,
    ChildRaised,
    ChildTimeout,
    ZygoteError,
)
from kfuzz.execution.processes.in_process import InProcess
from kfuzz.execution.processes.serving import load_modules
from kfuzz.execution.processes.template import Template, held, unforkable
from kfuzz.execution.processes.wire import Handler, Message

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
