"""Pooling, and resampling on grids."""

from kfuzz.contracts.aten.rows import shadowed

LARGE = "W >= 4"
BOTH = "H >= 4 and W >= 4"
ALL = "D >= 4 and H >= 4 and W >= 4"

shadowed("avg_pool1d", "N C W", kernel_size=("2", "3"), stride=("2", "1", ""),
         padding=("0", "1"), ceil_mode=False, shape_class=LARGE)  # fmt: skip
shadowed("avg_pool2d", "N C H W", kernel_size=("2,2", "3,2"), stride=("2,2", "1,2"),
         padding=("0,0", "1,1"), ceil_mode=False, shape_class=BOTH)  # fmt: skip
shadowed("avg_pool3d", "N C D H W", kernel_size=("2,2,2", "3,2,2"),
         stride=("2,2,2", "1,2,1"), padding=("0,0,0", "1,1,1"), ceil_mode=False,
         shape_class=ALL)  # fmt: skip
shadowed("max_pool1d", "N C W", kernel_size=("2", "3"), stride=("2", "1"),
         padding=("0", "1"), dilation=("1", "2"), ceil_mode=False,
         shape_class="W >= 5")  # fmt: skip
shadowed("max_pool2d", "N C H W", kernel_size=("2,2", "3,2"), stride=("2,2", "1,2"),
         padding=("0,0", "1,1"), dilation=("1,1", "2,1"), ceil_mode=False,
         shape_class="H >= 5 and W >= 5")  # fmt: skip
shadowed("max_pool3d", "N C D H W", kernel_size=("2,2,2", "3,2,2"),
         stride=("2,2,2", "1,2,1"), padding=("0,0,0", "1,1,1"), dilation="1,1,1",
         ceil_mode=False, shape_class=ALL)  # fmt: skip
shadowed("max_pool2d_with_indices", "N C H W", kernel_size=("2,2", "3,2"),
         stride=("2,2", "1,2"), padding=("0,0", "1,1"), dilation="1,1",
         ceil_mode=False, outputs="y", shape_class=BOTH)  # fmt: skip
shadowed("adaptive_avg_pool1d", "N C W", output_size=("1", "2"),
         shape_class="W % 2 == 0 and W >= 2")  # fmt: skip
shadowed("adaptive_avg_pool2d _adaptive_avg_pool2d", "N C H W",
         output_size=("1,1", "2,2", "1,2"),
         shape_class="H % 2 == 0 and W % 2 == 0 and H >= 2 and W >= 2")  # fmt: skip
shadowed("adaptive_max_pool2d", "N C H W", output_size=("1,1", "2,2", "1,2"),
         outputs="y",
         shape_class="H % 2 == 0 and W % 2 == 0 and H >= 2 and W >= 2")  # fmt: skip
shadowed("upsample_linear1d", "N C W", output_size=("5", "8"),
         align_corners=(False, True), scales=None)  # fmt: skip
shadowed("upsample_bilinear2d", "N C H W", output_size=("5,7", "8,3"),
         align_corners=(False, True), scales_h=None, scales_w=None)  # fmt: skip
