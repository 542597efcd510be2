"""A typical experiment for a paper, from the problem to figures (PDF) and tables (CSV). Argument: effort; default 1."""

import sys

from ridgeformer import ConstRR, Problem, compare, train_many
from ridgeformer.training import Search

FAMILIES = ["gdpp", "diag", "full"]
search = Search(effort=float(sys.argv[1]) if len(sys.argv) > 1 else 1.0)
problem = Problem(4, "5..60", "lognorm(0.5)", features="powerlaw(1)", tasks="lowrank(2)")
runs = train_many(problem, FAMILIES, [1, 2], seeds=range(3), protocol=search, sequences=50_000, progress=False)
print(runs)
runs.plot("depth.pdf", x="layers")
runs.to_pandas().to_csv("depth.csv", index=False)

deep = [run for run in runs if run.spec.layers == 2]
best = {name: min((r for r in deep if r.spec.family.name == name), key=lambda r: r.loss).model for name in FAMILIES}
losses = compare(problem, {**best, "ConstRR": ConstRR.tune(problem)}, over={"context": [5, 10, 20, 40, 60]})
print(losses)
losses.plot("context.pdf")
losses.to_pandas().to_csv("context.csv", index=False)
