"""`python -m benchmarks.laws`: how near linear transformers come to the floor of sparse tasks and of token noise.

A table in Markdown of unadjusted losses over that of the best predictor, on fresh sequences with d = 5 and n = 10: what
models reach that see the Gram matrix only, the best that can be made of the Gram matrix, and what classical predictors
reach that see the tokens. Models have three layers and are trained by 3,000 steps of Adam; two minutes.
"""

from __future__ import annotations

from typing import Any

from ridgeformer.evaluation import compare
from ridgeformer.predictors import BayesRR, huber, lasso, matching_pursuit
from ridgeformer.predictors.ridge import ConstRR
from ridgeformer.problems import Problem
from ridgeformer.training import Adam, train

LAWS: tuple[dict[str, Any], ...] = (
    {"noise": "uniform(0,1)", "tasks": "sparse(1)"},
    {"noise": "uniform(0,1)", "tasks": "sparse(p=0.2)"},
    {"noise": "tokens(uniform(0,3))"},
    {"noise": "student(3,1)"},
)
FAMILIES = "diag", "full", "channels(1,3)"
COLUMNS = "floor", "Gram bound", *FAMILIES, "ConstRR", "lasso", "matching pursuit", "huber"
SEQUENCES, STEPS = 1000, 3000


def row(law: dict[str, Any]) -> str:
    """Return a row of the table."""
    problem = Problem(5, 10, **law)
    seen = problem.replace(noise=problem.noise.of_gram(10))  # what models see, which is faster to draw
    best = problem.best_predictor()
    gram = best if problem.has_known_laws else BayesRR(problem.noise, problem.prior)
    predictors: dict[str, Any] = {"floor": best, "Gram bound": gram, "ConstRR": ConstRR.tune(problem, sequences=10_000)}
    predictors |= {"lasso": lasso(0.1), "matching pursuit": matching_pursuit(1), "huber": huber(1.0)}
    for family in FAMILIES:
        made = train(seen, family, 3, protocol=Adam(steps=STEPS), sequences=500, progress=False, threads=1)
        predictors[family] = made.model
    losses = compare(problem, predictors, sequences=SEQUENCES, with_floor=False)
    least = losses["floor"].unadjusted
    cells = [f"{losses[name].unadjusted / least:.2f}" for name in COLUMNS[1:]]
    error = losses["floor"].unadjusted_error
    return f"| {problem.label} | {least:.3f} +- {error:.3f} | {' | '.join(cells)} |"


def main() -> None:
    """Print the table, row by row."""
    print(f"| problem | {' | '.join(COLUMNS)} |\n|{'---|' * (len(COLUMNS) + 1)}", flush=True)
    for law in LAWS:
        print(row(law), flush=True)


if __name__ == "__main__":
    main()
