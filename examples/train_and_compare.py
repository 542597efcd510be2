"""Train a linear transformer, then compare it with classical methods and with the best that any predictor can do.

Run it: python examples/train_and_compare.py
"""

from ridgeformer import AdaRR, ConstRR, Problem, compare, train

# A sequence has ten examples (x, y) with y = <w, x> + sigma * noise. The task w and the noise level sigma are drawn
# anew for every sequence, and nobody is told either of them. How well can y be predicted for a new x?
problem = Problem(dim=5, context=10, noise="uniform(0,2)")

# "diag" is a small family of models: every layer has just four numbers per head. Training needs no settings. It draws
# fresh sequences in every step and starts deeper models from shallower ones.
trained = train(problem, "diag", layers=3, seed=0)
print(trained)

# Two kinds of ridge regression to compare with. ConstRR uses one penalty for all sequences, the best one. AdaRR first
# estimates the noise level of the sequence at hand.
found = compare(problem, {"model": trained.model, "ConstRR": ConstRR.tune(problem), "AdaRR": AdaRR()}, sequences=50_000)

# The adjusted loss is how much is lost by not knowing sigma: half the squared error of a prediction, less that of ridge
# regression which is told sigma. The floor is the smallest adjusted loss that any predictor can have; it belongs to the
# Bayesian average over all noise levels that fit the context.
print(f"\n{'predictor':10} {'adjusted loss':>13} {'error':>8} {'loss / floor':>12}")
for name, result in found.items():
    print(f"{name:10} {result.loss:13.4f} {result.error:8.4f} {result.ratio:12.2f}")
print(f"{'floor':10} {found['model'].floor:13.4f}")

# All were measured on the same sequences, so a difference is known far better than each loss by itself.
difference, error = found.difference("ConstRR", "model")
print(f"\nThe model's loss is {difference:.4f} +- {error:.4f} below that of ConstRR.")
