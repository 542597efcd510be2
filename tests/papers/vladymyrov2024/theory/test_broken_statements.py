"""Every claim of `ridgeformer papers verify` goes red when what it states is broken on purpose; none is left out."""

import pkgutil
import re
from decimal import Decimal
from functools import partial

import numpy as np
import pytest

from ridgeformer import Diag, Problem
from ridgeformer.papers.vladymyrov2024.theory import fixed_noise, heads, momentum, step_size, verification as theory
from ridgeformer.papers.vladymyrov2024.theory.gdpp_solver import Plan
from ridgeformer.papers.vladymyrov2024.theory.verification import random_model


def gains(problem, seed):
    """In place of training, where the claim about it is not the one to be broken."""
    return {"one head": 1.0, "two heads": 0.9, "standard error": 0.01}


def half_the_variance(problem):
    """Ridge regression with half the variance, which is not the best."""
    eigenvalues, weights = fixed_noise._nodes(problem)
    level = problem.noise.second_moment
    e = level / 2 / (eigenvalues + level / 2)
    return 0.5 * float(weights @ (e**2 + level * (1 - e) ** 2 / eigenvalues))


def without_flows_into_y(family):
    """The last layer without its flows into y, in place of those into x."""
    omega = family.omega.copy()
    omega[-1, 1] = 0
    return Diag(omega=omega)


def with_flow_from_x(xy, yx, dim):
    """A first layer with omega_xx as well: it moves the query."""
    return step_size.LinearTransformer(Diag(omega=[[[1e-3, xy], [0.0, 0.0]], [[0.0, 0.0], [yx, 0.0]]]), dim)


def twice_the_last_layer(make):
    """Twice the yy that the formula has; at sigma = 0 there is nothing to rescale."""

    def doubled(*levels, solve):
        model = make(*levels, solve=solve)
        return type(model)(Diag(omega=model.family.omega * [[[1.0]], [[2.0]]]), model.dim)

    return doubled


def deviation_for_variance(true):
    """Noise of level sqrt(sigma), and contexts of 20."""

    def other(problem, sequences, seed):
        level = problem.noise.second_moment**0.25
        return true(Problem(10, 20, f"fixed({level:g})"), sequences=sequences, seed=seed)

    return other


def twice(terms):
    """g without the half."""
    return lambda *of: (form := terms(*of))._replace(g=2 * form.g)


def squared(true):
    """Labels that contain the quadratic."""
    return lambda model, x, y: np.stack([y, y + 0.1 * x[:, :, 0] ** 2])


def with_one_head(train):
    """A second head that is not free: both models are trained with one."""
    return lambda problem, family, layers, _, **how: train(problem, family, layers, 1, **how)


def larger(merge):
    """The larger of the two merged heads alone."""
    return lambda family: Diag(*(merge(family).arrays[name][:, :1] for name in "pq"))


def mean_squared(noise):
    """E[sigma]^2 in place of E[sigma^2]."""
    return float(np.dot(*noise.quadrature())) ** 2


TWO = random_model("diag", dim=10, context=20, layers=3, heads=2, seed=1)
RECURSION = ("tokens of 7 layers, full", "tokens of 7 layers, diag", "tokens of 7 trained", "tokens of l", "(M")
LAWS = ("E[R^2]", "the same with noise")
HALF, NONE = Plan(lambda interval: 1 / (2 * interval.largest), every=False), Plan(lambda _: Decimal(0), every=False)
STEPS = ("kappa", "tokens", "layers")
# What is broken (of the statements, or elsewhere, with the statement before the colon), how, and how the claims begin
# that this must turn red. All other claims of the statement must stand.
BREAKS = [
    ("linear_model.update", lambda true: partial(true, sign=1.0), *RECURSION),  # + b w' in M
    ("linear_model.reconstruct", lambda true: lambda *of: np.roll(true(*of), 1, axis=0), "tokens"),  # a layer late
    ("quadratic.labels", squared, "no model's", "squared cosine of the models"),
    ("quadratic.expected_square", lambda true: lambda x, *, noisy: true(x, noisy=not noisy), *LAWS),
    ("quadratic.largest_square", lambda true: lambda *of: np.sqrt(true(*of)), *LAWS, "R^2: falls", "R^2: grows", "R >"),
    ("quadratic.context_for", lambda true: lambda dim: true(dim) // 2, "R > 0.1"),
    ("momentum.factor", lambda true: momentum.printed_factor, "u and w"),
    ("momentum.terms", twice, "g is"),
    ("momentum.random_model", lambda true: lambda family, **shape: true("diag", **shape), "GD++ has"),  # y flows into x
    ("heads.random_head", lambda true: lambda seed: TWO.family, "one head: xx"),
    ("heads.merge", larger, "five heads"),
    ("heads.one_head_last", lambda true: without_flows_into_y, "the last layer"),
    ("heads: ridgeformer.zoo.Zoo.model", lambda true: lambda *cell: TWO, "one head, trained"),
    ("heads: ridgeformer.training.train", with_one_head, "3 layers on"),
    ("second_order.STEP", lambda true: 1.001, "one step"),
    ("second_order.PLAN", lambda true: HALF, *STEPS),  # no eigenvalue comes to rest, kappa - 1 is not squared
    ("second_order.PLAN", lambda true: NONE, *STEPS),  # gradient descent alone
    ("rescaling.solve", lambda true: lambda *levels: (-true(*levels)[0], true(*levels)[1]), "levels"),
    ("rescaling.rescaling_model", twice_the_last_layer, "w_2", "levels 0.5", "levels 0 and 1, at 1", "levels 1"),
    ("step_size.step", lambda true: step_size.printed_step, "w ="),
    ("step_size.two_layers", lambda true: with_flow_from_x, "w =", "the query", "the error of the paper's"),
    ("step_size.printed_step", lambda true: step_size.step, "the error of the paper's"),
    ("step_size.dropped_over_kept", lambda true: lambda d, n, s: n * d / (n - d) / s**2, "dropped part / kept part a"),
    ("step_size.measured_dropped_over_kept", deviation_for_variance, "dropped part", "its excess"),
    ("fixed_noise.variance", lambda true: mean_squared, "average", "risk", "no GD++"),
    ("fixed_noise: ridgeformer.exact.const_loss", lambda true: lambda p: 1.05 * true(p), "adjusted loss"),
    ("fixed_noise.ridge_risk", lambda true: half_the_variance, "no GD++"),
]


def statement_of(target):
    return pkgutil.resolve_name(f"{theory.__package__}.{re.split('[.:]', target)[0]}")


@pytest.mark.parametrize(("target", "wrong", "begin"), [(target, wrong, begin) for target, wrong, *begin in BREAKS])
@pytest.mark.slow
def test_a_broken_statement_is_seen(target, wrong, begin, monkeypatch):
    if "train" not in target:
        monkeypatch.setattr(heads, "second_head", gains)
    path = target.partition(": ")[2] or f"{theory.__package__}.{target}"
    monkeypatch.setattr(path, wrong(pkgutil.resolve_name(path)))
    for claim in statement_of(target).check():
        assert claim.passed != claim.what.startswith(tuple(begin)), claim


@pytest.mark.parametrize("name", theory.STATEMENTS)
def test_there_is_a_break_for_every_claim(name, monkeypatch):
    monkeypatch.setattr(heads, "second_head", gains)
    statement = statement_of(name)
    begin = tuple(text for target, _, *texts in BREAKS if statement_of(target) is statement for text in texts)
    for claim in statement.check():
        assert claim.passed
        assert claim.what.startswith(begin), claim
