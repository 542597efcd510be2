"""A plain training loop in PyTorch, in token form; pytorch_moments.py is the same loop in moment form."""

import time

import torch

BATCH, DIM, CONTEXT, LAYERS, STEPS = 2048, 10, 20, 7, 60
torch.manual_seed(0)


class LinearAttention(torch.nn.Module):
    """Layers e_i <- e_i + sum_j (e_j' Q e_i) P e_j, with P = diag(p_x I, p_y) and Q = diag(q_x I, q_y)."""

    def __init__(self):
        super().__init__()
        self.p, self.q = (torch.nn.Parameter(0.005 * torch.randn(LAYERS, 1, 2)) for _ in range(2))

    def forward(self, x, y, query):
        e = torch.cat([torch.cat([x, query], 1), torch.nn.functional.pad(y, (0, 1))[..., None]], -1)
        for p, q in zip(self.p[:, 0], self.q[:, 0], strict=True):
            P, Q = (torch.cat([pair[:1].expand(DIM), pair[1:]]) for pair in (p, q))
            context = e[:, :CONTEXT]
            e = e + ((e * Q) @ context.mT) @ (context * P)
        return -e[:, CONTEXT:, -1]


def token_batches():
    while True:
        w, x = torch.randn(BATCH, DIM, 1), torch.randn(BATCH, CONTEXT + 1, DIM)
        clean, sigma = (x @ w)[..., 0], 5 * torch.rand(BATCH, 1)
        yield x[:, :-1], clean[:, :-1] + sigma * torch.randn(BATCH, CONTEXT), x[:, -1:], clean[:, -1:]


def token_loss(module, x, y, query, answer):
    return 0.5 * (module(x, y, query) - answer).square().mean()


def train(module, batches, loss):
    adam, losses, began = torch.optim.Adam(module.parameters(), lr=2e-4, fused=True), [], time.perf_counter()
    for _, batch in zip(range(STEPS), batches, strict=False):
        losses.append(loss(module, *batch))
        adam.zero_grad()
        losses[-1].backward()
        adam.step()
    print(f"median loss {sorted(losses[:9])[4]:.2f} -> {sorted(losses[-9:])[4]:.2f}")
    print(f"{1e3 * (time.perf_counter() - began) / STEPS:.1f} ms per step")


if __name__ == "__main__":
    train(LinearAttention(), token_batches(), token_loss)
