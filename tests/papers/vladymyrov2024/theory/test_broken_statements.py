"""Every claim of `ridgeformer papers verify` goes red when what it states is broken on purpose; none is left out."""

from decimal import Decimal

import numpy as np
import pytest

from ridgeformer import Diag, Problem, exact, training, zoo
from ridgeformer.papers.vladymyrov2024.theory import (
    STATEMENTS,
    fixed_noise,
    heads,
    linear_model,
    momentum,
    quadratic,
    random_model,
    rescaling,
    second_order,
    step_size,
)
from ridgeformer.papers.vladymyrov2024.theory.gdpp_solver import Plan


def gains(problem, seed):
    """In place of training, where the claim about it is not the one to be broken."""
    return {"one head": 1.0, "two heads": 0.9, "standard error": 0.01}


# ---- Breaks: each gives a statement's claims with one thing wrong -----------------------------------------


def printed_sign(patch):
    """+ b w' in the recursion of M."""
    return linear_model.check(update=linear_model.printed_update)


def printed_index(patch):
    """Tokens of layer l + 1 beside the model of layer l."""
    return linear_model.check(late=1)


def squared_labels(patch):
    """Labels that contain the quadratic."""
    return quadratic.check(labels=lambda model, x, y: np.stack([y, y + 0.1 * x[:, :, 0] ** 2]))


def one_column_more_or_less(patch):
    """d for d - 1 without noise, d - 1 for d with it."""
    law = quadratic.expected_square
    patch.setattr(quadratic, "expected_square", lambda x, *, noisy: law(x, noisy=not noisy))
    return quadratic.check()


def cosine_for_its_square(patch):
    """R in place of R^2."""
    square = quadratic.largest_square
    patch.setattr(quadratic, "largest_square", lambda x, y=None: np.sqrt(square(x, y)))
    return quadratic.check()


def half_the_context(patch):
    """0.1 claimed for contexts of half the length."""
    length = quadratic.context_for
    patch.setattr(quadratic, "context_for", lambda dim: length(dim) // 2)
    return quadratic.check()


def printed_factor(patch):
    """F = M + a u w*'."""
    return momentum.check(factor=momentum.printed_factor)


def whole_gradient(patch):
    """g without the half."""
    terms = momentum.terms

    def doubled(model, moments, factor=momentum.factor):
        found = terms(model, moments, factor)
        return found._replace(g=2 * found.g)

    patch.setattr(momentum, "terms", doubled)
    return momentum.check()


def flow_out_of_y(patch):
    """Diag in place of GD++: y flows into x, and u is not 0."""
    make = momentum.random_model
    patch.setattr(momentum, "random_model", lambda family, **shape: make("diag", **shape))
    return momentum.check()


def unconstrained_head(patch):
    """Two heads where one is claimed."""

    def two(seed):
        return random_model("diag", dim=4, context=9, layers=7, heads=2, seed=seed).family

    return heads.check(one_head=two, second_head=gains)


def merged_into_one(patch):
    """The larger of the two merged heads alone."""

    def larger(family):
        whole = heads.merge(family)
        return Diag(whole.arrays["p"][:, :1], whole.arrays["q"][:, :1])

    return heads.check(merge=larger, second_head=gains)


def last_layer_without_y(patch):
    """The last layer without its flows into y, in place of those into x."""

    def wrong(family):
        omega = family.omega.copy()
        omega[-1, 1] = 0
        return Diag(omega=omega)

    patch.setattr(heads, "one_head_last", wrong)
    return heads.check(second_head=gains)


def trained_with_two(patch):
    """Models of two heads in the zoo."""
    patch.setattr(zoo.Zoo, "model", lambda *cell: random_model("diag", dim=10, context=20, layers=3, heads=2, seed=1))
    return heads.check(second_head=gains)


def second_head_tied(patch):
    """A second head that is not free: both models are trained with one."""
    train = training.train
    patch.setattr(training, "train", lambda problem, family, layers, _, **how: train(problem, family, layers, 1, **how))
    return heads.check()


def wrong_step(patch):
    """The last gradient step a thousandth too long."""
    return second_order.check(step=1.001)


def other_constant(patch):
    """gamma = 1 / (2 largest): no eigenvalue comes to rest, kappa - 1 is not squared."""
    return second_order.check(plan=Plan(lambda interval: 1 / (2 * interval.largest), every=False))


def no_preconditioning(patch):
    """gamma = 0: gradient descent alone."""
    return second_order.check(plan=Plan(lambda interval: Decimal(0), every=False))


def printed_condition(patch):
    """(1 + sigma^2 n yy) yx = 1 / (1 + sigma^2), without the minus."""
    return rescaling.check(solve=rescaling.printed_solve)


def second_layer_doubled(patch):
    """Twice the yy that the formula has; at sigma = 0 there is nothing to rescale."""
    make = rescaling.rescaling_model

    def doubled(*levels, solve):
        model = make(*levels, solve=solve)
        return type(model)(Diag(omega=model.family.omega * [[[1.0]], [[2.0]]]), model.dim)

    patch.setattr(rescaling, "rescaling_model", doubled)
    return rescaling.check()


def printed_step(patch):
    """Residuals in place of labels."""
    return step_size.check(step=step_size.printed_step)


def flow_from_x(patch):
    """A first layer with omega_xx as well: it moves the query."""

    def moving(xy, yx, dim):
        return step_size.LinearTransformer(Diag(omega=[[[1e-3, xy], [0.0, 0.0]], [[0.0, 0.0], [yx, 0.0]]]), dim)

    patch.setattr(step_size, "two_layers", moving)
    return step_size.check()


def exact_approximation(patch):
    """An approximation without an error of first order."""
    patch.setattr(step_size, "printed_step", step_size.step)
    return step_size.check()


def forgotten_term(patch):
    """Dropped over kept without what residuals do not see of the noise."""
    patch.setattr(step_size, "dropped_over_kept", lambda d, n, sigma: n * d / (n - d) / sigma**2)
    return step_size.check()


def standard_deviation_for_variance(patch):
    """Noise of level sqrt(sigma), and contexts of 20."""
    true = step_size.measured_dropped_over_kept

    def other(problem, sequences, seed):
        level = problem.noise.second_moment**0.25
        return true(Problem(10, 20, f"fixed({level:g})"), sequences=sequences, seed=seed)

    patch.setattr(step_size, "measured_dropped_over_kept", other)
    return step_size.check()


def squared_mean(patch):
    """E[sigma]^2 in place of E[sigma^2]."""
    return fixed_noise.check(variance=lambda noise: float(np.dot(*noise.quadrature())) ** 2)


def constant_off(patch):
    """ConstRR's loss one part in twenty too large."""
    loss = exact.const_loss
    patch.setattr(exact, "const_loss", lambda problem: 1.05 * loss(problem))
    return fixed_noise.check()


def loose_bound(patch):
    """Ridge regression with half the variance, which is not the best."""
    values = fixed_noise._nodes

    def risk(problem):
        eigenvalues, weights = values(problem)
        level = problem.noise.second_moment
        e = level / 2 / (eigenvalues + level / 2)
        return 0.5 * float(weights @ (e**2 + level * (1 - e) ** 2 / eigenvalues))

    patch.setattr(fixed_noise, "ridge_risk", risk)
    return fixed_noise.check()


MODULES = (linear_model, quadratic, momentum, heads, second_order, rescaling, step_size, fixed_noise)

# The statement of each break, and how the claims begin that it must turn red; all others of the statement must stand.
BREAKS = {
    printed_sign: (
        linear_model,
        "tokens of 7 layers, full",
        "tokens of 7 layers, diag",
        "tokens of 7 trained",
        "tokens of l",
        "(M",
    ),
    printed_index: (linear_model, "tokens"),
    squared_labels: (quadratic, "no model's", "squared cosine of the models"),
    one_column_more_or_less: (quadratic, "E[R^2]", "the same with noise"),
    cosine_for_its_square: (
        quadratic,
        "E[R^2]",
        "the same with noise",
        "R^2: falls as n",
        "R^2: grows as (d",
        "R > 0.1",
    ),
    half_the_context: (quadratic, "R > 0.1"),
    printed_factor: (momentum, "u and w"),
    whole_gradient: (momentum, "g is"),
    flow_out_of_y: (momentum, "GD++ has"),
    unconstrained_head: (heads, "one head: xx"),
    merged_into_one: (heads, "five heads"),
    last_layer_without_y: (heads, "the last layer"),
    trained_with_two: (heads, "one head, trained"),
    second_head_tied: (heads, "3 layers on"),
    wrong_step: (second_order, "one step"),
    other_constant: (second_order, "kappa", "tokens", "layers"),
    no_preconditioning: (second_order, "kappa", "tokens", "layers"),
    printed_condition: (rescaling, "levels"),
    second_layer_doubled: (rescaling, "w_2", "levels 0.5", "levels 0 and 1, at 1", "levels 1"),
    printed_step: (step_size, "w ="),
    flow_from_x: (step_size, "w =", "the query", "the error of the paper's"),
    exact_approximation: (step_size, "the error of the paper's"),
    forgotten_term: (step_size, "dropped part / kept part agrees"),
    standard_deviation_for_variance: (step_size, "dropped part", "its excess"),
    squared_mean: (fixed_noise, "average", "risk"),
    constant_off: (fixed_noise, "adjusted loss"),
    loose_bound: (fixed_noise, "no GD++"),
}


@pytest.mark.parametrize("broken", BREAKS, ids=lambda broken: broken.__name__)
@pytest.mark.slow
def test_a_broken_statement_is_seen(broken, monkeypatch):
    begin = BREAKS[broken][1:]
    for claim in broken(monkeypatch):
        assert claim.passed != claim.what.startswith(tuple(begin)), claim


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_there_is_a_break_for_every_claim(module):
    claims = module.check(**({"second_head": gains} if module is heads else {}))
    begin = tuple(text for other, *texts in BREAKS.values() if other is module for text in texts)
    for claim in claims:
        assert claim.passed
        assert claim.what.startswith(begin), claim


def test_no_statement_is_left_out():
    assert {module.__name__.rpartition(".")[2] for module in MODULES} == set(STATEMENTS)
