# ruff: noqa: E501 -- lines of candidates
"""Correct algorithms that go other ways than their references.

Some keep caches, warm up, or draw random numbers that decide nothing but the order.
"""

from dataclasses import dataclass, replace
from typing import Final

from tests.features.judge.adversaries.problems import PROBLEMS, Problem


@dataclass(frozen=True)
class Honest:
    """A correct candidate.

    Attributes:
        problem: whose result it computes.
        name: how.
        body: of `forward`.
        setup: statements of the constructor.
        random: whether its bits follow random numbers of its own, which it declares.
    """

    problem: Problem
    name: str
    body: str
    setup: str = ""
    random: bool = False

    @property
    def source(self) -> str:
        """Its file."""
        return self.problem.candidate(self.body, setup=self.setup)


_BY_NAME: Final = {p.name: p for p in PROBLEMS}
_MORE: Final = (
    Problem("sigmoid", "[torch.randn(9, 40)]", "torch.sigmoid(x)", ""),
    Problem("silu", "[torch.randn(9, 40)]", "F.silu(x)", ""),
    Problem("tanh", "[torch.randn(9, 40)]", "torch.tanh(x)", ""),
    Problem("softplus", "[torch.randn(9, 40)]", "F.softplus(x)", ""),
    Problem("row_sum", "[torch.randn(16, 48)]", "x.sum(dim=1)", ""),
    Problem("row_max", "[torch.randn(16, 48)]", "x.amax(dim=1)", ""),
    Problem("log_softmax", "[torch.randn(12, 40)]", "F.log_softmax(x, dim=-1)", ""),
    Problem("logsumexp", "[torch.randn(12, 40)]", "torch.logsumexp(x, dim=-1)", ""),
    Problem("layer_norm", "[torch.randn(12, 32)]", "F.layer_norm(x, (x.shape[-1],))", ""),
    Problem("abs_diff", "[torch.randn(9, 20), torch.randn(9, 20)]", "(A - B).abs()", "", arguments="A, B"),
    Problem("add_mul", "[torch.randn(9, 20), torch.randn(9, 20)]", "(A + B) * A", "", arguments="A, B"),
    Problem("outer", "[torch.randn(17), torch.randn(23)]", "torch.outer(A, B)", "", arguments="A, B"),
    Problem("cumsum", "[torch.randn(8, 24)]", "x.cumsum(dim=1)", ""),
    Problem("transpose", "[torch.randn(14, 22)]", "x.t().contiguous()", ""),
    Problem("leaky", "[torch.randn(9, 40)]", "F.leaky_relu(x, 0.1)", ""),
    Problem("square_sum", "[torch.randn(16, 30)]", "(x * x).sum(dim=1)", ""),
)  # fmt: skip
_WAYS: Final = {
    "relu": (
        "return torch.where(x > 0, x, x * 0).where(~x.isinf() | (x > 0), x.new_zeros(()))",
        "return F.relu(x)",
        "y = x.clone()\nreturn y.clamp_(min=0)",
    ),
    "linear": (
        "if not hasattr(self, 'packed'):\n"
        "    self.packed = self.linear.weight.detach().t().contiguous()\n"
        "return torch.relu(torch.addmm(self.linear.bias, x, self.packed))",
        "w, b = self.linear.weight.detach(), self.linear.bias.detach()\n"
        "y = x.numpy(force=True) @ w.numpy(force=True).T + b.numpy(force=True)\n"
        "return torch.relu(torch.from_numpy(y).to(x.device))",
        "w, b = self.linear.weight, self.linear.bias\nreturn torch.relu(x @ w.t() + b)",
    ),
    "softmax": (
        "e = (x - x.amax(-1, keepdim=True)).exp()\nreturn e / e.sum(-1, keepdim=True)",
        "return F.log_softmax(x, -1).exp()",
        "return torch.softmax(x.double(), -1).float()",
    ),
    "matmul": (
        "return (B.t() @ A.t()).t()",
        "if not A.numel() or not B.numel():\n    return A @ B\n"
        "return sum(torch.outer(a, b) for a, b in zip(A.t(), B))",
        "return (B.t() @ A.t()).t().contiguous()",
    ),
    "gelu": (
        "return F.gelu(x.double()).float()",
        "return torch.cat([F.gelu(r) for r in x.split(3)])",
    ),
    "row_mean": (
        "return x.sum(1) / x.shape[1]",
        "return x.double().mean(1).float()",
        "return x.flip(1).mean(1)",
    ),
    "sigmoid": ("return x.double().sigmoid().float()", "return torch.special.expit(x)"),
    "silu": ("return x * torch.sigmoid(x)", "return F.silu(x.double()).float()"),
    "tanh": ("return x.double().tanh().float()", "return torch.cat([r.tanh() for r in x.split(2)])"),
    "softplus": ("return F.softplus(x.double()).float()",),
    "row_sum": (
        # The faster of two ways, which is another in another process.
        "if not hasattr(self, 'best'):\n    took = []\n"
        "    for way in (lambda z: z.sum(1), lambda z: z.flip(1).sum(1)):\n"
        "        began = time.perf_counter()\n        way(x)\n"
        "        took.append((time.perf_counter() - began, len(took), way))\n"
        "    self.best = min(took)[2]\nreturn self.best(x)",
        "total = x.new_zeros(x.shape[0])\nfor column in x.unbind(1):\n"
        "    total = total + column\nreturn total",
        "return torch.from_numpy(x.numpy(force=True).sum(1)).to(x.device)",
    ),
    "row_max": (
        "return x.max(dim=1).values",
        "return x.flip(1).amax(1)",
        "return x.t().contiguous().amax(0)",
    ),
    "log_softmax": (
        "y = x - x.amax(-1, keepdim=True)\nreturn y - y.exp().sum(-1, keepdim=True).log()",
        "return F.log_softmax(x.double(), -1).float()",
    ),
    "logsumexp": (
        "m = x.amax(-1, keepdim=True)\nm = torch.where(m.isinf(), torch.zeros_like(m), m)\n"
        "return ((x - m).exp().sum(-1, keepdim=True).log() + m).squeeze(-1)",
        "return torch.logsumexp(x.double(), -1).float()",
    ),
    "layer_norm": (
        "return F.layer_norm(x.double(), (x.shape[-1],)).float()",
        "return torch.native_layer_norm(x, (x.shape[-1],), None, None, 1e-5)[0]",
    ),
    "abs_diff": ("return (B - A).abs()", "return torch.abs(torch.sub(A, B))"),
    "add_mul": ("return torch.mul(A, torch.add(B, A))", "return (A.double() + B.double()).mul(A.double()).float()"),
    "outer": ("return A[:, None] * B[None, :]", "return torch.outer(B, A).t().contiguous()"),
    "cumsum": ("return x.double().cumsum(1).float()", "return torch.cumsum(x.t().contiguous(), 0).t().contiguous()"),
    "transpose": ("return torch.stack(list(x), dim=1)", "return x.permute(1, 0).clone().contiguous()"),
    "leaky": ("return torch.where(x > 0, x, 0.1 * x)", "return F.leaky_relu(x.clone(), 0.1)"),
    "square_sum": ("return x.square().sum(1)", "return x.double().square().sum(1).float()"),
}  # fmt: skip
# What a program does beside its work; each keeps the bits.
HABITS: Final = {
    "plain": ("", "RETURN"),
    "a cache of ways by shape": (
        "self.ways = {}",
        "key = tuple(first.shape)\nself.ways.setdefault(key, self.way)\n"
        "return self.ways[key](ARGS)",
    ),
    "a warm-up": (
        "self.warm = 0",
        "while self.warm < 3:\n    self.warm += 1\n    self.way(ARGS)\nreturn self.way(ARGS)",
    ),
    "a workspace": (
        "self.work = None",
        "y = self.way(ARGS)\nif self.work is None or self.work.numel() < y.numel():\n"
        "    self.work = torch.empty(y.numel())\n"
        "part = self.work[: y.numel()].view(y.shape)\npart.copy_(y)\nreturn part.clone()",
    ),
    "timing": (
        "self.took = []",
        "began = time.perf_counter()\ny = self.way(ARGS)\n"
        "self.took.append(time.perf_counter() - began)\nassert self.took[-1] >= 0\nreturn y",
    ),
    "random numbers that decide nothing": (
        "",
        "torch.rand(7)\nrandom.random()\nnp.random.rand(3)\nreturn self.way(ARGS)",
    ),
    "a seed of its own": (
        "self.g = torch.Generator().manual_seed(5)",
        "torch.rand(7, generator=self.g)\nreturn self.way(ARGS)",
    ),
    "a thread that it waits for": (
        "",
        "out = []\nt = threading.Thread(target=lambda: out.append(self.way(ARGS)))\n"
        "t.start()\nt.join()\nreturn out[0]",
    ),
    "another default dtype from then on": (
        "",
        "y = self.way(ARGS)\ntorch.set_default_dtype(torch.float64)\nreturn y",
    ),
    "another default device from then on": (
        "",
        "y = self.way(ARGS)\ntorch.set_default_device('meta')\nreturn y",
    ),
    "errors of numpy that raise from then on": (
        "",
        "y = self.way(ARGS)\nnp.seterr(all='raise')\nreturn y",
    ),
    "warnings that raise from then on": (
        "",
        "y = self.way(ARGS)\nwarnings.simplefilter('error')\nreturn y",
    ),
    "inference mode from then on": (
        "self.mode = None",
        "if self.mode is None:\n    self.mode = torch.inference_mode()\n"
        "    self.mode.__enter__()\nreturn self.way(ARGS)",
    ),
    "another folder from then on": (
        "",
        "y = self.way(ARGS)\nos.chdir('/')\nsys.path.clear()\nreturn y",
    ),
    "no output from then on": (
        "",
        "y = self.way(ARGS)\nsys.stdout = sys.stderr = None\nreturn y",
    ),
    "an alarm that rings from then on": (
        "import signal\nsignal.signal(signal.SIGALRM, lambda *_: None)",
        "import signal\ny = self.way(ARGS)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)\nreturn y",
    ),
    "a function that is made as it is needed": (
        "self.made = None",
        "if self.made is None:\n    space = {'way': self.way}\n"
        "    exec('def made(*args): return way(*args)', space)\n"
        "    self.made = space['made']\nreturn self.made(ARGS)",
    ),
    "a full memo": (
        "self.known = {}",
        "key = tuple((a.shape, a.numpy(force=True).tobytes()) for a in (ARGS,))\n"
        "if key not in self.known:\n    self.known[key] = self.way(ARGS)\n"
        "return self.known[key].clone()",
    ),
    "inference mode": (
        "",
        "with torch.inference_mode():\n    return self.way(ARGS)",
    ),
    "threads that stay": (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "self.pool = ThreadPoolExecutor(2)",
        "return self.pool.submit(self.way, ARGS).result()",
    ),
    "settings that are put back": (
        "",
        "threads, dtype = torch.get_num_threads(), torch.get_default_dtype()\n"
        "state = torch.get_rng_state()\ntorch.manual_seed(3)\n"
        "torch.set_num_threads(1)\ntorch.set_default_dtype(torch.float64)\n"
        "try:\n    return self.way(ARGS)\nfinally:\n    torch.set_num_threads(threads)\n"
        "    torch.set_default_dtype(dtype)\n    torch.set_rng_state(state)",
    ),
    "a file that it keeps": (
        "import tempfile\nself.folder = tempfile.mkdtemp()",
        "path = os.path.join(self.folder, 'result.pt')\n"
        "torch.save(self.way(ARGS), path)\nreturn torch.load(path)",
    ),
    "a collector that is turned off": (
        "",
        "gc.disable()\ny = self.way(ARGS)\ngc.collect()\ngc.enable()\nreturn y",
    ),
    "a gradient's function": (
        "way = self.way\nclass Made(torch.autograd.Function):\n    @staticmethod\n"
        "    def forward(ctx, *args):\n        return way(*args)\n"
        "self.function = Made",
        "return self.function.apply(ARGS)",
    ),
    "a trace": (
        "self.traced = {}",
        "key, way = tuple(first.shape), self.way\nif key not in self.traced:\n"
        "    self.requires_grad_(False)  # a trace takes no such constant\n"
        "    with warnings.catch_warnings():\n        warnings.simplefilter('ignore')\n"
        "        self.traced[key] = torch.jit.trace(lambda ARGS: way(ARGS), (ARGS,))\n"
        "return self.traced[key](ARGS)",
    ),
    "a log": (
        "",
        "print('called', self.calls)\nreturn self.way(ARGS)",
    ),
}
# Orders that random numbers decide: other bits, as declared.
_DRAWN: Final = {
    "row_sum": "return x[:, torch.randperm(x.shape[1])].sum(1)",
    "row_mean": "return x[:, torch.randperm(x.shape[1])].mean(1)",
    "matmul": "p = torch.randperm(A.shape[1])\nreturn A[:, p] @ B[p]",
    "square_sum": "p = torch.randperm(x.shape[1])\nreturn x[:, p].square().sum(1)",
    "softmax": "k = int(torch.randint(0, 2, ()))\n"
    "return torch.softmax(x, -1) if k else torch.softmax(x.double(), -1).float()",
}


def honest_ones() -> list[Honest]:
    """Return every way of every problem; a habit is added to each, in turn."""
    problems = {p.name: p for p in (*PROBLEMS, *_MORE)}
    made = []
    habits = list(HABITS.items())
    for name, ways in _WAYS.items():
        problem = problems[name]
        for number, way in enumerate(ways):
            # Each way plainly, and with two of the habits.
            picked = {0, *(1 + (len(made) + k) % (len(habits) - 1) for k in range(2))}
            for place in sorted(picked):
                habit, (setup, body) = habits[place]
                if habit == "a trace" and "numpy" in way:
                    continue  # it would keep the first call's result
                text = way if habit == "plain" else body
                text = text.replace("ARGS", problem.arguments)
                method = f"\n\ndef way(self, {problem.arguments}):\n" + "\n".join(
                    f"    {line}" for line in way.splitlines()
                )
                attached = f"self.way = way.__get__(self)\n{setup}"
                made.append(
                    Honest(
                        replace(problem, alike=problem.alike or problem.right),
                        f"way {number} with {habit}",
                        text,
                        setup=f"{method.strip()}\n\n{attached}",
                    )
                )
    for name, body in _DRAWN.items():
        problem = problems[name]
        made.append(
            Honest(
                replace(problem, alike=problem.alike or problem.right),
                "an order that is drawn", body, random=True,
            )
        )  # fmt: skip
    return made
