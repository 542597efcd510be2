"""The same training step as users of PyTorch and JAX write it: tokens, attention, a sampled query, autodiff.

Both sample a batch of sequences, run the linear transformer in token form, take the squared error of the query's
prediction and differentiate it. Attention is written with batched matrix products, (E Q') E' then (. E P'), the
form that runs fastest of those we tried in either framework.
"""

from __future__ import annotations

from collections.abc import Callable


def torch_step(kind: str, batch: int, dim: int, context: int, layers: int, threads: int) -> Callable[[], object]:
    """One step in PyTorch; raises ImportError if it is not installed."""
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    shape = (layers, dim + 1, dim + 1) if kind == "full" else (layers, 2)
    p = torch.nn.Parameter(0.01 * torch.randn(shape))
    q = torch.nn.Parameter(0.01 * torch.randn(shape))

    def matrix(values: torch.Tensor) -> torch.Tensor:
        return values if kind == "full" else torch.diag(torch.cat([values[:1].expand(dim), values[1:]]))

    def step() -> object:
        w = torch.randn(batch, dim)
        x = torch.randn(batch, context + 1, dim)
        y = torch.einsum("bnd,bd->bn", x, w)
        answer = y[:, -1]
        sigma = 5 * torch.rand(batch, 1)
        noisy = y[:, :-1] + sigma * torch.randn(batch, context)
        e = torch.cat([x, torch.cat([noisy, torch.zeros(batch, 1)], 1)[..., None]], -1)
        for layer in range(layers):
            seen = e[:, :context]
            e = e + ((e @ matrix(q[layer]).T) @ seen.transpose(1, 2)) @ (seen @ matrix(p[layer]).T)
        loss = 0.5 * (-e[:, -1, -1] - answer).square().mean()
        p.grad = q.grad = None
        loss.backward()
        return loss.item()

    return step


def torch_moment_step(kind: str, batch: int, dim: int, context: int, layers: int) -> Callable[[], object]:
    """One step of a loop in PyTorch with `moment_loss`, from drawing the moments to the step of Adam.

    `torch_step` has no optimiser, so the ratio of the two is rather too small.
    """
    import torch

    from ridgeformer import LinearTransformer, Problem
    from ridgeformer.torch import ProblemDataset, moment_loss, to_torch

    model = LinearTransformer.random(kind, dim=dim, layers=layers, context=context * dim, scale=0.1)
    module = to_torch(model, dtype=torch.float32)
    adam = torch.optim.Adam(module.parameters(), lr=1e-6, fused=True)
    batches = iter(ProblemDataset(Problem(dim, context, noise="uniform(0,5)"), batch))

    def step() -> object:
        drawn = next(batches)
        loss = moment_loss(module, drawn.gram, drawn.task)
        adam.zero_grad()
        loss.backward()
        adam.step()
        return loss.item()

    return step


def jax_step(kind: str, batch: int, dim: int, context: int, layers: int) -> Callable[[], object]:
    """One compiled step in JAX; raises ImportError if it is not installed. Uses all cores."""
    import jax
    import jax.numpy as jnp

    shape = (layers, dim + 1, dim + 1) if kind == "full" else (layers, 2)

    def matrix(values: jax.Array) -> jax.Array:
        return values if kind == "full" else jnp.diag(jnp.append(jnp.full(dim, values[0]), values[1]))

    def loss(parameters: tuple[jax.Array, jax.Array], key: jax.Array) -> jax.Array:
        p, q = parameters
        keys = jax.random.split(key, 4)
        w = jax.random.normal(keys[0], (batch, dim))
        x = jax.random.normal(keys[1], (batch, context + 1, dim))
        y = jnp.einsum("bnd,bd->bn", x, w)
        answer = y[:, -1]
        sigma = 5 * jax.random.uniform(keys[2], (batch, 1))
        noisy = y[:, :-1] + sigma * jax.random.normal(keys[3], (batch, context))
        e = jnp.concatenate([x, jnp.pad(noisy, ((0, 0), (0, 1)))[..., None]], -1)
        for layer in range(layers):
            seen = e[:, :context]
            e = e + ((e @ matrix(q[layer]).T) @ seen.transpose(0, 2, 1)) @ (seen @ matrix(p[layer]).T)
        return 0.5 * jnp.mean((-e[:, -1, -1] - answer) ** 2)

    compiled = jax.jit(jax.value_and_grad(loss))
    start = jax.random.key(0)
    parameters = (0.01 * jax.random.normal(start, shape), 0.01 * jax.random.normal(jax.random.key(1), shape))
    count = 0

    def step() -> object:
        nonlocal count
        count += 1
        return jax.block_until_ready(compiled(parameters, jax.random.fold_in(start, count)))

    return step
