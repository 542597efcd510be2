"""`python -m benchmarks.laws`: how near linear transformers come to the floor of sparse tasks and of token noise.

A table in Markdown of unadjusted losses over that of the best predictor, on the same fresh sequences: models of three
layers, which see the Gram matrix only (a search with a small part of the usual effort finds them); the best that can be
made of the Gram matrix; and classical predictors that see the tokens. d is 5 and n is 10, but for the last row, which
is the sparse setting of Garg et al. (2022): three weights of twenty, 40 examples. Each number is stored in
`benchmarks/laws.json` as soon as it is known, so that a run that was interrupted goes on; without that file, all of
them are measured, which takes about a quarter of an hour on one thread.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from ridgeformer.evaluation import compare
from ridgeformer.files import write_whole
from ridgeformer.predictors import huber, lasso, matching_pursuit
from ridgeformer.predictors.bayes import gram_bound
from ridgeformer.predictors.ridge import ConstRR
from ridgeformer.problems import BaseProblem, CustomProblem, Problem, Sequences
from ridgeformer.training import Search, train

LAWS: tuple[dict[str, Any], ...] = (
    {"noise": "uniform(0,1)", "tasks": "sparse(1)"},
    {"noise": "uniform(0,1)", "tasks": "sparse(p=0.2)"},
    {"noise": "tokens(uniform(0,3))"},
    {"noise": "student(3,1)"},
    {"dim": 20, "context": 40, "noise": 0.1, "tasks": "sparse(3)"},
)
FAMILIES = "diag", "full", "channels(1,3)"
COLUMNS = "floor", "Gram bound", *FAMILIES, "ConstRR", "lasso", "matching pursuit", "huber"
LAYERS, SEQUENCES = 3, 1000
EFFORT = 0.2  # of the search
STORE = Path(__file__).with_name("laws.json")


class Garg(CustomProblem):
    """The sequences of the last row without their oracle, an average over 1,140 subsets: training is faster without."""

    def __init__(self, dim: int = 20, context: int = 40) -> None:
        self.dim, self.context = dim, context

    def draw(self, rng: np.random.Generator, count: int) -> Sequences:
        x, queries = rng.standard_normal((count, self.context, self.dim)), rng.standard_normal((count, 1, self.dim))
        members = rng.random((count, self.dim)).argsort(1) < 3
        task = np.where(members, rng.standard_normal(members.shape), 0.0)
        y, answers = (np.einsum("bnd,bd->bn", part, task) for part in (x, queries))
        return Sequences(x, y + 0.1 * rng.standard_normal(y.shape), queries, answers, task)


def predictor(problem: Problem, name: str) -> Any:
    """Return the predictor of a column, trained or tuned for a problem."""
    size = 3 if problem.dim == 20 else 1  # what matching pursuit is told
    if name in FAMILIES:
        seen: BaseProblem = problem if problem.dim == 5 else Garg()
        if problem.noise.per_token:  # a law of one level for each sequence that has the same Gram matrices
            seen = problem.replace(noise=problem.noise.of_gram(problem.lengths.least))
        search = Search(effort=EFFORT)
        return train(seen, name, LAYERS, protocol=search, sequences=500, progress=False, threads=1).model
    if name == "floor":
        return problem.best_predictor()
    if name == "Gram bound":
        return gram_bound(problem) or problem.best_predictor()  # the same where moments tell all
    if name == "ConstRR":
        return ConstRR.tune(problem, sequences=10_000)
    return {"lasso": lasso(0.1 / size**2), "matching pursuit": matching_pursuit(size), "huber": huber(1.0)}[name]


def measure(problem: Problem, name: str) -> list[float]:
    """Measure the loss of a column, and its standard error."""
    losses = compare(problem, {name: predictor(problem, name)}, sequences=SEQUENCES, with_floor=False)
    return [float(losses[name].unadjusted), float(losses[name].unadjusted_error)]


def main(store: Path = STORE) -> None:
    """Measure what is not stored, and print the table row by row."""
    stored = json.loads(store.read_text()) if store.exists() else {}
    print(f"| problem | {' | '.join(COLUMNS)} |\n|{'---|' * (len(COLUMNS) + 1)}", flush=True)
    for law in LAWS:
        problem = Problem(**{"dim": 5, "context": 10, **law})
        row = stored.setdefault(problem.label, {})
        for name in COLUMNS:
            if name not in row:
                row[name] = measure(problem, name)
                write_whole(store, json.dumps(stored, indent=1).encode())
        least, error = row["floor"]
        ratios = " | ".join(f"{row[name][0] / least:.2f}" for name in COLUMNS[1:])
        print(f"| {problem.label} | {least:.3g} +- {error:.1g} | {ratios} |", flush=True)


if __name__ == "__main__":
    main()
