"""Kinds of errors, and the texts that their messages are made of."""

from pathlib import Path

import numpy as np

from own_problems import HeavyTails
from ridgeformer import Layout, Moments, Problem, errors, explain, load
from ridgeformer.errors import refuse, short, shown
from ridgeformer.explanation import ablate, compare_algorithms, patch_noise
from ridgeformer.explanation.coefficients import symmetry
from ridgeformer.explanation.interventions import without_flow
from ridgeformer.export import export
from ridgeformer.models import Diag, GDpp, LinearTransformer
from ridgeformer.papers.vladymyrov2024.theory import fixed_noise, heads, momentum, quadratic, rescaling, step_size
from ridgeformer.papers.vladymyrov2024.theory.gdpp_solver import second_order_solver
from ridgeformer.papers.vladymyrov2024.theory.verification import verify
from ridgeformer.predictors import AdaRR, BayesRR, ConstRR, Fitted, Guarded, LeastSquares, OracleRR, TunedRR, Universal
from ridgeformer.predictors.discrete import SparseBayes, SparseOracle
from ridgeformer.predictors.gibbs import TokenBayes
from ridgeformer.predictors.iterative import IterativeRR
from ridgeformer.predictors.subsets import SubsetTree, every_subset
from ridgeformer.theory import one_layer
from ridgeformer.theory.gradient_steps import expected_loss
from ridgeformer.theory.pretraining import sample
from sklearn import linear_model
from support import draw, each, refusals, refused

PROBLEM = Problem(3, 8, "uniform(0,2)")
STUDENT = Problem(3, 6, "student(4,1)")
STEP = LinearTransformer(GDpp(omega=[[0, -0.03]]), 3)
WILD = LinearTransformer(Diag(omega=np.full((9, 2, 2), 9.0)), 3)
CONSTANT = LinearTransformer.random("full", dim=3, layers=1, layout=Layout(coordinate="constant"))
MEAN = LinearTransformer.random("diag", dim=3, layers=1, layout=Layout("mean"))


@each(
    (errors.InputError, ValueError),
    (errors.DamageError, ValueError),
    (errors.StorageError, OSError),
    (errors.MissingPackageError, ImportError),
)
def test_every_error_is_also_the_builtin_one_that_callers_expect(kind, builtin):
    assert issubclass(kind, builtin)
    assert issubclass(kind, errors.RidgeformerError)


def test_a_message_has_the_rule_the_value_and_the_remedy():
    message = refused(lambda: refuse("layers must be at least 1", 0, "Pass 1 or more."), "")
    assert message == "layers must be at least 1; got 0. Pass 1 or more."


def deep(levels):
    found = []
    for _ in range(levels):
        found = [found]
    return found


class Nameless:
    def __repr__(self):
        raise RuntimeError


@each("x\ny", "x" * 1000, 10**5000, deep(100_000), Nameless(), b"\xff" * 500, ids=range(6))
def test_any_value_is_shown_in_one_line_that_fits(value):
    text = shown(value, most=50)
    assert 0 < len(text) <= 50
    assert "\n" not in text


def test_what_is_shown():
    assert shown(Path("runs") / "one") == "runs/one"
    assert shown(ValueError("why")) == "why"
    assert shown("abc") == "'abc'"
    assert shown("0123456789" * 3, most=10) == "'012...89'"
    assert shown(10**5000) == "<int too large to show>"


def test_short_texts_are_one_printable_line():
    assert short("a\x1b[2J\nb") == r"a\x1b[2J b"
    assert short("x" * 10_000, 40) == "x" * 24 + "..." + "x" * 13


test_refusals = refusals(
    # predictors
    (lambda: AdaRR().weights(draw(4, 4).moments), "more examples than dimensions, n > d; got n = 4, d = 4. Use"),
    (lambda: TunedRR(1, 1).weights(draw(4, 3).moments), "n > d; got n = 3, d = 4. Use ConstRR or BayesRR here"),
    (lambda: IterativeRR(3).weights(draw(4, 3).moments), "n > d; got n = 3, d = 4. Use"),
    (lambda: IterativeRR(0), "steps must be at least 1; got 0. Pass 1 or more."),
    (lambda: ConstRR(-1), "variance must be at least 0; got -1.0. Pass"),
    (lambda: OracleRR().weights(Moments(np.eye(3)[None], 4)), "OracleRR needs to know sigma; got moments without"),
    (lambda: Moments(np.eye(3)[None], 4, np.array([-1.0])), "noise levels must not be negative; got -1.0"),
    (lambda: AdaRR().weights(5), "takes Moments; got an int"),
    (lambda: ConstRR.tune("x"), "the problem must be a Problem; got a str"),
    (lambda: SparseBayes("gaussian()", 1), "this predictor is for sparse tasks; got gaussian()"),
    (lambda: SparseOracle("sparse(1)").weights(Moments(np.eye(4)[None], 5)), "needs to know the noise levels"),
    (lambda: every_subset(30), "at most 4,194,304 subsets can be listed; got 1,073,741,824"),
    (lambda: SubsetTree([[True, False], [True, False]]), "each subset must be given once; got 1 repeated"),
    (lambda: SubsetTree([True]), "array of booleans"),
    (lambda: Fitted(linear_model.Lasso()), "a linear estimator without intercept; got one with an intercept"),
    (lambda: Fitted(3), "got an int"),
    (lambda: Guarded(BayesRR, BayesRR(1)), "the model must have a method weights"),
    (lambda: Guarded(BayesRR(1), "bayes"), "the fallback must have a method weights"),
    (lambda: Guarded(BayesRR(1), BayesRR(1), -1), "tolerance must be at least 0; got -1"),
    (lambda: Guarded(CONSTANT, BayesRR(1)), "must have weights alone"),
    (lambda: Universal(None, signal=1, own_scale=True), "either their own scale or a given signal; got signal=1"),
    (lambda: load("zoo:universal/99"), "models of the kind universal are named zoo:universal/3"),
    (lambda: Problem(3, 6, "student(2,1)"), "more than 2 degrees of freedom, and at most 1e6; got 2"),
    (lambda: Problem(3, 6, "tokens(student(3,1))"), "the levels of tokens have a law of levels; got student(3,1)"),
    (lambda: TokenBayes("uniform(0,1)"), "this predictor is for noise that differs from token to token; got"),
    (lambda: STUDENT.oracle(STUDENT.moments(2).moments), "this oracle needs tokens"),
    # explanations
    (lambda: explain(PROBLEM, STEP, sigma=[-1.0, 2.0]), "sigma must not be negative; got -1"),
    (lambda: explain(PROBLEM, STEP, sequences=5), "sequences must be at least 100; got 5"),
    (lambda: explain(HeavyTails(), STEP, sigma=[1], sequences=100), "a HeavyTails without at_noise. Write"),
    (lambda: symmetry(STUDENT.replace(query="powerlaw(1)"), STEP), "treat all of them alike; got d=3 ... Use a"),
    (lambda: ablate(PROBLEM, LeastSquares()), "only a linear transformer can be explained; got a LeastSquares"),
    (lambda: without_flow(STEP, 0, "zz"), "a flow must be one of xx, xy, yx, yy; got 'zz'. Choose one of these."),
    (lambda: compare_algorithms(PROBLEM, WILD, sequences=20), "on which the model does not explode"),
    (lambda: compare_algorithms(PROBLEM, STEP, sequences=20).closest("adam"), "heavy ball, newton, ridge; got"),
    (lambda: patch_noise(PROBLEM, STEP, low=2, high=1), "must be below the higher one; got 2 and 1"),
    (lambda: patch_noise(PROBLEM, STEP, parts=["S", "further"]), "are gram, S, b, q, query; got further"),
    (lambda: patch_noise(PROBLEM, STEP, parts=[]), "got none. Choose some of these."),
    (lambda: patch_noise(Problem(3, 8, 1), STEP), "needs two noise levels; got a problem with one, 1. Pass"),
    # theory
    (lambda: expected_loss(Problem(3, 6, 1, features="powerlaw(1)"), 2, 0.1), "known for isotropic problems; got"),
    (lambda: one_layer.optimum(Problem(3, 6, 1, features="factors(1)")), "features with one covariance; got"),
    (lambda: one_layer.risk(PROBLEM, np.zeros((2, 2))), "W must have shape (3, 3); got shape (2, 2)"),
    (lambda: sample(Problem(3, 6, 1, features="rotated(powerlaw(1))"), 5, None), "one covariance"),
    (lambda: rescaling.rescaling_model(1.0, 1.0, 10, 3), "the two noise levels must differ; got 1.0"),
    (lambda: rescaling.rescaling_model(-1.0, 1.0, 10, 3), "sigma_1 must be at least 0; got -1.0"),
    (lambda: rescaling.decay(1.0, 1.0, 2.0, contexts=(10, 100)), "three contexts at least; got 2"),
    (lambda: second_order_solver(0.5, 1e-3, dim=3), "kappa must be at least 1; got 0.5"),
    (lambda: second_order_solver(10.0, 0.0, dim=3), "epsilon must lie in [1e-100, 1); got 0.0"),
    (lambda: second_order_solver(10.0, 1e-20, dim=3), "express an accuracy of 1e-14 at best; got 1e-20"),
    (lambda: second_order_solver(10.0, 1e-3, dim=3, plan="greedy"), "one of paper, balanced; got 'greedy'"),
    (lambda: verify(["gravity"]), "a statement must be one of linear_model, quadratic ... got 'gravity'"),
    (lambda: momentum.terms(CONSTANT, None), "for Diag and GD++"),
    (lambda: step_size.dropped_over_kept(10, 10, 1.0), "residuals need n > d and noise"),
    (lambda: quadratic.largest_square(np.ones((1, 3, 3))), "a span must leave something out"),
    (lambda: quadratic.context_for(2, cosine=1.5), "must lie between 0 and 1; got (1.5, 0.99). Leave them out for"),
    (lambda: heads.merge(GDpp(omega=[[0.1, 0.1]])), "merged in Diag models; got a GDpp"),
    (lambda: fixed_noise.filtered(MEAN, np.ones(2)), "for GD++ models only"),
    # exports
    (lambda: export(MEAN), "whose further coordinates start at zero; ... Pass context=20"),
    *((lambda to=to: export(CONSTANT, to), "Train one without a constant or a length") for to in ("latex", "onnx")),
)
