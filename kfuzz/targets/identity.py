"""Which code a kernel is: what a statement about it holds for."""

import hashlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kfuzz.targets.cuda_source import CudaSource


def identity(function: Callable[..., Any]) -> str:
    """Return what identifies the code behind a callable.

    "sha256:" and the hash of the file that defines it: the whole file, for a wrapper
    says little without the kernels beside it; with it the sources in CUDA C++ that the
    file's globals hold. Of what has no source, its qualified name; the version of its
    library stands in the fingerprint.
    """
    inner = inspect.unwrap(function)
    try:
        path = inspect.getsourcefile(inner)
    except TypeError:
        path = None
    if path is not None:
        try:
            digest = hashlib.sha256(Path(path).read_bytes())
            for held in getattr(inner, "__globals__", {}).values():
                if isinstance(held, CudaSource):
                    digest.update(held.text.encode())
            return f"sha256:{digest.hexdigest()}"
        except OSError:
            pass  # a notebook's cell, a shell
    module = getattr(inner, "__module__", None) or type(inner).__module__
    name = getattr(inner, "__qualname__", None) or type(inner).__qualname__
    return f"{module}.{name}, compiled"
