"""Problems as data sets of PyTorch: the same batches for every number of workers."""

import numpy as np
import pytest

from ridgeformer import Layout, LinearTransformer, Problem
from support import refused

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader  # noqa: E402

from ridgeformer.torch import ProblemDataset, to_torch  # noqa: E402

PROBLEM = Problem(3, 6, "uniform(0,1)", features="factors(1)")


@pytest.mark.parametrize("form", ["moments", "tokens"])
def test_batches_do_not_depend_on_the_number_of_workers(form):
    data = ProblemDataset(PROBLEM, 8, form=form, batches=5, seed=3)
    alone = list(data)
    assert len(alone) == 5
    for workers in (0, 1, 2):
        found = list(DataLoader(data, batch_size=None, num_workers=workers))
        for one, other in zip(found, alone, strict=True):
            assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True) if a is not None)


def test_batches_are_those_of_the_problem():
    batch = ProblemDataset(PROBLEM, 8, seed=3, dtype=torch.float64).at(2)
    draw = PROBLEM.moments(8, seed=3, step=2)
    pairs = (batch.gram, draw.moments.gram), (batch.target, draw.ridge), (batch.metric, draw.metric)
    assert all(np.array_equal(found.numpy(), expected) for found, expected in pairs)
    tokens = ProblemDataset(PROBLEM, 8, form="tokens", queries=2, seed=3, dtype=torch.float64).at(2)
    expected = PROBLEM.sequences(8, seed=3, step=2, queries=2)
    assert np.array_equal(tokens.x.numpy(), expected.x)
    assert np.array_equal(tokens.answers.numpy(), expected.answers)


def test_a_loop_goes_on_where_it_stopped():
    data = iter(ProblemDataset(PROBLEM, 8))
    batches = [next(data) for _ in range(4)]
    later = next(iter(ProblemDataset(PROBLEM, 8, first=3)))
    assert torch.equal(batches[3].gram, later.gram)
    assert not torch.equal(batches[0].gram, later.gram)


def test_bad_input_is_refused_in_words():
    for words, options in {
        "a data set needs a problem": {"problem": 3},
        "the form must be moments or tokens; got 'x'": {"form": "x"},
        "the dtype must be torch.float32 or torch.float64": {"dtype": torch.float16},
        "batch must be": {"batch": 0},
        "token form needs contexts of": {"problem": Problem(3, "4..6", 1.0), "form": "tokens"},
    }.items():
        refused(lambda options=options: ProblemDataset(**{"problem": PROBLEM, "batch": 4, **options}), words)


@pytest.mark.parametrize(
    ("family", "layout"), [("channels(1,3)", Layout()), ("diag", Layout("mean")), ("full", Layout("mean", "length", 1))]
)
def test_batches_for_the_tokens_of_a_model(family, layout):
    model = LinearTransformer.random(family, dim=3, layers=2, context=6, layout=layout)
    batch = ProblemDataset(PROBLEM, 8, seed=3, dtype=torch.float64, layout=model.layout).at(2)
    draw = PROBLEM.moments(8, seed=3, step=2, dtype=np.float64, sums=True)
    weights = to_torch(model)(batch.gram).detach().numpy()
    np.testing.assert_allclose(weights, model.weights(draw.moments), rtol=1e-12)
    if model.layout.extra:
        other = ProblemDataset(PROBLEM, 8, dtype=torch.float64).at(0).gram
        refused(lambda: to_torch(model)(other), "layout=model.layout")
