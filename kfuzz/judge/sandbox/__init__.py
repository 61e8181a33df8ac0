"""Foreign code in contained children, judged by the bytes that it returns."""

from kfuzz.judge.sandbox.remote import RemoteKernel
from kfuzz.judge.sandbox.results import Returned
from kfuzz.judge.sandbox.sandbox import Called, Opened, Sandbox, zygote_for

__all__ = ["Called", "Opened", "RemoteKernel", "Returned", "Sandbox", "zygote_for"]
