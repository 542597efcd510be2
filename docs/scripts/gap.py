"""Why Full is better than Diag on categorical(1,3): the measurements of docs/explanations/two-models.md.

Usage::

    python docs/scripts/gap.py saddle RUN ...  is the optimum of Diag also an optimum of Full?
    python docs/scripts/gap.py projected RUN ...  train Diag, starting from the diagonal part of a Full model
    python docs/scripts/gap.py directions RUN ...  directions of x that a Full model treats differently from the others
    python docs/scripts/gap.py registers --layers 4  losses if none, one, two ... coordinates may be treated differently
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from ridgeformer import Diag, Full, LinearTransformer, Problem, Training, evaluate, train
from ridgeformer.bfgs import BfgsState, descend
from ridgeformer.engine import Key
from ridgeformer.explanation import diagonal_part
from ridgeformer.models import Registers
from ridgeformer.training import Search
from ridgeformer.training.job import Units, Vector
from ridgeformer.training.search.starts import SampleAverage


def saddle(folder: Path, sequences: int = 1 << 15, batches: int = 16) -> None:
    """The least curvatures of Full's loss at a Diag model, in the three kinds of directions that Diag lacks.

    Diag treats all coordinates alike, so Full's gradient there has no part that Diag lacks, and its curvature splits by
    how a direction turns with x: as a vector (the blocks xy and yx), as a symmetric matrix without trace, or as an
    antisymmetric one. The direction of least curvature is found on some sequences, and measured on others.
    """
    made = Training.load(folder)
    P, Q = made.model.P.astype(float), made.model.Q.astype(float)
    layers, heads, d = *P.shape[:2], made.model.dim
    scale = np.sqrt(np.linalg.norm(P, axis=(2, 3)) / np.linalg.norm(Q, axis=(2, 3)))[..., None, None]
    P, Q = P / scale, Q * scale  # the same model, with P and Q of one size

    def gradient(batch: int, change: np.ndarray) -> np.ndarray:
        model = LinearTransformer(Full(P + change[0], Q + change[1]))
        found = model.step(made.spec.problem, sequences, seed=batch, stream=9, ceiling=5.0 * d)
        return np.stack(found.gradient)

    def bend(batch: int, change: np.ndarray) -> np.ndarray:
        return (gradient(batch, 1e-4 * change) - gradient(batch, -1e-4 * change)) / 2e-4

    def unit(place: tuple[int, int, int], entries: dict[tuple[int, int], float]) -> np.ndarray:
        which, layer, head = place
        change = np.zeros((2, *P.shape))
        for (i, j), value in entries.items():
            change[which, layer, head, i, j] = value
        return change

    half = np.sqrt(0.5)
    kinds = {
        "vector": lambda i: [{(i, d): 1.0}, {(d, i): 1.0}],
        "symmetric": lambda i: [{(i, (i + 1) % d): half, ((i + 1) % d, i): half}],
        "antisymmetric": lambda i: [{(i, (i + 1) % d): half, ((i + 1) % d, i): -half}],
    }
    print(f"{made.spec.describe()}: loss {made.loss:.4f}")
    places = [(which, layer, head) for layer in range(layers) for head in range(heads) for which in (0, 1)]
    for kind, entries in kinds.items():
        basis = [np.stack([unit(place, e) for place in places for e in entries(i)]) for i in range(d)]
        curvature = np.zeros(2 * [len(basis[0])])
        for i in range(4):
            bent = np.stack([bend(batches + i, v) for v in basis[i]])
            curvature += np.einsum("iplhab,jplhab->ij", bent, basis[i]) / 4
        values, vectors = np.linalg.eigh((curvature + curvature.T) / 2)
        found = []
        for batch in range(batches):  # one coordinate each, so that no one context decides
            v = np.tensordot(vectors[:, 0], basis[batch % d], 1)
            found.append(float((bend(batch, v) * v).sum()))
        spread = np.std(found, ddof=1) / np.sqrt(batches)
        print(
            f"  least curvature, {kind:13} {np.mean(found):8.4f} +- {spread:.4f} (where chosen {values[0]:.4f})",
            flush=True,
        )


def projected(folder: Path) -> None:
    """Diag's descents from the diagonal part of a Full model, with one head and with two."""
    made = Training.load(folder)
    problem = made.spec.problem
    print(f"{made.spec.describe()}: loss {made.loss:.4f}")
    start = diagonal_part(made.model)
    u, s, v = np.linalg.svd(start.family.omega)
    one = Diag((u[:, :, :1] * np.sqrt(s[:, None, :1])).swapaxes(1, 2), np.sqrt(s[:, :1, None]) * v[:, :1])
    for name, model in (("two heads", start), ("one head", LinearTransformer(one, problem.dim))):
        vector = Vector(model, Units(problem, model.layout))
        point = vector.pack(model)
        for sequences, iterations in ((2048, 300), (32_768, 100)):
            average = SampleAverage(problem, sequences, Key(0, 1, sequences), np.float64, None, None)

            def objective(at, average=average, vector=vector):
                value, slope = average(vector.model(at))
                return value, vector.slope(slope)

            point = descend(objective, BfgsState.at(point), iterations, 1e-5).point
        before, after = evaluate(problem, model), evaluate(problem, vector.model(point))
        print(f"  diagonal part, {name}: {before.loss:.4g}, after descent {after.loss:.4g} +- {after.error:.1g}")


def directions(folder: Path) -> None:
    """Directions of x that a Full model treats as no others: shares of what is not isotropic in P and Q."""
    made = Training.load(folder)
    d = made.model.dim
    special = np.zeros((d, d))
    for matrix in (*made.model.P.reshape(-1, d + 1, d + 1), *made.model.Q.reshape(-1, d + 1, d + 1)):
        inner = matrix[:d, :d].astype(float)
        inner = inner - np.median(np.linalg.eigvalsh((inner + inner.T) / 2)) * np.eye(d)
        parts = (inner, inner.T, matrix[:d, d:], matrix[d:, :d].T)
        special += sum(part @ part.T for part in parts) / (matrix.astype(float) ** 2).sum()
    shares = np.linalg.eigvalsh(special)[::-1] / np.trace(special)
    print(f"{made.spec.describe()}: loss {made.loss:.4f}")
    print("  " + " ".join(f"{share:.3f}" for share in shares))


def train_registers(layers: int, least: int, most: int, effort: float, out: Path | None) -> None:
    """Losses by the number of coordinates set aside."""
    problem = Problem(10, 20, "categorical(1,3)")
    for count in range(least, most + 1):
        made = train(problem, Registers(count), layers, protocol=Search(effort=effort), out=out)
        numbers = f"loss {made.loss:.4f} +- {made.result.error:.4f}, {made.result.exploded} exploded"
        print(f"{layers} layers, {count} coordinates set aside: {numbers}, {made.total_seconds:.0f} s", flush=True)


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["saddle", "projected", "directions", "registers"])
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--least", type=int, default=0)
    parser.add_argument("--most", type=int, default=2)
    parser.add_argument("--effort", type=float, default=1.0)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.what == "registers":
        train_registers(given.layers, given.least, given.most, given.effort, given.out)
    for folder in given.runs:
        {"saddle": saddle, "projected": projected, "directions": directions}[given.what](folder)


if __name__ == "__main__":
    main()
