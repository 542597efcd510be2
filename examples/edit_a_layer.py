"""Load a model that ships with the package, take parts of its layers away, and see what each part is good for.

Run it: python examples/edit_a_layer.py
"""

from ridgeformer import Problem, compare, load

# Trained on ten features, twenty examples and noise levels between 0 and 5: one of the models of the paper's Table 1.
problem = Problem(dim=10, context=20, noise="uniform(0,5)")
model = load("zoo:diag/3/uniform(0,5)")

# After every layer one can already read a prediction. The loss falls from layer to layer; 0 is the input, before the
# first layer.
print(compare(problem, model, over="layer", sequences=20_000))

# A layer of a Diag model is four numbers, omega = [[xx, xy], [yx, yy]]. The first letter says what the layer changes:
# the inputs x or the labels y of every token. The second says how tokens are compared: by their inputs or their labels.
# So yx is a step of gradient descent: labels change according to similar inputs.
# See docs/papers/vladymyrov2024/theory.md for the mathematics.
parts = ("xx", "xy", "yx", "yy")

# Models never change. `edit` makes a new one, in which one layer has other parameters. Its argument counts from 0;
# the names below count layers from 1, as all tables do.
edited = {"unchanged": model}
for layer in range(model.layers):
    edited[f"without layer {layer + 1}"] = model.without(layer)
    for name in parts:
        edited[f"layer {layer + 1} without {name}"] = model.edit(layer, **{f"omega_{name}": 0})

# All models are measured on the same sequences. A ratio far above 1 marks a part that the model cannot do without.
# The last layer's xx and xy change inputs that no further layer reads, so their ratio is exactly 1.
found = compare(problem, edited, sequences=20_000)
print(f"\n{'model':20} {'adjusted loss':>13} {'x unchanged':>12}")
for name, result in found.items():
    print(f"{name:20} {result.loss:13.4f} {result.loss / found['unchanged'].loss:12.2f}")
