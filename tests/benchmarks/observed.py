"""A small model trained with Liger-Kernel, for `kfuzz observe`.

pip install -c constraints.txt -e '.[bench]'
kfuzz observe tests/benchmarks/observed.py --out observed.py
"""

import torch
from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction
from liger_kernel.ops.geglu import LigerGELUMulFunction
from liger_kernel.ops.layer_norm import LigerLayerNormFunction
from liger_kernel.ops.rms_norm import LigerRMSNormFunction
from liger_kernel.ops.softmax import LigerSoftmaxFunction
from liger_kernel.ops.swiglu import LigerSiLUMulFunction
from torch import nn

WIDTH, INNER, WORDS = 32, 64, 40


class Model(nn.Module):
    """Two gated layers between norms."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.gate, self.up = nn.Linear(WIDTH, INNER), nn.Linear(WIDTH, INNER)
        self.down, self.head = nn.Linear(INNER, WIDTH), nn.Linear(WIDTH, WORDS)
        self.rms = nn.Parameter(torch.ones(WIDTH))
        self.scale = nn.Parameter(torch.ones(WIDTH))
        self.shift = nn.Parameter(torch.zeros(WIDTH))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits of each token."""
        h = self.embedding(tokens).reshape(-1, WIDTH)
        h = LigerRMSNormFunction.apply(h, self.rms, 1e-6, 0.0, "llama", False, None)
        h = self.down(LigerSiLUMulFunction.apply(self.gate(h), self.up(h)))
        h = LigerLayerNormFunction.apply(h, self.scale, self.shift, 1e-5)
        h = h + self.down(LigerGELUMulFunction.apply(self.gate(h), self.up(h)))
        return self.head(h + LigerSoftmaxFunction.apply(h))


def main() -> None:
    """Train for three steps."""
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        tokens, targets = torch.randint(WORDS, (2, 6)), torch.randint(WORDS, (12,))
        loss = LigerCrossEntropyFunction.apply(
            model(tokens), targets, None, -100, 0.0, 0.0, "mean", None, False
        )[0]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, float(loss.detach()))


if __name__ == "__main__":
    main()
