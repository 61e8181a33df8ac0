"""The backward pass of chunk_dplr_delta_rule promises an alignment that K lacks.

package: fla-core
needs: einops==0.8.2
operator: fla.ops.generalized_delta_rule.dplr.chunk_dplr_delta_rule
input: normal values, bfloat16, 1 x 32 x 1 x 33; a normalised, b = -a * 0.5, gk = -0.05
expected: the gradients of the same with K padded by zeros to 64, where it is aligned
actual: other gradients, or a misaligned access: unproven without a GPU
line: fla/ops/generalized_delta_rule/dplr/chunk_A_bwd.py:211: tl.multiple_of(p_gn, BK),
  where p_gn is gi + row * H * K
since: 0.6.0
last: 0.6.0
state: new
finite: yes
device: cuda
"""

import torch
from fla.ops.generalized_delta_rule.dplr import chunk_dplr_delta_rule

if not torch.cuda.is_available():
    raise SystemExit(77)
torch.manual_seed(0)
q, k, a = torch.randn(3, 1, 32, 1, 33, device="cuda").bfloat16()
v, a = torch.randn_like(q), torch.nn.functional.normalize(a.float(), dim=-1).bfloat16()


def gradients(width):
    wide = [torch.nn.functional.pad(x, (0, width - 33)) for x in (q, k, a, -a / 2)]
    gates = torch.full_like(wide[0], -0.05, dtype=torch.float32)
    given = [x.detach().requires_grad_() for x in (*wide, gates)]
    qs, ks, xs, ys, gs = given
    y, _ = chunk_dplr_delta_rule(qs, ks, v, xs, ys, gs, scale=1.0)
    return [g[..., :33].float() for g in torch.autograd.grad(y.float().sum(), given)]


pairs = list(zip(gradients(64), gradients(33), strict=True))
print("expected", [p.abs().max().item() for p, _ in pairs])
print("actual", [n.abs().max().item() for _, n in pairs])
raise SystemExit(0 if all(torch.allclose(*p, rtol=0.1, atol=0.1) for p in pairs) else 1)
