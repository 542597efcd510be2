import numpy as np
import pytest

from ridgeformer import Diag, LinearTransformer, Problem, evaluate
from ridgeformer.evaluation.sequence_losses import Tally
from ridgeformer.losses import CAP

PROBLEM = Problem(noise="uniform(0,5)")


DESCENT = LinearTransformer(Diag(omega=[[[0, 0], [-0.03, 0]]]), 10)


def test_blocks_add_up_to_the_whole():
    """Mean, error, tail and maximum of 40,000 sequences in three blocks, against all losses at once."""
    result = evaluate(PROBLEM, DESCENT, sequences=40_000, seed=3, with_floor=False)
    d = PROBLEM.moments(40_000, seed=3, stream=1 << 30)
    losses = 0.5 * np.square(DESCENT.weights(d.moments) - d.ridge).sum(1)
    assert result.loss == pytest.approx(losses.mean(), rel=1e-12)
    assert result.error == pytest.approx(losses.std(ddof=1) / 200, rel=1e-9)
    assert result.largest == pytest.approx(losses.max(), rel=1e-12)
    assert result.tail == pytest.approx(np.sort(losses)[-4], rel=1e-12)


def test_running_statistics_are_those_of_all_losses_at_once():
    """Mean, standard error and covariance of the means against NumPy's, with blocks of different lengths."""
    losses = np.random.default_rng(0).lognormal(size=(3, 1000))
    losses[1, 7], losses[2, 900] = np.inf, np.nan
    tally = Tally(3, signal=10, sequences=1000)
    for block in np.split(losses, [1, 300, 301, 999], axis=1):
        tally.add(block)
    finite = np.where(np.isfinite(losses), losses, CAP)
    np.testing.assert_allclose(tally.mean, finite.mean(1), rtol=1e-12)
    np.testing.assert_allclose(tally.error, finite.std(1, ddof=1) / np.sqrt(1000), rtol=1e-12)
    assert tally.count == 1000
    assert tally.exploded.tolist() == [0, 1, 1]
    np.testing.assert_allclose(tally.covariance, np.cov(finite) / 1000, rtol=1e-9)
    np.testing.assert_allclose(tally.unexploded, [np.mean(row[row < CAP]) for row in finite], rtol=1e-12)
    assert tally.largest.tolist() == finite.max(1).tolist()
