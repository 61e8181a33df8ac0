"""Overloads that select or write by indices and masks."""

from math import inf

from kfuzz.contracts.aten.rows import moved, shadowed

moved("index.Tensor", "A B", ("below A: K",), wraps=True)
moved("take", "A", "below A: K", wraps=True)
moved("take_along_dim", "N C", "below C: N K", dim=1, wraps=True)
moved("masked_fill.Scalar", "*", "bool: *", value=(0, 0.5, -1.0))
moved("index_fill.int_Scalar", "A B", "below A: K", dim=0, value=(0, 0.5, -1.0),
      wraps=True)  # fmt: skip
moved("where.ScalarOther", "bool: *", "*", other=(0, 0.5))
moved("where.ScalarSelf", "bool: *", "*", self=(0, 0.5))
moved("scatter.value", "N C", "below C: N K", dim=1, value=(0, 0.5, -1.0))
shadowed("index_put", "A B", ("below A: K",), "K B", accumulate=True,
         wraps=True)  # fmt: skip


# Overloads that compute each tensor of a list: fused optimizers are made of them.

EACH = ("A B", "C", "D")

shadowed("_foreach_add.Scalar _foreach_sub.Scalar _foreach_mul.Scalar", EACH,
         scalar=(0.75, -1.5, 2, 0))  # fmt: skip
shadowed("_foreach_div.Scalar", EACH, scalar=(0.75, -1.5, 2, 3))
shadowed("_foreach_add.List _foreach_sub.List", EACH, EACH, alpha=(1, 2, -0.5))
shadowed("_foreach_mul.List _foreach_div.List", EACH, EACH)
shadowed("_foreach_maximum.List _foreach_minimum.List", EACH, EACH)
shadowed("_foreach_lerp.Scalar", EACH, EACH, weight=(0.25, 0.5, 0.75, 1.5))
shadowed("_foreach_addcmul.Scalar _foreach_addcdiv.Scalar", EACH, EACH, EACH,
         value=(1, 0.5, -2))  # fmt: skip
shadowed("_foreach_neg _foreach_abs _foreach_sign", EACH)
shadowed("_foreach_exp _foreach_log _foreach_sqrt _foreach_rsqrt", EACH)
shadowed("_foreach_reciprocal _foreach_sigmoid _foreach_tanh", EACH)
shadowed("_foreach_norm.Scalar", EACH, ord=(2, 1, inf))


# Overloads that move elements: views, copies, joins, fillings.

# Another shape or order for the same elements.
moved("view view_copy", "A B C", size=("A,-1", "-1", "B,C,A"))
moved("reshape", "A B C", shape=("A,-1", "-1", "B,C,A"))
moved("view_as reshape_as", "A B", "B A")
moved("flatten.using_ints", "A B C", start_dim=(0, 1), end_dim=(-1, 1))
moved("unflatten.int", "A B", dim=1, sizes=("1,B", "B,1"))
moved("ravel")
moved("permute permute_copy", "A B C", dims=("2,0,1", "0,2,1", "1,0,2", "2,1,0"))
moved("movedim.int moveaxis.int", "A B C", source=(0, 1, 2), destination=(2, 0, 1))
moved("swapaxes", "A B C", axis0=(0, 1), axis1=(2, 1))
moved("swapdims", "A B C", dim0=(0, 1), dim1=(2, 1))
moved("t t_copy numpy_T adjoint", "A B")
moved("mT", "* A B")
moved("squeeze squeeze_copy", "A B")
moved("squeeze.dim squeeze_copy.dim")
moved("unsqueeze unsqueeze_copy", "*", dim=(0, -1))
moved("expand expand_copy", "A B", size=("2,A,B", "3,A,-1", "A,B"))
moved("expand_as", "A B", "C A B")
moved("broadcast_to", "A B", size=("2,A,B", "3,A,B"))
moved("repeat", "A B", repeats=("1,2", "3,1", "2,1,2"))
moved("tile", "A B", dims=("2", "1,3", "2,1,2"))
moved("repeat_interleave.self_int", "A B", repeats=(1, 2, 3), dim=(1, 0))
moved("flip", "A B C", dims=("0", "-1", "0,2", "0,1,2"))
moved("fliplr flipud", "A B")
moved("roll", "A B C", shifts=("1", "-2", "3"), dims=("0", "1", "-1"))
moved("rot90", "A B", k=(1, 2, 3, -1), dims="0,1")
moved("channel_shuffle", "N C H W", groups=(1, 2, 3), shape_class="C % groups == 0")
moved("pixel_shuffle", "N C H W", upscale_factor=2, shape_class="C % 4 == 0")
moved(
    "pixel_unshuffle",
    "N C H W",
    downscale_factor=2,
    shape_class="H % 2 == 0 and W % 2 == 0",
)

# A part of the elements.
moved("select.int select_copy.int", "A B C", dim=(0, 1, -1), index=(0, -1),
      shape_class="A >= 1 and B >= 1 and C >= 1")  # fmt: skip
moved("narrow narrow_copy", "A B", dim=1, start=(0, 1, 2), length=(1, 2),
      shape_class="start + length <= B")  # fmt: skip
moved("slice.Tensor slice_copy.Tensor", "A B", dim=(1, 0, -1), start=(None, 1, -3),
      end=(None, -1, 5), step=(1, 2, 3))  # fmt: skip
moved("diagonal diagonal_copy", "A B C", offset=(0, 1, -1), dim1=(0, 1), dim2=2)
moved("diag", "A B", diagonal=(0, 1, -2))
moved("unfold unfold_copy", "A B", dimension=1, size=(2, 1, 3), step=(1, 2),
      shape_class="size <= B")  # fmt: skip
moved("chunk", "A B", chunks=(2, 1, 3), dim=(1, 0, -1))
moved("unsafe_chunk", "A B", chunks=(2, 1, 3), dim=(1, 0, -1), may_alias=True)
moved("split.Tensor split_copy.Tensor", "A B", split_size=(2, 1, 3, 64),
      dim=(1, 0, -1))  # fmt: skip
moved("unsafe_split.Tensor", "A B", split_size=(2, 1, 3, 64), dim=(1, 0, -1),
      may_alias=True)  # fmt: skip
moved("split_with_sizes split_with_sizes_copy", "A B C", split_sizes="1,C", dim=0,
      shape_class="A == C + 1")  # fmt: skip
moved("unsafe_split_with_sizes", "A B C", split_sizes="1,C", dim=0,
      shape_class="A == C + 1", may_alias=True)  # fmt: skip
moved("tensor_split.sections", "A B", sections=(2, 1, 3), dim=(1, 0, -1))
moved("unbind.int unbind_copy.int", "A B", dim=(0, -1),
      shape_class="A <= 8 and B <= 8")  # fmt: skip

# Several tensors, or what surrounds one.
moved("cat concat concatenate", ("B A C", "B D C", "B E C"), dim=(1, -2))
moved("stack", ("*", "*", "*"), dim=(0, -1))
moved("hstack column_stack", ("N A", "N B"))
moved("vstack row_stack", ("A N", "B N"))
moved("dstack", ("A B C", "A B D"))
moved("block_diag", ("A B", "C D"))
moved("constant_pad_nd", "A B", pad=("1,2", "0,1,2,0", "-1,3"), value=(0, 0.5))
moved("pad", "N C H W", pad=("1,2", "2,1,0,1", "1,0"), mode=("constant",),
      value=(None, 0.5))  # fmt: skip
moved("reflection_pad1d", "N C W", padding=("1,2", "2,0"), shape_class="W >= 3")
moved("reflection_pad2d", "N C H W", padding=("1,2,0,1", "2,0,1,1"),
      shape_class="W >= 3 and H >= 2")  # fmt: skip
moved("replication_pad1d", "N C W", padding=("1,2", "2,0", "-1,3"))
moved("replication_pad2d", "N C H W", padding=("1,2,0,1", "3,0,1,1"))
moved("replication_pad3d", "N C D H W", padding=("1,2,0,1,1,0", "0,1,1,1,2,0"))
moved("diag_embed", offset=(0, 1, -1), ranks=range(1, 4))
moved("diagflat", "A B", offset=(0, 1, -1))
moved("tril triu", "* M N", diagonal=(0, 1, -1, 3))
moved("select_scatter", "A B", "A", dim=1, index=(0, -1), shape_class="B >= 1")
moved("slice_scatter", "A B", "A B", dim=0, start=None, end=None)
moved("diagonal_scatter", "A A2", "A", shape_class="A == A2")
moved("copy", "A B", "A B")
moved("im2col", "N C H W", kernel_size="2,3", dilation="1,1", padding=("0,0", "1,1"),
      stride=("1,1", "2,1"), shape_class="H >= 2 and W >= 3")  # fmt: skip
moved("upsample_nearest1d", "N C W", output_size=("5", "8"), scales=None)
moved("upsample_nearest2d", "N C H W", output_size=("5,7", "8,3"), scales_h=None,
      scales_w=None)  # fmt: skip
moved("upsample_nearest3d", "N C D H W", output_size=("2,5,7", "3,8,3"),
      scales_d=None, scales_h=None, scales_w=None)  # fmt: skip
moved("atleast_1d atleast_2d atleast_3d", may_alias=True)
moved("meshgrid", ("A", "B"), may_alias=True)
moved("broadcast_tensors", ("A B", "B"), may_alias=True)
