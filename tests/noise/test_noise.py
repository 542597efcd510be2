import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import integrate, stats

from ridgeformer import Problem
from ridgeformer.noise import Categorical, Fixed, Frozen, Uniform, as_noise, parse
from support import each, refusals

ALL = [
    "fixed(2)",
    "fixed(0)",
    "uniform(0,5)",
    "uniform(0,0)",
    "uniform(1,2.5)",
    "categorical(1,3)",
    "categorical(0,3,5)",
    "categorical(1,3,weights=(0.25,0.75,))",
    "expon(scale=2)",
    "gamma(0.3)",
    "halfnorm(scale=0.1)",
    "poisson(2)",
    "poisson(2,loc=0.5)",
    "truncnorm(0,2,loc=0,scale=3)",
]


@each(*ALL)
def test_a_law_agrees_with_its_text_its_draws_and_its_quadrature(text):
    noise = parse(text)
    assert str(noise) == repr(noise) == text
    assert (noise, hash(noise)) == (parse(text), hash(parse(text)))
    levels = noise.draw(200_000, seed=1)
    assert (levels >= 0).all()
    # Five standard errors of the mean of sigma^2.
    assert abs(np.mean(levels**2) - noise.second_moment) <= 5 * np.std(levels**2) / np.sqrt(len(levels)) + 1e-12
    assert noise.contains(levels[:1000]).all()
    if not isinstance(noise, Frozen) or np.isfinite(noise.distribution.support()[1]):
        assert not noise.contains(noise.upper * 1.5 + 1e9)
    assert not noise.contains(-1.0)
    nodes, weights = noise.quadrature()
    assert (weights >= 0).all()
    assert weights.sum() == pytest.approx(1, abs=1e-10)
    assert weights @ nodes**2 == pytest.approx(noise.second_moment, rel=1e-9, abs=1e-30)


@each(("1", "fixed(1)"), (" 0.25 ", "fixed(0.25)"), ("2e-3", "fixed(0.002)"))
def test_a_plain_number_is_one_level(text, full):
    assert parse(full) == parse(text) == Fixed(float(text))
    assert str(Problem(noise=text).noise) == full


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_text_keeps_every_bit(a, b):
    low, high = sorted([a, b])
    again = parse(str(Uniform(low, high)))
    assert (again.low, again.high) == (low, high)


@pytest.mark.parametrize("peak", [3.0, 0.1, 1e-4, 1e-8])
@pytest.mark.parametrize("law", [stats.uniform(0, 5), stats.expon(scale=2), stats.gamma(0.3)])
def test_quadrature_resolves_posteriors_near_zero(law, peak):
    """The likelihood of sigma from ten residuals is sigma^-10 exp(-5 peak^2 / sigma^2), of relative width 0.2."""
    noise = Uniform(0, 5) if law.dist.name == "uniform" else Frozen(law)

    def likelihood(s):
        return np.exp(10 * (np.log(peak) - np.log(s)) - 5 * (peak / s) ** 2 + 5)

    nodes, weights = noise.quadrature(tail=1e-14)
    mine = [weights @ likelihood(nodes), weights @ (nodes * likelihood(nodes))]
    for power, value in enumerate(mine):
        # In log sigma the integrand is smooth, so SciPy's adaptive rule is the independent truth.
        exact, _ = integrate.quad(
            lambda t, k=power: law.pdf(np.exp(t)) * np.exp(t) ** (1 + k) * likelihood(np.exp(t)),
            np.log(peak) - 4,
            min(np.log(peak) + 12, np.log(law.isf(1e-15))),
            limit=400,
            epsabs=0,
            epsrel=1e-11,
        )
        assert value == pytest.approx(exact, rel=1e-8)


def test_quadrature_finds_a_narrow_peak():
    law = stats.gamma(1e6, scale=1e-6)  # 1 +- 0.001
    nodes, weights = Frozen(law).quadrature()
    assert weights @ nodes == pytest.approx(1, rel=1e-9)
    assert weights @ (nodes - 1) ** 2 == pytest.approx(1e-6, rel=1e-6)


def test_quadrature_of_a_discrete_law_is_exact():
    nodes, weights = parse("poisson(2)").quadrature()
    np.testing.assert_allclose(weights, stats.poisson(2).pmf(nodes), rtol=1e-10)


def test_levels_of_student_noise_have_the_moments_of_t():
    """Noise is the level times a standard normal z, and E z^4 = 3."""
    assert parse("student(6,2)").fourth_moment == pytest.approx(2**4 * stats.t(6).moment(4) / 3)


def test_categorical_draws_follow_the_weights():
    noise = Categorical([1, 3, 5], [0.2, 0.5, 0.3])
    share = [(noise.draw(100_000) == level).mean() for level in (1, 3, 5)]
    np.testing.assert_allclose(share, [0.2, 0.5, 0.3], atol=5 * np.sqrt(0.25 / 100_000))


def test_as_noise_takes_numbers_text_and_scipy():
    assert as_noise(2) == Fixed(2)
    assert as_noise("fixed(2)") == Fixed(2)
    assert isinstance(as_noise(stats.expon()), Frozen)
    assert as_noise(Fixed(1)) == Fixed(1)


test_other_numbers_are_none = refusals(
    *((number, "") for number in ("-1", "nan", "inf", "1_0", "1e400", "0x1", "1 2", "--1")), by=parse
)


test_bad_noise_is_refused_in_words = refusals(
    (lambda: Fixed(-1), "must be at least 0; got -1"),
    (lambda: Fixed(float("nan")), "must be at least 0; got nan"),
    (lambda: Uniform(3, 1), "low <= high; got low 3, high 1"),
    (lambda: Uniform(-1, 1), "lower noise level must be at least 0"),
    (lambda: Categorical([]), "at least one level"),
    (lambda: Categorical([1, 1]), "must differ"),
    (lambda: Categorical([1, 3], [0.5, 0.6]), "must sum to 1; got a sum of 1.1. Divide them by their sum"),
    (lambda: Categorical([1, 3], [1.5, -0.5]), "must not be negative"),
    (lambda: Frozen(stats.norm()), "must not be negative; got a support from -inf"),
    (lambda: Frozen(stats.pareto(1.5)), "finite E[sigma^2]"),
    (lambda: Frozen(stats.expon), "frozen scipy.stats distribution"),
    (lambda: parse("uniform"), "written as name(arguments)"),
    (lambda: parse("__import__('os').system('true')"), "written as name(arguments)"),
    (lambda: parse("uniform(0,1,2)"), "with arguments that the name takes; got 'uniform(0,1,2)'"),
    (lambda: parse("normal(0,1)"), "known distribution; got 'normal'. Write uniform(0,5)"),
    (lambda: parse("expon(scale='a')"), "numbers as parameters; got 'a'"),
    (lambda: parse("expon(size=2)"), "with arguments that the name takes"),
    (lambda: as_noise(None), "noise must be a distribution"),
    (lambda: Fixed(1e300), "at most 1e+12, where no signal is left"),
    (lambda: Categorical(3), "levels must be a list"),
    (lambda: parse(5), "written as text; got 5"),
    (lambda: parse("expon(scale=-2)"), "valid parameters; got expon(scale=-2)"),
    (lambda: Frozen(stats.expon(scale=[1, 2])), "single numbers"),
    (lambda: as_noise(stats.rv_discrete(values=([1, 3], [0.5, 0.5]))()), "that scipy.stats names"),
    (lambda: Uniform(0, 1).quadrature(tail=0), "tail must lie between 0 and 0.5; got 0"),
)
