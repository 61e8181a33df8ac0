"""Kernels of flag-gems 5.0.2 as released, bound by the names of torch's overloads.

The library asks for its device when it is imported, and needs SQLAlchemy and PyYAML.
"""

import flag_gems

import kfuzz

PACKAGE = "flag-gems"
VERSION = "5.0.2"
NEEDS = ("sqlalchemy==2.0.44", "pyyaml==6.0.4")

gems_silu = kfuzz.kernel("aten::silu", name="gems_silu")(flag_gems.silu)
gems_gelu = kfuzz.kernel("aten::gelu", name="gems_gelu")(flag_gems.gelu)
gems_softmax = kfuzz.kernel("aten::_softmax", name="gems_softmax")(flag_gems.softmax)
gems_log_softmax = kfuzz.kernel("aten::_log_softmax", name="gems_log_softmax")(
    flag_gems.log_softmax
)
gems_sum = kfuzz.kernel("aten::sum.dim_IntList", name="gems_sum")(flag_gems.sum_dim)
gems_amax = kfuzz.kernel("aten::amax", name="gems_amax")(flag_gems.amax)
gems_argmax = kfuzz.kernel("aten::argmax", name="gems_argmax")(flag_gems.argmax)
gems_cumsum = kfuzz.kernel("aten::cumsum", name="gems_cumsum")(flag_gems.cumsum)
gems_topk = kfuzz.kernel("aten::topk", name="gems_topk")(flag_gems.topk)
gems_mm = kfuzz.kernel("aten::mm", name="gems_mm")(flag_gems.mm)
gems_group_norm = kfuzz.kernel("aten::native_group_norm", name="gems_group_norm")(
    flag_gems.group_norm
)
