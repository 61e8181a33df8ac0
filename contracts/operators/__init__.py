# ruff: isort: skip_file
"""The operators: what kernels compute, each with oracle and error model.

A line here gives each its name for editors and type checkers.
"""

from typing import Final

from kfuzz.contracts.operator import Operator
from kfuzz.contracts.operators.convolutions import (
    causal_conv1d as causal_conv1d,
    conv1d as conv1d,
    conv2d as conv2d,
    conv3d as conv3d,
    conv_transpose1d as conv_transpose1d,
    conv_transpose2d as conv_transpose2d,
)
from kfuzz.contracts.operators.elementwise import (
    add as add,
    cast as cast,
    clamp as clamp,
    copy as copy,
    elu as elu,
    exp as exp,
    geglu as geglu,
    gelu as gelu,
    gelu_tanh as gelu_tanh,
    leaky_relu as leaky_relu,
    log as log,
    mul as mul,
    relu as relu,
    rope as rope,
    rope_positions as rope_positions,
    rope_sections as rope_sections,
    sigmoid as sigmoid,
    silu as silu,
    softplus as softplus,
    swiglu as swiglu,
    tanh as tanh,
    transpose as transpose,
    where as where,
)
from kfuzz.contracts.operators.indexing import (
    embedding as embedding,
    gather as gather,
    index_add as index_add,
    index_select as index_select,
    scatter_add as scatter_add,
)
from kfuzz.contracts.operators.losses import (
    bce_with_logits as bce_with_logits,
    huber_loss as huber_loss,
    js_div as js_div,
    kl_div as kl_div,
    linear_cross_entropy as linear_cross_entropy,
    mse_loss as mse_loss,
    nll_loss as nll_loss,
    smooth_l1_loss as smooth_l1_loss,
)
from kfuzz.contracts.operators.normalisation import (
    add_rms_norm as add_rms_norm,
    batch_norm as batch_norm,
    gated_layer_norm as gated_layer_norm,
    gated_rms_norm as gated_rms_norm,
    group_norm as group_norm,
    instance_norm as instance_norm,
    l2_normalize as l2_normalize,
    layer_norm as layer_norm,
    rms_norm as rms_norm,
    weight_norm as weight_norm,
)
from kfuzz.contracts.operators.products import (
    attention as attention,
    attention_lse as attention_lse,
    attention_paged as attention_paged,
    attention_varlen as attention_varlen,
    bmm as bmm,
    linear as linear,
    linear_gelu as linear_gelu,
    linear_relu as linear_relu,
    matmul as matmul,
)
from kfuzz.contracts.operators.quantization import (
    dequantize_fp8 as dequantize_fp8,
    dequantize_int8 as dequantize_int8,
    gptq_matmul as gptq_matmul,
    int4_matmul as int4_matmul,
    mx_matmul as mx_matmul,
    quantize_fp8 as quantize_fp8,
    quantize_int8 as quantize_int8,
    scaled_matmul_blocks as scaled_matmul_blocks,
    scaled_matmul_fp8 as scaled_matmul_fp8,
    scaled_matmul_int8 as scaled_matmul_int8,
)
from kfuzz.contracts.operators.recurrent import (
    delta_rule as delta_rule,
    linear_attention as linear_attention,
)
from kfuzz.contracts.operators.reductions import (
    amax as amax,
    amin as amin,
    argmax as argmax,
    cross_entropy as cross_entropy,
    cumsum as cumsum,
    log_softmax as log_softmax,
    logsumexp as logsumexp,
    mean as mean,
    prod as prod,
    softmax as softmax,
    sort as sort,
    sum as sum,
    topk as topk,
    var as var,
)
from kfuzz.contracts.operators.routing import (
    grouped_matmul as grouped_matmul,
    moe_combine as moe_combine,
    moe_permute as moe_permute,
    topk_routing as topk_routing,
)
from kfuzz.contracts.operators.sampling import (
    top_k_filter as top_k_filter,
    top_p_filter as top_p_filter,
)
from kfuzz.contracts.operators.training import (
    adamw as adamw,
    dropout as dropout,
    sgd as sgd,
)

OPERATORS: Final[dict[str, Operator]] = {
    name: found
    for name, found in sorted(globals().items())
    if isinstance(found, Operator)
}
