"""What users bring is tried on the host, unless it wants another device."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from kfuzz import strategies as ks
from kfuzz.contracts import Operator
from kfuzz.contracts.binding import fit
from kfuzz.core.budget import SizeBudget
from kfuzz.core.errors import BindingError
from kfuzz.engine.search.preconditions import examine_bindings


def test_an_oracle_for_another_device_is_judged_where_the_kernel_runs() -> None:
    def beside(x: Tensor) -> Tensor:
        raise RuntimeError("Expected all tensors to be on the same device")

    operator = Operator("own", inputs={"x": ks.tensors("M N")}, oracle=beside)
    bound = fit(
        operator, torch.clone, {}, name="own", module=__name__, line=1, top_level=True
    )
    loaded = SimpleNamespace(kernel=bound, target=SimpleNamespace(reference=""))
    searched: Any = SimpleNamespace(loaded=loaded, budget=SizeBudget(4096, 64))
    with pytest.raises(BindingError, match="same device"):
        examine_bindings([searched], on_host=True)
    examine_bindings([searched], on_host=False)
