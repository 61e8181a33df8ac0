"""Points are read four by four, whatever their strides: a slice gives other voxels.

package: conch-triton-kernels
operator: conch.ops.vision.voxelization.generate_voxels
input: two points of x, y, z, intensity, the first 4 of 5 columns
expected: voxels (0, 0, 0) and (1, 1, 1)
actual: the second point is read as (9, 1.5, 1.5), off the grid: one voxel
line: conch/kernels/vision/voxelization.py:51: tl.load(points_ptr + 4 * point_idx + 0);
  neither a stride nor contiguity is asked for; points.contiguous() mends it
since: 1.3
last: 1.3
state: new
finite: yes
device: any
"""

import torch
from conch.ops.vision.voxelization import VoxelizationParameter, generate_voxels

device = "cuda" if torch.cuda.is_available() else "cpu"
grid = VoxelizationParameter((0.0,) * 3, (2.0,) * 3, (1.0,) * 3, 4)
rows = [[0.5, 0.5, 0.5, 0.0, 9.0], [1.5, 1.5, 1.5, 0.0, 9.0]]
points = torch.tensor(rows, device=device)[:, :4]
expected = generate_voxels(points.contiguous(), grid)[0].item()
actual = generate_voxels(points, grid)[0].item()
print("expected", expected, "voxels")
print("actual", actual)
raise SystemExit(actual != expected)
