"""Pictures of patches and of algorithms: what is drawn is what was measured."""

import numpy as np
import pytest

from ridgeformer import Problem, compare_algorithms
from ridgeformer.explanation import patch_noise
from ridgeformer.plotting.interventions import NAMES, algorithms_figure, patching_figure
from ridgeformer.plotting.style import write
from support import tame_model

pytest.importorskip("matplotlib")
PROBLEM = Problem(3, 8, "uniform(0,2)")


def test_shares_are_drawn(tmp_path):
    found = patch_noise(PROBLEM, tame_model("diag", 3, 3, 1, 8), sequences=20)
    figure = patching_figure("a model", found)
    drawn = {line.get_label(): line.get_ydata() for line in figure.axes[0].get_lines()}
    for part, share in zip(found.part, found.restored, strict=True):
        np.testing.assert_array_equal(drawn[NAMES[part]], share)
    once = {line.get_label() for line in figure.axes[1].get_lines()}
    assert NAMES["gram"] in once
    assert NAMES["query"] not in once
    assert "sigma = 1.6 in contexts at sigma = 0.4" in figure.get_suptitle()
    write(figure, tmp_path / "patch.png")
    assert (tmp_path / "patch.png").stat().st_size > 5000


@pytest.mark.parametrize("iterations", [2, 12, 100])
def test_maps_are_drawn(tmp_path, iterations):
    found = compare_algorithms(PROBLEM, tame_model("gdpp", 3, 2, 1, 8), sequences=20, iterations=iterations)
    figure = algorithms_figure("a model", found)
    for index, name in enumerate(found.iteration):
        above, below = figure.axes[index], figure.axes[len(found.iteration) + index]
        assert above.get_title() == name
        np.testing.assert_array_equal(above.collections[0].get_array(), found.cosine[name])
        np.testing.assert_allclose(
            below.collections[0].get_array(), np.log10(np.maximum(found.relative_error[name], 1e-12))
        )
        shift = 0 if name == "ridge" else 1
        np.testing.assert_array_equal(above.get_lines()[0].get_xdata(), found.closest(name) + shift)
    write(figure, tmp_path / "map.svg")
    assert (tmp_path / "map.svg").stat().st_size > 5000
