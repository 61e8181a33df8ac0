"""The operators: what kernels compute, each with oracle and error model."""

from typing import Final

from kfuzz.contracts.operator import Operator
from kfuzz.contracts.operators.elementwise.add import add
from kfuzz.contracts.operators.elementwise.cast import cast
from kfuzz.contracts.operators.elementwise.clamp import clamp
from kfuzz.contracts.operators.elementwise.copy import copy
from kfuzz.contracts.operators.elementwise.elu import elu
from kfuzz.contracts.operators.elementwise.exp import exp
from kfuzz.contracts.operators.elementwise.geglu import geglu
from kfuzz.contracts.operators.elementwise.gelu import gelu
from kfuzz.contracts.operators.elementwise.gelu_tanh import gelu_tanh
from kfuzz.contracts.operators.elementwise.leaky_relu import leaky_relu
from kfuzz.contracts.operators.elementwise.log import log
from kfuzz.contracts.operators.elementwise.mul import mul
from kfuzz.contracts.operators.elementwise.relu import relu
from kfuzz.contracts.operators.elementwise.rope import rope
from kfuzz.contracts.operators.elementwise.sigmoid import sigmoid
from kfuzz.contracts.operators.elementwise.silu import silu
from kfuzz.contracts.operators.elementwise.softplus import softplus
from kfuzz.contracts.operators.elementwise.swiglu import swiglu
from kfuzz.contracts.operators.elementwise.tanh import tanh
from kfuzz.contracts.operators.elementwise.transpose import transpose
from kfuzz.contracts.operators.elementwise.where import where
from kfuzz.contracts.operators.indexing.embedding import embedding
from kfuzz.contracts.operators.indexing.gather import gather
from kfuzz.contracts.operators.indexing.index_add import index_add
from kfuzz.contracts.operators.indexing.index_select import index_select
from kfuzz.contracts.operators.indexing.scatter_add import scatter_add
from kfuzz.contracts.operators.normalisation.add_rms_norm import add_rms_norm
from kfuzz.contracts.operators.normalisation.batch_norm import batch_norm
from kfuzz.contracts.operators.normalisation.group_norm import group_norm
from kfuzz.contracts.operators.normalisation.l2_normalize import l2_normalize
from kfuzz.contracts.operators.normalisation.layer_norm import layer_norm
from kfuzz.contracts.operators.normalisation.rms_norm import rms_norm
from kfuzz.contracts.operators.products.attention import attention
from kfuzz.contracts.operators.products.bmm import bmm
from kfuzz.contracts.operators.products.conv2d import conv2d
from kfuzz.contracts.operators.products.linear import linear
from kfuzz.contracts.operators.products.linear_gelu import linear_gelu
from kfuzz.contracts.operators.products.linear_relu import linear_relu
from kfuzz.contracts.operators.products.matmul import matmul
from kfuzz.contracts.operators.quantization.dequantize_fp8 import dequantize_fp8
from kfuzz.contracts.operators.quantization.dequantize_int8 import dequantize_int8
from kfuzz.contracts.operators.quantization.quantize_fp8 import quantize_fp8
from kfuzz.contracts.operators.quantization.quantize_int8 import quantize_int8
from kfuzz.contracts.operators.reductions.amax import amax
from kfuzz.contracts.operators.reductions.amin import amin
from kfuzz.contracts.operators.reductions.argmax import argmax
from kfuzz.contracts.operators.reductions.cross_entropy import cross_entropy
from kfuzz.contracts.operators.reductions.cumsum import cumsum
from kfuzz.contracts.operators.reductions.log_softmax import log_softmax
from kfuzz.contracts.operators.reductions.logsumexp import logsumexp
from kfuzz.contracts.operators.reductions.mean import mean
from kfuzz.contracts.operators.reductions.prod import prod
from kfuzz.contracts.operators.reductions.softmax import softmax
from kfuzz.contracts.operators.reductions.sort import sort
from kfuzz.contracts.operators.reductions.sum import sum_ as sum
from kfuzz.contracts.operators.reductions.topk import topk
from kfuzz.contracts.operators.reductions.var import var

__all__ = [
    "OPERATORS",
    "add",
    "add_rms_norm",
    "amax",
    "amin",
    "argmax",
    "attention",
    "batch_norm",
    "bmm",
    "cast",
    "clamp",
    "conv2d",
    "copy",
    "cross_entropy",
    "cumsum",
    "dequantize_fp8",
    "dequantize_int8",
    "elu",
    "embedding",
    "exp",
    "gather",
    "geglu",
    "gelu",
    "gelu_tanh",
    "group_norm",
    "index_add",
    "index_select",
    "l2_normalize",
    "layer_norm",
    "leaky_relu",
    "linear",
    "linear_gelu",
    "linear_relu",
    "log",
    "log_softmax",
    "logsumexp",
    "matmul",
    "mean",
    "mul",
    "prod",
    "quantize_fp8",
    "quantize_int8",
    "relu",
    "rms_norm",
    "rope",
    "scatter_add",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "sort",
    "sum",
    "swiglu",
    "tanh",
    "topk",
    "transpose",
    "var",
    "where",
]

OPERATORS: Final[dict[str, Operator]] = {
    o.name: o
    for o in (
        add,
        add_rms_norm,
        amax,
        amin,
        argmax,
        attention,
        batch_norm,
        bmm,
        cast,
        clamp,
        conv2d,
        copy,
        cross_entropy,
        cumsum,
        dequantize_fp8,
        dequantize_int8,
        elu,
        embedding,
        exp,
        gather,
        geglu,
        gelu,
        gelu_tanh,
        group_norm,
        index_add,
        index_select,
        l2_normalize,
        layer_norm,
        leaky_relu,
        linear,
        linear_gelu,
        linear_relu,
        log,
        log_softmax,
        logsumexp,
        matmul,
        mean,
        mul,
        prod,
        quantize_fp8,
        quantize_int8,
        relu,
        rms_norm,
        rope,
        scatter_add,
        sigmoid,
        silu,
        softmax,
        softplus,
        sort,
        sum,
        swiglu,
        tanh,
        topk,
        transpose,
        var,
        where,
    )
}
