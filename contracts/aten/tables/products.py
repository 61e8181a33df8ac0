"""Sums of products, and norms of differences."""

from kfuzz.contracts.aten.rows import shadowed

shadowed("addmm", "M N", "M K", "K N")
shadowed("addmv", "M", "M K", "K")
shadowed("addr", "M N", "M", "N")
shadowed("baddbmm", "B M N", "B M K", "B K N")
shadowed("addbmm", "M N", "B M K", "B K N")
shadowed("mv", "M K", "K")
shadowed("dot vdot inner", "K")
shadowed("outer ger", "M", "N")
shadowed("kron", "A B", "C D")
shadowed("tensordot", "A K", "K B", dims_self="1", dims_other="0")
shadowed("linalg_multi_dot chain_matmul", ("A B", "B C", "C D"))
shadowed("cross", "N C", "N C", dim=1, shape_class="C == 3")
shadowed("conv1d", "N C W", "O I R", "bias: O?", stride=("1", "2"),
         padding=("0", "1"), dilation=("1", "2"), groups=(1, 2),
         shape_class="C == I * groups and O % groups == 0 and W >= R * 2")  # fmt: skip
shadowed("conv3d", "N C D H W", "O C R S T", "bias: O?", stride=("1,1,1", "2,1,2"),
         padding=("0,0,0", "1,0,1"), dilation="1,1,1", groups=1,
         shape_class="D >= R and H >= S and W >= T and O >= 1 and R >= 1 and S >= 1 "
         "and T >= 1")  # fmt: skip
shadowed("conv_transpose1d", "N C W", "C O R", "bias: O?", stride=("1", "2"),
         padding="0", output_padding="0", groups=1, dilation=("1", "2"),
         shape_class="W >= 1 and R >= 1 and C >= 1 and O >= 1")  # fmt: skip
shadowed("conv_transpose2d.input", "N C H W", "C O R S", "bias: O?",
         stride=("1,1", "2,1"), padding="0,0", output_padding="0,0", groups=1,
         dilation="1,1", shape_class="H >= 1 and W >= 1 and R >= 1 and S >= 1 and "
         "C >= 1 and O >= 1")  # fmt: skip
shadowed("cdist", "B M K", "B N K", p=(2.0, 1.0), compute_mode=(2,))
