"""Softmax beside linear attention, ridge regression and the floor; the first argument is the number of steps."""

import math
import sys

import torch
from torch import nn

from ridgeformer import ConstRR, Problem, compare
from ridgeformer.torch import ProblemDataset, token_loss

PROBLEM, LAYERS, WIDTH, HEADS = Problem(dim=3, context=10, noise="uniform(0,2)"), 3, 32, 2


class Block(nn.Module):
    """Attention to the context, then an MLP; both read normalised tokens and are added to the tokens."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.qkv, self.out = kind, nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norm, hidden = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH)
        self.mlp = nn.Sequential(nn.LayerNorm(WIDTH), hidden, nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, tokens, n):
        query, key, value = self.qkv(self.norm(tokens)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        scores = query @ key[:, :, :n].mT / math.sqrt(WIDTH // HEADS)
        scores = scores.softmax(-1) if self.kind == "softmax" else scores / n
        tokens = tokens + self.out((scores @ value[:, :, :n]).transpose(1, 2).flatten(2))
        return tokens + self.mlp(tokens)


class Transformer(nn.Module):
    """Any module becomes a predictor by a method predict(x, y, queries) on arrays."""

    def __init__(self, kind):
        super().__init__()
        self.read_in, self.read_out = nn.Linear(PROBLEM.dim + 1, WIDTH), nn.Linear(WIDTH, 1)
        self.layers = nn.ModuleList(Block(kind) for _ in range(LAYERS))

    def forward(self, x, y, queries):
        labels = torch.cat([y, torch.zeros_like(queries[..., 0])], 1)
        tokens = self.read_in(torch.cat([torch.cat([x, queries], 1), labels[..., None]], -1))
        for layer in self.layers:
            tokens = layer(tokens, x.shape[1])
        return self.read_out(tokens[:, x.shape[1] :])[..., 0]

    @torch.no_grad()
    def predict(self, x, y, queries):
        return self(*(torch.tensor(value, dtype=torch.float32) for value in (x, y, queries))).numpy()


def train(kind, steps):
    torch.manual_seed(0)
    model = Transformer(kind)
    adam = torch.optim.Adam(model.parameters(), lr=2e-3)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(adam, steps)
    for batch in ProblemDataset(PROBLEM, 256, form="tokens", queries=4, batches=steps):
        adam.zero_grad()
        token_loss(model, *batch).backward()
        adam.step()
        decay.step()
    return model


steps = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
models = {f"{kind} attention": train(kind, steps) for kind in ("softmax", "linear")}
print(compare(PROBLEM, {**models, "ConstRR": ConstRR.tune(PROBLEM)}, sequences=20_000))
