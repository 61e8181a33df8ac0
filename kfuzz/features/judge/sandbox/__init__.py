"""Foreign code in contained children, judged by the bytes that it returns."""

from kfuzz.features.judge.sandbox.sandbox import (
    Built,
    Called,
    RemoteKernel,
    Sandbox,
    zygote_for,
)
from kfuzz.features.judge.sandbox.wire import Returned

__all__ = ["Built", "Called", "RemoteKernel", "Returned", "Sandbox", "zygote_for"]
