"""A search as a generator of steps: reports, time limits, and what it returns."""

import dataclasses
import time

import numpy as np
import pytest

import own_problems
from ridgeformer import Problem
from ridgeformer.bfgs import Minimum
from ridgeformer.engine import Layout
from ridgeformer.losses import exploded
from ridgeformer.models import Diag, LinearTransformer
from ridgeformer.training import search as search_module
from ridgeformer.training.job import Job, Outcome, Step, follow
from ridgeformer.training.search import many_starts
from ridgeformer.training.search.starts import Failures, SearchJob
from ridgeformer.training.spec import make_spec

MODELS = [LinearTransformer(Diag(omega=[[[0, 0], [-0.01 * k, 0]]]), 3) for k in (1, 2, 3)]


def steps(models=MODELS, seconds=0.0):
    for number, model in enumerate(models, 1):
        time.sleep(seconds)
        yield Step(model, "race", number / len(models), 1.0 / number)
    return Outcome(models[-1], True, "converged")


SPEC = make_spec(Problem(3, 6, "fixed(1)"), Diag, layers=2, sequences=2)


def job(problem=SPEC.problem, layout=SPEC.layout, **changes):
    return SearchJob(dataclasses.replace(SPEC, problem=problem, layout=layout), **changes)


def test_every_step_is_reported_and_the_result_returned():
    seen = []
    outcome = follow(steps(), Job(SPEC, report=seen.append))
    assert [step.fraction for step in seen] == [1 / 3, 2 / 3, 1.0]
    assert outcome == Outcome(MODELS[-1], True, "converged")


def test_when_time_is_over_the_best_model_so_far_is_returned():
    seen = []
    outcome = follow(steps(), Job(SPEC, report=seen.append, deadline=time.monotonic() - 1))
    assert len(seen) == 1
    assert (outcome.model, outcome.converged, outcome.message) == (MODELS[0], False, "the time given was over")
    assert follow(steps(), Job(SPEC, deadline=time.monotonic() + 1000)).converged


@pytest.mark.parametrize("error", [RuntimeError, StopIteration, KeyboardInterrupt])
def test_an_error_of_the_report_is_not_swallowed(error):
    def report(step):
        raise error("enough")

    with pytest.raises(error, match="enough"):
        follow(steps(), Job(SPEC, report=report))


@pytest.mark.parametrize("context", [6, "4..8"])
def test_the_last_check_sees_what_the_selection_sees(context):
    """Also where n varies, although the searches before it look at the shortest and longest contexts only."""
    problem = Problem(3, context, "fixed(1)")
    layout, rate = (Layout(), 0.09) if context == 6 else (Layout("mean"), 0.9)
    unstable = LinearTransformer(Diag(omega=np.tile([[-rate, 0], [-rate, 0]], (5, 1, 1))), 3, layout)
    work = job(problem=problem, layout=layout)
    expected = int(exploded(search_module._losses(work, unstable), problem.signal).sum())
    known = work.checked(unstable, Failures.none(problem, layout))
    assert abs(known.exploded - expected) <= 1 + expected // 100  # float32 and float64
    assert expected > 10
    assert len(known) > 10
    assert work.checked(unstable, known).strength > known.strength


def test_the_last_check_sees_what_the_selection_sees_on_a_problem_of_ones_own():
    """Where sequences depend on the size of the block in which they are drawn."""
    problem = own_problems.HeavyTails(3, 6)
    unstable = LinearTransformer(Diag(omega=np.tile([[-0.09, 0], [-0.09, 0]], (5, 1, 1))), 3)
    work = job(problem=problem)
    expected = int(exploded(search_module._losses(work, unstable), problem.signal).sum())
    assert expected > 10
    assert abs(work.checked(unstable, Failures.none(problem, Layout())).exploded - expected) <= 1 + expected // 100


def test_descents_that_overflow_on_more_sequences_do_not_go_on():
    """BFGS cannot leave a point whose loss is not finite: there the gradient leaves out what overflows."""
    work = many_starts._Work(job())
    descents = [Minimum(work.vector.pack(model), 0.1, np.eye(8), 1, True) for model in two_layers(1e200, 0.01, 0.02)]
    assert work.finite(descents, 2) == descents[1:]
    assert work.finite(descents, 1) == descents[1:2]
    assert work.finite(descents[:1], 2) == []


def two_layers(*rates):
    return [LinearTransformer(Diag(p=np.full((2, 1, 2), -rate), q=np.ones((2, 1, 2))), 3) for rate in rates]
