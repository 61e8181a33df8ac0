"""Waits for the device, made to raise."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def raising_waits() -> Iterator[None]:
    """Have torch raise where it waits for the device, while the block runs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls this mode a prototype
        before = torch.cuda.get_sync_debug_mode()
        try:
            torch.cuda.set_sync_debug_mode("error")
            yield
        finally:
            torch.cuda.set_sync_debug_mode(before)
