"""Overloads that operators of the suite describe, with their own bounds."""

from kfuzz.contracts.aten.rows import suite

# Elementwise.
suite("add.Tensor", "add", "self=a other=b", alpha=(1, 2, -0.5))
suite("mul.Tensor multiply.Tensor", "mul", "self=a other=b")
suite("where.self", "where", "condition=mask self=x other=y")
suite("clamp clip", "clamp", "self=x min max")
for _name in ("relu", "sigmoid", "tanh", "exp", "log", "silu"):
    suite(_name, _name, "self=x")
suite("leaky_relu", "leaky_relu", "self=x negative_slope")
suite("elu", "elu", "self=x alpha")
suite("softplus", "softplus", "self=x beta threshold")
suite("gelu", "gelu", "self=x", approximate=("none", "tanh"))
suite("clone contiguous alias_copy lift_fresh_copy detach_copy", "copy", "self=x")
suite("_to_copy to.dtype", "cast", "self=x dtype")
suite("transpose.int transpose_copy.int", "transpose", "self=x dim0=-2 dim1=-1")

# Reductions and what follows the order of elements.
suite("softmax.int", "softmax", "self=x dim")
suite("log_softmax.int", "log_softmax", "self=x dim")
suite("_softmax", "softmax", "self=x dim half_to_float=False")
suite("_log_softmax", "log_softmax", "self=x dim half_to_float=False")
suite("sum.dim_IntList", "sum", "self=x dim=[dim]")
suite("mean.dim", "mean", "self=x dim=[dim]")
suite("amax", "amax", "self=x dim=[dim]")
suite("amin", "amin", "self=x dim=[dim]")
suite("logsumexp", "logsumexp", "self=x dim=[dim]")
suite("prod.dim_int", "prod", "self=x dim")
suite("argmax", "argmax", "self=x dim")
suite("var.correction", "var", "self=x dim=[dim] correction")
suite("cumsum", "cumsum", "self=x dim")
suite("sort", "sort", "self=x dim descending")
suite("topk", "topk", "self=x k dim largest")
suite(
    "cross_entropy_loss",
    "cross_entropy",
    "self=logits target ignore_index label_smoothing",
    unfolded={"N": "* C *"},
)

# Indexing.
suite("embedding", "embedding", "weight indices")
suite("gather", "gather", "self=x dim=1 index")
suite("index_add", "index_add", "self=x dim=0 index source=src alpha")
suite("index_select", "index_select", "self=x dim=0 index")
suite("scatter_add", "scatter_add", "self=x dim=1 index src")

# Normalisations.
suite(
    "layer_norm native_layer_norm",
    "layer_norm",
    "input=x normalized_shape=[N] weight bias eps",
)
suite("rms_norm _fused_rms_norm", "rms_norm", "input=x normalized_shape=[N] weight eps")
suite(
    "group_norm",
    "group_norm",
    "input=x num_groups weight bias eps",
    unfolded={"L": "*"},
)
suite(
    "native_group_norm",
    "group_norm",
    "input=x weight bias N=B C=C HxW=L group=num_groups eps",
)
suite(
    "batch_norm",
    "batch_norm",
    "input=x weight bias running_mean=mean running_var=var training=False "
    "momentum=0.1 eps cudnn_enabled=False",
    unfolded={"L": "*"},
)
suite(
    "native_batch_norm",
    "batch_norm",
    "input=x weight bias running_mean=mean running_var=var training=False "
    "momentum=0.1 eps",
    unfolded={"L": "*"},
)
suite(
    "_native_batch_norm_legit_no_training",
    "batch_norm",
    "input=x weight bias running_mean=mean running_var=var momentum=0.1 eps",
    unfolded={"L": "*"},
)

# Products.
suite("mm", "matmul", "self=a mat2=b")
suite("matmul", "bmm", "self=a other=b", unfolded={"B": "*"})
suite("bmm", "bmm", "self=a mat2=b")
suite("linear", "linear", "input=x weight bias")
suite(
    "conv2d",
    "conv2d",
    "input=x weight bias stride=[stride,stride] padding=[padding,padding] "
    "dilation=[dilation,dilation] groups",
    unfolded={"N": "*"},
    ranks=range(3, 5),
)
suite(
    "convolution",
    "conv2d",
    "input=x weight bias stride=[stride,stride] padding=[padding,padding] "
    "dilation=[dilation,dilation] transposed=False output_padding=[0,0] groups",
)
suite(
    "scaled_dot_product_attention",
    "attention",
    "query=q key=k value=v attn_mask=mask is_causal=causal scale enable_gqa=True",
    unfolded={"B": "*"},
)
