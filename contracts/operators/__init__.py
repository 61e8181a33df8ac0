"""The operators: what kernels compute, each with oracle and error model."""

from typing import Final

from kfuzz.contracts.operator import Operator
from kfuzz.contracts.operators.add import add
from kfuzz.contracts.operators.add_rms_norm import add_rms_norm
from kfuzz.contracts.operators.amax import amax
from kfuzz.contracts.operators.amin import amin
from kfuzz.contracts.operators.argmax import argmax
from kfuzz.contracts.operators.attention import attention
from kfuzz.contracts.operators.batch_norm import batch_norm
from kfuzz.contracts.operators.bmm import bmm
from kfuzz.contracts.operators.cast import cast
from kfuzz.contracts.operators.clamp import clamp
from kfuzz.contracts.operators.conv2d import conv2d
from kfuzz.contracts.operators.copy import copy
from kfuzz.contracts.operators.cross_entropy import cross_entropy
from kfuzz.contracts.operators.cumsum import cumsum
from kfuzz.contracts.operators.dequantize_fp8 import dequantize_fp8
from kfuzz.contracts.operators.dequantize_int8 import dequantize_int8
from kfuzz.contracts.operators.elu import elu
from kfuzz.contracts.operators.embedding import embedding
from kfuzz.contracts.operators.exp import exp
from kfuzz.contracts.operators.gather import gather
from kfuzz.contracts.operators.geglu import geglu
from kfuzz.contracts.operators.gelu import gelu
from kfuzz.contracts.operators.gelu_tanh import gelu_tanh
from kfuzz.contracts.operators.group_norm import group_norm
from kfuzz.contracts.operators.index_add import index_add
from kfuzz.contracts.operators.index_select import index_select
from kfuzz.contracts.operators.l2_normalize import l2_normalize
from kfuzz.contracts.operators.layer_norm import layer_norm
from kfuzz.contracts.operators.leaky_relu import leaky_relu
from kfuzz.contracts.operators.linear import linear
from kfuzz.contracts.operators.linear_gelu import linear_gelu
from kfuzz.contracts.operators.linear_relu import linear_relu
from kfuzz.contracts.operators.log import log
from kfuzz.contracts.operators.log_softmax import log_softmax
from kfuzz.contracts.operators.logsumexp import logsumexp
from kfuzz.contracts.operators.matmul import matmul
from kfuzz.contracts.operators.mean import mean
from kfuzz.contracts.operators.mul import mul
from kfuzz.contracts.operators.prod import prod
from kfuzz.contracts.operators.quantize_fp8 import quantize_fp8
from kfuzz.contracts.operators.quantize_int8 import quantize_int8
from kfuzz.contracts.operators.relu import relu
from kfuzz.contracts.operators.rms_norm import rms_norm
from kfuzz.contracts.operators.rope import rope
from kfuzz.contracts.operators.scatter_add import scatter_add
from kfuzz.contracts.operators.sigmoid import sigmoid
from kfuzz.contracts.operators.silu import silu
from kfuzz.contracts.operators.softmax import softmax
from kfuzz.contracts.operators.softplus import softplus
from kfuzz.contracts.operators.sort import sort
from kfuzz.contracts.operators.sum import sum_ as sum
from kfuzz.contracts.operators.swiglu import swiglu
from kfuzz.contracts.operators.tanh import tanh
from kfuzz.contracts.operators.topk import topk
from kfuzz.contracts.operators.transpose import transpose
from kfuzz.contracts.operators.var import var
from kfuzz.contracts.operators.where import where

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
