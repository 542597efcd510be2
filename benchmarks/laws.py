"""`python -m benchmarks.laws`: how near linear transformers come to the floor of sparse tasks and of token noise.

A table in Markdown of unadjusted losses over that of the best predictor, on fresh sequences: what models of three
layers reach, which see the Gram matrix only (a search with a fifth of the usual effort finds them); the best that can
be made of the Gram matrix; and what classical predictors reach that see the tokens. d is 5 and n is 10, but for the
last row, which is the sparse setting of Garg et al. (2022): three weights of twenty, 40 examples.
Usage: python -m benchmarks.laws [ROW ...].
"""

from __future__ import annotations

import sys
from typing import Any

from ridgeformer.evaluation import compare
from ridgeformer.predictors import BayesRR, huber, lasso, matching_pursuit
from ridgeformer.predictors.ridge import ConstRR
from ridgeformer.problems import Problem
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
LAYERS, SEQUENCES, SEARCH = 3, 1000, Search(effort=0.2)


def row(law: dict[str, Any]) -> str:
    """Return a row of the table."""
    problem = Problem(**{"dim": 5, "context": 10, **law})
    seen = problem  # by models: a law of Gram matrices that is faster to draw
    if problem.noise.per_token:
        seen = problem.replace(noise=problem.noise.of_gram(problem.lengths.least))
    size = 3 if problem.dim == 20 else 1  # what matching pursuit is told
    best = problem.best_predictor()
    gram = best if problem.has_known_laws else BayesRR(problem.noise, problem.prior)
    predictors: dict[str, Any] = {"floor": best, "Gram bound": gram, "ConstRR": ConstRR.tune(problem, sequences=10_000)}
    predictors |= {"lasso": lasso(0.1 / size**2), "matching pursuit": matching_pursuit(size), "huber": huber(1.0)}
    for family in FAMILIES:
        predictors[family] = train(
            seen, family, LAYERS, protocol=SEARCH, sequences=500, progress=False, threads=1
        ).model
    losses = compare(problem, predictors, sequences=SEQUENCES, with_floor=False)
    least = losses["floor"].unadjusted
    cells = [f"{losses[name].unadjusted / least:.2f}" for name in COLUMNS[1:]]
    error = losses["floor"].unadjusted_error
    return f"| {problem.label} | {least:.3f} +- {error:.3f} | {' | '.join(cells)} |"


def main() -> None:
    """Print the table, row by row."""
    print(f"| problem | {' | '.join(COLUMNS)} |\n|{'---|' * (len(COLUMNS) + 1)}", flush=True)
    for k in map(int, sys.argv[1:] or range(len(LAWS))):
        print(row(LAWS[k]), flush=True)


if __name__ == "__main__":
    main()
