"""The operators: what kernels compute, each with oracle and error model.

Each is a file of its own; a line here gives it its name for editors and type checkers.
"""

from typing import Final

from kfuzz.contracts.operator import Operator
from kfuzz.contracts.operators.convolutions.causal_conv1d import (
    causal_conv1d as causal_conv1d,
)
from kfuzz.contracts.operators.convolutions.conv1d import conv1d as conv1d
from kfuzz.contracts.operators.convolutions.conv2d import conv2d as conv2d
from kfuzz.contracts.operators.convolutions.conv3d import conv3d as conv3d
from kfuzz.contracts.operators.convolutions.conv_transpose1d import (
    conv_transpose1d as conv_transpose1d,
)
from kfuzz.contracts.operators.convolutions.conv_transpose2d import (
    conv_transpose2d as conv_transpose2d,
)
from kfuzz.contracts.operators.elementwise.add import add as add
from kfuzz.contracts.operators.elementwise.cast import cast as cast
from kfuzz.contracts.operators.elementwise.clamp import clamp as clamp
from kfuzz.contracts.operators.elementwise.copy import copy as copy
from kfuzz.contracts.operators.elementwise.elu import elu as elu
from kfuzz.contracts.operators.elementwise.exp import exp as exp
from kfuzz.contracts.operators.elementwise.geglu import geglu as geglu
from kfuzz.contracts.operators.elementwise.gelu import gelu as gelu
from kfuzz.contracts.operators.elementwise.gelu_tanh import gelu_tanh as gelu_tanh
from kfuzz.contracts.operators.elementwise.leaky_relu import leaky_relu as leaky_relu
from kfuzz.contracts.operators.elementwise.log import log as log
from kfuzz.contracts.operators.elementwise.mul import mul as mul
from kfuzz.contracts.operators.elementwise.relu import relu as relu
from kfuzz.contracts.operators.elementwise.rope import rope as rope
from kfuzz.contracts.operators.elementwise.rope_positions import (
    rope_positions as rope_positions,
)
from kfuzz.contracts.operators.elementwise.rope_sections import (
    rope_sections as rope_sections,
)
from kfuzz.contracts.operators.elementwise.sigmoid import sigmoid as sigmoid
from kfuzz.contracts.operators.elementwise.silu import silu as silu
from kfuzz.contracts.operators.elementwise.softplus import softplus as softplus
from kfuzz.contracts.operators.elementwise.swiglu import swiglu as swiglu
from kfuzz.contracts.operators.elementwise.tanh import tanh as tanh
from kfuzz.contracts.operators.elementwise.transpose import transpose as transpose
from kfuzz.contracts.operators.elementwise.where import where as where
from kfuzz.contracts.operators.indexing.embedding import embedding as embedding
from kfuzz.contracts.operators.indexing.gather import gather as gather
from kfuzz.contracts.operators.indexing.index_add import index_add as index_add
from kfuzz.contracts.operators.indexing.index_select import index_select as index_select
from kfuzz.contracts.operators.indexing.scatter_add import scatter_add as scatter_add
from kfuzz.contracts.operators.losses.bce_with_logits import (
    bce_with_logits as bce_with_logits,
)
from kfuzz.contracts.operators.losses.huber_loss import huber_loss as huber_loss
from kfuzz.contracts.operators.losses.js_div import js_div as js_div
from kfuzz.contracts.operators.losses.kl_div import kl_div as kl_div
from kfuzz.contracts.operators.losses.linear_cross_entropy import (
    linear_cross_entropy as linear_cross_entropy,
)
from kfuzz.contracts.operators.losses.mse_loss import mse_loss as mse_loss
from kfuzz.contracts.operators.losses.nll_loss import nll_loss as nll_loss
from kfuzz.contracts.operators.losses.smooth_l1_loss import (
    smooth_l1_loss as smooth_l1_loss,
)
from kfuzz.contracts.operators.normalisation.add_rms_norm import (
    add_rms_norm as add_rms_norm,
)
from kfuzz.contracts.operators.normalisation.batch_norm import batch_norm as batch_norm
from kfuzz.contracts.operators.normalisation.gated_layer_norm import (
    gated_layer_norm as gated_layer_norm,
)
from kfuzz.contracts.operators.normalisation.gated_rms_norm import (
    gated_rms_norm as gated_rms_norm,
)
from kfuzz.contracts.operators.normalisation.group_norm import group_norm as group_norm
from kfuzz.contracts.operators.normalisation.instance_norm import (
    instance_norm as instance_norm,
)
from kfuzz.contracts.operators.normalisation.l2_normalize import (
    l2_normalize as l2_normalize,
)
from kfuzz.contracts.operators.normalisation.layer_norm import layer_norm as layer_norm
from kfuzz.contracts.operators.normalisation.rms_norm import rms_norm as rms_norm
from kfuzz.contracts.operators.normalisation.weight_norm import (
    weight_norm as weight_norm,
)
from kfuzz.contracts.operators.products.attention import attention as attention
from kfuzz.contracts.operators.products.bmm import bmm as bmm
from kfuzz.contracts.operators.products.linear import linear as linear
from kfuzz.contracts.operators.products.linear_gelu import linear_gelu as linear_gelu
from kfuzz.contracts.operators.products.linear_relu import linear_relu as linear_relu
from kfuzz.contracts.operators.products.matmul import matmul as matmul
from kfuzz.contracts.operators.quantization.dequantize_fp8 import (
    dequantize_fp8 as dequantize_fp8,
)
from kfuzz.contracts.operators.quantization.dequantize_int8 import (
    dequantize_int8 as dequantize_int8,
)
from kfuzz.contracts.operators.quantization.gptq_matmul import (
    gptq_matmul as gptq_matmul,
)
from kfuzz.contracts.operators.quantization.int4_matmul import (
    int4_matmul as int4_matmul,
)
from kfuzz.contracts.operators.quantization.mx_matmul import mx_matmul as mx_matmul
from kfuzz.contracts.operators.quantization.quantize_fp8 import (
    quantize_fp8 as quantize_fp8,
)
from kfuzz.contracts.operators.quantization.quantize_int8 import (
    quantize_int8 as quantize_int8,
)
from kfuzz.contracts.operators.quantization.scaled_matmul_blocks import (
    scaled_matmul_blocks as scaled_matmul_blocks,
)
from kfuzz.contracts.operators.quantization.scaled_matmul_fp8 import (
    scaled_matmul_fp8 as scaled_matmul_fp8,
)
from kfuzz.contracts.operators.quantization.scaled_matmul_int8 import (
    scaled_matmul_int8 as scaled_matmul_int8,
)
from kfuzz.contracts.operators.reductions.amax import amax as amax
from kfuzz.contracts.operators.reductions.amin import amin as amin
from kfuzz.contracts.operators.reductions.argmax import argmax as argmax
from kfuzz.contracts.operators.reductions.cross_entropy import (
    cross_entropy as cross_entropy,
)
from kfuzz.contracts.operators.reductions.cumsum import cumsum as cumsum
from kfuzz.contracts.operators.reductions.log_softmax import log_softmax as log_softmax
from kfuzz.contracts.operators.reductions.logsumexp import logsumexp as logsumexp
from kfuzz.contracts.operators.reductions.mean import mean as mean
from kfuzz.contracts.operators.reductions.prod import prod as prod
from kfuzz.contracts.operators.reductions.softmax import softmax as softmax
from kfuzz.contracts.operators.reductions.sort import sort as sort
from kfuzz.contracts.operators.reductions.sum import sum as sum
from kfuzz.contracts.operators.reductions.topk import topk as topk
from kfuzz.contracts.operators.reductions.var import var as var
from kfuzz.contracts.operators.routing.grouped_matmul import (
    grouped_matmul as grouped_matmul,
)
from kfuzz.contracts.operators.routing.moe_combine import moe_combine as moe_combine
from kfuzz.contracts.operators.routing.moe_permute import moe_permute as moe_permute
from kfuzz.contracts.operators.routing.topk_routing import topk_routing as topk_routing
from kfuzz.contracts.operators.sampling.top_k_filter import top_k_filter as top_k_filter
from kfuzz.contracts.operators.sampling.top_p_filter import top_p_filter as top_p_filter
from kfuzz.contracts.operators.training.adamw import adamw as adamw
from kfuzz.contracts.operators.training.dropout import dropout as dropout
from kfuzz.contracts.operators.training.sgd import sgd as sgd

OPERATORS: Final[dict[str, Operator]] = {
    name: found
    for name, found in sorted(globals().items())
    if isinstance(found, Operator)
}
