"""Training of transformers outside moment form, on any problem, by one loop with checkpoints."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ridgeformer.engine import one_torch_thread
from ridgeformer.errors import InputError, refuse
from ridgeformer.evaluation.sequence_losses import draw_tokens
from ridgeformer.files import make_folder, parse_json, short, write_whole
from ridgeformer.problems import BaseProblem
from ridgeformer.tensors import DamagedFile, pack, read_tensors
from ridgeformer.torch.transformers import Architecture, Transformer
from ridgeformer.validation import integer, number

__all__ = ["Fitted", "fit"]

FORMAT = "ridgeformer-transformer"
BETAS, EPSILON = (0.9, 0.99), 1e-8
TRAINING = 1  # the stream that training draws from


@dataclass(frozen=True)
class Fitted:
    """A trained transformer and how it was trained.

    Attributes:
        model: The transformer, which is a predictor: `evaluate(fitted.model, problem)`.
        problem: What it was trained on.
        losses: The mean adjusted loss of every step's batch, [steps].
        seconds: How long this call of `fit` took.
        resumed: The step from which this call went on; 0 if it started anew.
    """

    model: Transformer
    problem: BaseProblem
    losses: NDArray[np.float64]
    seconds: float
    resumed: int = 0


def fit(
    problem: BaseProblem,
    shape: Architecture,
    *,
    steps: int = 5000,
    batch: int = 256,
    queries: int = 4,
    rate: float = 2e-3,
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    every: int = 500,
    progress: Callable[[int, int, float], None] = lambda done, total, loss: None,
) -> Fitted:
    """Train a transformer by Adam on fresh sequences.

    The loss is the adjusted one, which has the same minimum as that against the answers, and less noise. Losses above
    half the problem's signal enter by their logarithm, so that a batch on which the model explodes does no harm. The
    step size rises over the first twentieth of the steps and then falls to 0 like a cosine. PyTorch uses one thread.

    Args:
        problem: The distribution of sequences; its number of examples must not vary.
        shape: What the transformer is made of.
        steps: How many steps to take.
        batch: How many sequences a step uses.
        queries: How many queries each sequence has.
        rate: The largest step size.
        seed: Seed of the start and of the sequences.
        out: A file for checkpoints. A finished training is read from it; an interrupted one resumes, to the bit.
        every: After how many steps a checkpoint is written.
        progress: Called with the number of steps done, the number of all, and the latest loss.

    Returns:
        The transformer and its losses.

    Raises:
        InputError: An argument is not allowed, or the file holds another training.
    """
    began = time.perf_counter()
    steps, batch, every = integer("steps", steps), integer("batch", batch), integer("every", every)
    queries, rate, seed = integer("queries", queries), number("rate", rate), integer("seed", seed, 0)
    _check(shape, problem)
    model = Transformer(shape, seed)
    adam = torch.optim.Adam(model.parameters(), betas=BETAS, eps=EPSILON)
    spec = {"shape": asdict(shape), "problem": problem.as_dict(), "steps": steps, "batch": batch}
    spec |= {"queries": queries, "rate": rate, "seed": seed}
    path = _path(out)
    losses = _restore(path, spec, model, adam)
    first = len(losses)
    with one_torch_thread():
        for step in range(first, steps):
            warm = min(1.0, 20 * (step + 1) / steps)
            adam.param_groups[0]["lr"] = rate * warm * 0.5 * (1 + math.cos(math.pi * step / steps))
            losses.append(_step(model, adam, problem, {"seed": seed, "step": step}, batch, queries))
            if path is not None and ((step + 1) % every == 0 or step + 1 == steps):
                write_whole(path, _packed(spec, model, adam, losses))
            progress(step + 1, steps, losses[-1])
    return Fitted(model, problem, np.array(losses), time.perf_counter() - began, first)


def _check(shape: Architecture, problem: BaseProblem) -> None:
    """Refuse a problem that the transformer does not fit."""
    if not isinstance(problem, BaseProblem) or problem.dim != getattr(shape, "dim", None):
        refuse("the problem must have the dimension of the transformer", problem, "Pass Architecture(problem.dim).")
    if not problem.lengths.fixed:
        refuse("training in tokens needs contexts of one length", f"n = {problem.lengths}", "Use one context length.")


def _step(
    model: Transformer, adam: torch.optim.Adam, problem: BaseProblem, key: dict[str, int], batch: int, queries: int
) -> float:
    """One step; returns the mean adjusted loss of its batch."""
    draw = draw_tokens(problem, batch, stream=TRAINING, queries=queries, **key)
    tokens = draw.tokens
    assert tokens is not None
    goal = np.einsum("bmd,bd->bm", tokens.queries, draw.ridge) if draw.oracle else tokens.answers
    x, y, asked, wanted = (_tensor(value) for value in (tokens.x, tokens.y, tokens.queries, goal))
    losses = 0.5 * (model(x, y, asked) - wanted).square()
    most = 0.5 * problem.signal
    limited = torch.where(losses > most, most * (1 + (losses.clamp(min=most) / most).log()), losses)
    adam.zero_grad()
    limited.mean().backward()
    adam.step()
    return float(losses.detach().mean())


def _tensor(value: Any) -> Tensor:
    return torch.from_numpy(np.asarray(value).astype(np.float32))


def _path(out: str | os.PathLike[str] | None) -> Path | None:
    if out is None:
        return None
    path = Path(out)
    if path.suffix != ".safetensors":
        refuse("a checkpoint needs the name of a file", short(path), "Write softmax.safetensors, for example.")
    make_folder(path.parent, "checkpoints")
    return path


def _packed(spec: dict[str, Any], model: Transformer, adam: torch.optim.Adam, losses: list[float]) -> bytes:
    """The parameters, the state of Adam, and the losses so far."""
    arrays: dict[str, NDArray[Any]] = {"losses": np.array(losses)}
    for name, value in model.named_parameters():
        state = adam.state[value]
        arrays |= {name: value.detach().numpy(), f"mean.{name}": state["exp_avg"].numpy()}
        arrays[f"square.{name}"] = state["exp_avg_sq"].numpy()
    return pack(arrays, {"format": FORMAT, "spec": json.dumps(spec)})


def _restore(path: Path | None, spec: dict[str, Any], model: Transformer, adam: torch.optim.Adam) -> list[float]:
    """Put what a checkpoint holds into the model and into Adam; returns the losses so far."""
    if path is None or not path.exists():
        return []
    try:
        metadata, arrays = read_tensors(path, "a checkpoint", lambda metadata: None)
        stored = parse_json(metadata.get("spec", "null"))
    except (DamagedFile, ValueError) as error:
        raise InputError(
            f"a checkpoint must be one that fit wrote; {short(path)} is not ({short(error)}). Choose another file."
        ) from error
    if metadata.get("format") != FORMAT or stored != json.loads(json.dumps(spec)):
        refuse(
            "a checkpoint must belong to the same training",
            f"{short(path)} of another",
            "Choose another file or folder.",
        )
    losses: list[float] = arrays["losses"].tolist()
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.copy_(torch.from_numpy(arrays[name]))
            moments = (torch.from_numpy(arrays[f"{kind}.{name}"]) for kind in ("mean", "square"))
            adam.state[value] = dict(zip(("exp_avg", "exp_avg_sq"), moments, strict=True))
            adam.state[value]["step"] = torch.tensor(float(len(losses)))
    return losses
