"""Foreign code in contained children, judged by the bytes that it returns."""

from kfuzz.execution.untrusted.calling import Called
from kfuzz.execution.untrusted.opening import Opened
from kfuzz.execution.untrusted.remote import RemoteKernel
from kfuzz.execution.untrusted.results import Returned
from kfuzz.execution.untrusted.sandbox import Sandbox, zygote_for

__all__ = ["Called", "Opened", "RemoteKernel", "Returned", "Sandbox", "zygote_for"]
