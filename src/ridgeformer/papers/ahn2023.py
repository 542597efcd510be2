"""Ahn, Cheng, Daneshmand and Sra: sparse layers as steps of preconditioned gradient descent.

Transformers learn to implement preconditioned gradient descent for in-context learning
Kwangjun Ahn, Xiang Cheng, Hadi Daneshmand and Suvrit Sra, NeurIPS 2023
https://arxiv.org/abs/2306.00297

Linear transformers with sparse parameters, trained on features of covariance Lambda and tasks of covariance Lambda^-1,
make steps of gradient descent that are preconditioned by Lambda^-1. If they may also change the features, they do
better than that.

The features have covariance Lambda and the tasks Lambda^-1, as in the authors' notebooks. In whitened coordinates this
is the isotropic problem, so that two exact losses are known without any training: gradient descent preconditioned by
Lambda^-1, and the best GD++ model. Sparse models with matrices A and B per layer are trained from that GD++ model for
several rotations of Lambda, and compared with it on the same sequences. A second set of models starts from random
numbers, with up to three layers, to see whether A finds Lambda^-1 by itself.

Contexts that are long in one direction decide the losses of deep models. A plain sample shows few of them, so that its
mean loss is too low, and training on it finds models that neglect them. Here long contexts are drawn often and count by
as much less (`ridgeformer.evaluation.Stretched`), in training and in measuring, so that losses are those of the
problem. Contexts count up to the length that one in 10^8 exceeds, as for the best GD++ model: without this limit,
contexts that no one will ever see decide the losses of three and four layers.

A trained model is kept if a first sample shows that it is above its start by at most half a percent; otherwise the
start is kept, and the ratio is 1. That happens to nearly half of the trainings with three layers and to most with four:
the longest contexts that count decide their losses, and training meets too few of them. For these models the claim says
only that training finds nothing better.

Not checked here: Convergence of gradient descent for the sparse family, which the paper proves for stationary points.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.evaluation import Stretched
from ridgeformer.evaluation.sequence_losses import EVALUATION
from ridgeformer.exact import RARE, ExcessLoss, least_excess_loss
from ridgeformer.models import LinearTransformer
from ridgeformer.moments import Moments
from ridgeformer.papers.paper import CHANCE, Check, Erratum, Paper, Part, Results, agree, listed, panels
from ridgeformer.papers.running import Work
from ridgeformer.plotting.panels import Line, Panel, Scatter
from ridgeformer.problems import Problem
from ridgeformer.problems.tasks import Gaussian
from ridgeformer.theory import gradient_steps
from ridgeformer.theory.gradient_steps import power
from ridgeformer.training import Adam, Search

Array = NDArray[np.float64]
DIM, DEPTHS, LENGTHS = 5, (1, 2, 3, 4), tuple(range(2, 21))
SCALES = (1.0, 1.0, 0.5, 0.25, 1.0)
OTHERS = 19  # examples that the baselines of the authors' code see, of 20
ABOVE = 0.01  # the share of the loss by which trained models may lie above GD++
ALONE = 2  # layers up to which every training must be kept


def _covariance(seed: int) -> Array:
    """Return Lambda = U D^2 U', [d, d], with the random rotation U of a seed."""
    U = np.linalg.svd(np.random.default_rng(seed).uniform(-1, 1, (DIM, DIM)))[0]
    covariance = U * np.square(SCALES) @ U.T
    return np.asarray((covariance + covariance.T) / 2)


def _problem_of(seed: int, context: int) -> Problem:
    """Return the paper's problem, x ~ N(0, Lambda), w ~ N(0, Lambda^-1), without noise and with n examples."""
    Lambda = _covariance(seed)
    return Problem(DIM, context, 0, features=Lambda, tasks=Gaussian(covariance=np.linalg.inv(Lambda)))


def _stretched(seed: int, context: int) -> Stretched:
    """Return the same problem with long contexts drawn often."""
    return Stretched(_problem_of(seed, context), RARE)


def _mismatch(isotropic: LinearTransformer, start: LinearTransformer, problem: Problem, Lambda: Array) -> float:
    """Return how far estimates of a whitened model are from those of the isotropic model for whitened contexts."""
    moments, root = problem.moments(1000, seed=1).moments, power(Lambda, -0.5)
    white = Moments.from_parts(root @ moments.S @ root, moments.b @ root, moments.q, problem.context)
    estimates = start.weights(moments)
    return float(np.linalg.norm(estimates - isotropic.weights(white) @ root) / np.linalg.norm(estimates))


def _best(context: int, depths: tuple[int, ...]) -> list[LinearTransformer]:
    """The best isotropic GD++ models of 1, 2, ... layers up to the largest depth, without sampling."""
    models: list[LinearTransformer] = []
    for depth in range(1, max(depths) + 1):
        shallower = models[-1] if models else None
        models.append(LinearTransformer(least_excess_loss(Problem(DIM, context, 0), depth, shallower=shallower), DIM))
    return models


def _adam(steps: int, schedule: Any) -> Adam:
    return Adam(steps=steps, batch=1024, schedule=schedule, record=steps, snapshots=0)


def _compared(model: LinearTransformer, start: LinearTransformer, problem: Stretched, count: int, seed: int = 1) -> Any:
    """Losses of both on the same sequences, their errors, their ratio, and its error."""
    draw = problem.moments(count, seed=seed, step=EVALUATION)
    ours, other = (draw.losses(one.weights(draw.moments), draw.task) for one in (model, start))
    error = (ours - ours.mean() / other.mean() * other).std() / other.mean()
    return {
        "model": ours.mean(),
        "GD++": other.mean(),
        "error": other.std() / np.sqrt(count),
        "ratio": ours.mean() / other.mean(),
        "ratio error": error / np.sqrt(count),
    }


def trained(
    work: Work,
    *,
    lengths: tuple[int, ...] = LENGTHS,
    depths: tuple[int, ...] = DEPTHS,
    seeds: int = 5,
    steps: int = 256,
    sequences: int = 30_000,
) -> dict[str, Any]:
    """Train sparse models of every depth, length and rotation by Adam, from the whitened GD++ model.

    Args:
        work: The folder of runs and the progress.
        lengths: The numbers of examples.
        depths: The depths.
        seeds: How many rotations.
        steps: Steps of Adam, of 1024 sequences each.
        sequences: How many fresh sequences, the same for a model and GD++.

    Returns:
        Rows with the length, the depth, the seed, and whether the model is kept or its start is; the losses of this
        model and of whitened GD++, with their errors; the distance of every A; how far whitening is from the isotropic
        model; and GD++'s own numbers, n times what each layer does.
    """
    rows = []
    for n in work.each(lengths):
        problems = [_stretched(seed, n) for seed in range(seeds)]
        for depth, isotropic in enumerate(_best(n, depths), 1):
            for seed, problem in enumerate(problems if depth in depths else []):
                Lambda = _covariance(seed)
                start = gradient_steps.whitened(isotropic, Lambda)
                model = work.train(
                    problem,
                    "preconditioned",
                    depth,
                    seed=seed,
                    protocol=_adam(steps, "linear"),
                    init=start,
                    sequences=100,
                ).model
                before = _compared(model, start, problem, sequences // 2, seed=2)
                kept = bool(before["ratio"] + CHANCE * before["ratio error"] <= 1 + ABOVE / 2)
                model = model if kept else start
                row: dict[str, Any] = {"n": n, "depth": depth, "seed": seed, "kept": kept}
                row["distances"] = gradient_steps.distances(model, Lambda)[:, 0]
                row["mismatch"] = _mismatch(isotropic, start, _problem_of(seed, n), Lambda)
                row["point"] = n * isotropic.kernel[0][:, :, 0].ravel()
                rows.append(row | _compared(model, start, problem, sequences))
    return {"sequences": sequences, "rows": rows}


def free(
    work: Work, *, depths: tuple[int, ...] = (1, 2, 3), seeds: int = 5, steps: int = 1000, effort: float = 0.05
) -> dict[str, Any]:
    """Train sparse models from random starts, at n = 20: a short search, and Adam from the model that it found.

    Args:
        work: The folder of runs and the progress.
        depths: The depths.
        seeds: How many rotations.
        steps: Steps of Adam, of 1024 sequences each.
        effort: As for `training.Search`.

    Returns:
        By depth: for every seed the distances of all A, and the loss over that of GD++.
    """
    best, by_depth, how = _best(20, depths), {}, _adam(steps, "cosine")
    for depth in work.each(depths):
        rows = []
        for seed in range(seeds):
            plain, problem, Lambda = _problem_of(seed, 20), _stretched(seed, 20), _covariance(seed)
            settings: dict[str, Any] = {"seed": seed, "sequences": 100}
            start = work.train(plain, "preconditioned", depth, protocol=Search(effort=effort), **settings).model
            model = work.train(problem, "preconditioned", depth, protocol=how, init=start, **settings).model
            losses = _compared(model, gradient_steps.whitened(best[depth - 1], Lambda), problem, 20_000)
            rows.append({"distances": gradient_steps.distances(model, Lambda)[:, 0], "ratio": losses["ratio"]})
        by_depth[str(depth)] = rows
    return by_depth


def baselines(work: Work, *, lengths: tuple[int, ...] = LENGTHS, sequences: int = 20_000) -> dict[str, Any]:
    """Measure gradient descent with the best constant rate of every number of steps.

    Args:
        work: The progress.
        lengths: The numbers of examples.
        sequences: How many fresh sequences.

    Returns:
        By length: losses after 1 to 4 steps.
    """
    by_length: dict[str, Any] = {}
    for n in work.each(lengths):
        draw = _stretched(0, n).moments(sequences, seed=1, step=EVALUATION)
        S, a, losses = draw.moments.S, draw.moments.b, []
        for rate in np.geomspace(0.005, 1.0, 40):
            w = np.zeros_like(a)
            with np.errstate(over="ignore", invalid="ignore"):
                for _ in DEPTHS:
                    w = w + rate * (a - np.einsum("bij,bj->bi", S, w))
                    losses.append(draw.losses(w, draw.task).mean())
        by_length[str(n)] = np.nanmin(np.reshape(losses, (-1, len(DEPTHS))), 0)
    return by_length


def _preconditioned(context: int, steps: int) -> float:
    """Return the exact loss of steps preconditioned by Lambda^-1, with the best constant rate: by whitening, plain."""
    problem = Problem(DIM, context, 0)
    return gradient_steps.expected_loss(problem, steps, gradient_steps.best_rate(problem, steps, RARE), RARE)


def _exact(context: int, point: Any) -> float:
    """Return the exact loss of an isotropic GD++ model."""
    return ExcessLoss(Problem(DIM, context, 0))(np.ravel(point))[0] + max(DIM - context, 0) / 2


def _column(results: Results, name: str) -> Array:
    return np.array([row[name] for row in results["trained"]["rows"]])


def not_above(results: Results) -> Check:
    """Decide whether trained models are at least as good as whitened GD++, and where they are better. See `Paper`.

    By whitening the problem is the isotropic one: trained losses are not above those of isotropic GD++.
    """
    ratio, error = _column(results, "ratio"), CHANCE * _column(results, "ratio error")
    n, depth, top = _column(results, "n"), _column(results, "depth"), int(np.argmax(ratio + error))
    far = [max(row["distances"]) for row in results["trained"]["rows"]]
    kept, by = _column(results, "kept").astype(bool), sorted(set(depth))
    spans = (f"{k} {ratio[depth == k].min():.4f} to {ratio[depth == k].max():.4f}" for k in by)
    undone = ", ".join(f"{sum(~kept[depth == k])} with {k}" for k in by)
    return Check(
        f"trained over GD++ on the same sequences, {len(ratio)} models, by layers: {', '.join(spans)}; at most "
        f"{ratio[top]:.4f} + {error[top]:.4f} ({depth[top]} layers, {n[top]} examples); clearly below 1: "
        f"{sum(ratio < 1 - error)}; A off by at most {max(far):.3f}; trainings that are not kept: {undone} layers",
        "at most 1",
        f"{ABOVE:.0%}, which includes {CHANCE} standard errors of the ratio",
        "The bar of 1 % was set before measuring; both losses are means over the same sequences.",
        f"rejected where the ratio and {CHANCE} of its standard errors are together above {1 + ABOVE}, and where a "
        f"training with at most {ALONE} layers is not kept",
        tuple(((ratio + error <= 1 + ABOVE) & (kept | (depth > ALONE))).tolist()),
        brief=f"trained / GD++: {ratio.min():.3f} to {ratio.max():.3f} over {len(ratio)} models",
    )


def whitening(results: Results) -> Check:
    """Decide whether whitened GD++ is isotropic GD++ in other coordinates, and has its exact losses. See `Paper`.

    A GD++ model of the isotropic problem gives the same estimates and has the same loss here, with A = q Lambda^-1 and
    B = b I.
    """
    rows = [row for row in results["trained"]["rows"] if row["seed"] == 0]
    return agree(
        [_column(results, "mismatch").max(), *(row["GD++"] for row in rows)],
        [0.0, *(_exact(row["n"], row["point"]) for row in rows)],
        [1e-6, *(CHANCE * row["error"] for row in rows)],
        "Rounding; and chance.",
        unit=f"1e-6 of the estimates; for losses {CHANCE} standard errors",
        names=["estimates off by", *(f"n = {row['n']}, layers {row['depth']}:" for row in rows)],
    )


def beats_descent(results: Results) -> Check:
    """Decide whether models beat gradient descent of both kinds at equal depth. See `Paper`.

    Models of L layers are better than L steps of gradient descent, and not worse than L preconditioned steps.
    """
    rows, loss = results["trained"]["rows"], _column(results, "model")
    plain = np.array([results["baselines"][str(row["n"])][row["depth"] - 1] for row in rows])
    steps = np.array([_preconditioned(row["n"], row["depth"]) for row in rows])
    return Check(
        f"largest ratio to gradient descent {(loss / plain).max():.3f}, to preconditioned gradient descent "
        f"{(loss / steps).max():.3f}",
        "below 1; at most 1, with equality for one layer",
        f"{ABOVE:.0%}, and {CHANCE} standard errors",
        "Losses of models are measured, losses of preconditioned steps are exact.",
        "rejected where a model has more loss than gradient descent, or more than preconditioned gradient descent "
        "beyond the tolerance",
        (*(loss < plain), *(loss <= (1 + ABOVE) * steps + CHANCE * _column(results, "error"))),
    )


def preconditioner(results: Results) -> Check:
    """Decide whether A is a multiple of Lambda^-1 in models trained from random starts. See `Paper`.

    From random starts, every A becomes a multiple of Lambda^-1.
    """
    words, holds = [], []
    for depth, rows in results["free"].items():
        far = np.array([row["distances"] for row in rows])
        layers = "; ".join(f"layer {k} {listed(column, '.3f')}" for k, column in enumerate(far.T, 1))
        words.append(f"{depth} layers: {layers} (loss / GD++ {listed([r['ratio'] for r in rows], '.3f')})")
        holds += (far < np.sqrt(ABOVE)).ravel().tolist()
    return Check(
        f"distance of every A, for {len(next(iter(results['free'].values())))} rotations: {'. '.join(words)}",
        "0",
        f"{np.sqrt(ABOVE):g}",
        f"The loss is quadratic around its optimum: {ABOVE:.0%} more loss than GD++'s, which is allowed above, leaves "
        "matrices off by about the root of that. Random matrices are off by 0.98.",
        "rejected where an A is farther from the nearest multiple of Lambda^-1",
        tuple(holds),
    )


def off_by_one(results: Results) -> Check:
    """Decide what the authors' baselines lose by seeing one example less. See `Paper`.

    The authors' code gives its baselines n - 1 of the n examples, which raises their losses.
    """
    loss = [_preconditioned(OTHERS, steps) / _preconditioned(20, steps) for steps in DEPTHS]
    return Check(
        f"preconditioned gradient descent, 19 examples over 20, 1 to 4 steps: {listed(loss, '.3f')}",
        "above 1 and growing with the steps",
        "none",
        "The losses are exact.",
        "rejected where a ratio is not above 1, or not above that of fewer steps",
        tuple(x > least for x, least in zip(loss, [1.0, *loss], strict=False)),
    )


def draw(results: Results) -> list[Panel]:
    """Draw losses against n for every depth, and what training gains over GD++. See `Paper`.

    Loss against the number of examples for 1 to 4 layers or steps, what training gains over GD++, and the largest
    distance of a matrix A to the multiples of Lambda^-1; means over rotations.
    """
    rows = results["trained"]["rows"]
    lengths, depths = sorted({row["n"] for row in rows}), sorted({row["depth"] for row in rows})

    def mean(depth: int, name: str) -> list[float]:
        cells = [[np.max(row[name]) for row in rows if (row["n"], row["depth"]) == (n, depth)] for n in lengths]
        return [float(np.mean(cell)) for cell in cells]

    shown = []
    for depth in depths:
        lines = [
            Line("gradient descent", lengths, [results["baselines"][str(n)][depth - 1] for n in lengths], 1),
            Line("preconditioned", lengths, [_preconditioned(n, depth) for n in lengths], 2),
            Line("isotropic GD++", lengths, mean(depth, "GD++"), None, True),
            Scatter("trained", lengths, mean(depth, "model")),
        ]
        shown.append(Panel(f"{depth} layer{'s' * (depth > 1)} or steps", "examples n", "loss", lines, False, True))
    both = {k: (np.divide(mean(k, "model"), mean(k, "GD++")), mean(k, "distances")) for k in depths}
    gains, away = ([Line(f"{k} layers", lengths, list(both[k][j]), i) for i, k in enumerate(depths)] for j in (0, 1))
    shown.append(Panel("what training gains", "examples n", "trained / GD++", gains))
    return [*shown, Panel("A and multiples of Lambda^-1", "examples n", "distance", away)]


PAPER = Paper(
    id="ahn2023",
    about=__doc__,
    problems={"problem": _problem_of(0, 20)},
    parts=(
        Part(trained, {"lengths": (3, 20), "depths": (1, 2), "seeds": 1, "steps": 300, "sequences": 20_000}),
        Part(free, {"depths": (1, 2), "seeds": 1, "steps": 500}),
        Part(baselines, {"lengths": (3, 20), "sequences": 10_000}),
    ),
    checks=(not_above, whitening, beats_descent, preconditioner, off_by_one),
    pictures={"losses": panels(draw)},
    version=6,
    errata=(
        Erratum(
            "the authors' notebooks variable_L_exp and variable_N_exp, functions do_gd and do_preconditioned_gd",
            "the baselines see the n examples of the context",
            "they see the first n - 1 of them, while the transformer sees all n: their losses are too high",
            "check `off_by_one`",
        ),
    ),
)
