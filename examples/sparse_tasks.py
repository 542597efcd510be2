"""Sparse tasks, as in Garg et al. (2022): three weights of twenty are not zero. How many examples does it take?

The best predictor knows that tasks are sparse; matching pursuit knows the number of weights, too, and the Lasso only
that there are few. Least squares, and whatever else sees all directions alike, needs twenty examples. Ten seconds.
"""

from ridgeformer import LeastSquares, Problem, compare
from ridgeformer.predictors import lasso, matching_pursuit

problem = Problem(dim=20, context=40, noise=0.1, tasks="sparse(3)")
predictors = {
    "floor": problem.best_predictor(),
    "lasso": lasso(0.01),
    "matching pursuit": matching_pursuit(3),
    "least squares": LeastSquares(),
}
losses = compare(problem, predictors, over={"context": [5, 10, 20, 40]}, sequences=100, with_floor=False)

print("examples          " + "   ".join(f"{n:6d}" for n in losses.axes["context"]))
for name, row in zip(losses.names, losses.unadjusted, strict=True):
    print(f"{name:18}" + "   ".join(f"{value:.4f}" for value in row))
