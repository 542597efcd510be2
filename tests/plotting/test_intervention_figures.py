"""Pictures of patches and of algorithms: what is drawn is what was measured."""

import dataclasses

import numpy as np
import pytest

from ridgeformer import Problem
from ridgeformer.explanation import compare_algorithms, patch_noise
from ridgeformer.plotting.explanation import STYLES, draw_algorithms, draw_patching
from support import tame_model

pytest.importorskip("matplotlib")
PROBLEM = Problem(3, 8, "uniform(0,2)")


def test_shares_are_drawn(tmp_path):
    found = patch_noise(PROBLEM, tame_model("diag", 3, 3, 1, 8), sequences=20)
    figure = draw_patching(found, tmp_path / "patch.png")
    drawn = {line.get_label(): line.get_ydata() for line in figure.axes[0].get_lines()}
    for part, share in zip(found.part, found.restored, strict=True):
        np.testing.assert_array_equal(drawn[STYLES[part]["label"]], share)
    once = {line.get_label() for line in figure.axes[1].get_lines()}
    assert STYLES["gram"]["label"] in once
    assert STYLES["query"]["label"] not in once
    assert "sigma = 1.6 in contexts at sigma = 0.4" in figure.get_suptitle()
    assert (tmp_path / "patch.png").stat().st_size > 5000


@pytest.mark.parametrize("iterations", [2, 12, 100])
def test_maps_are_drawn(tmp_path, iterations):
    found = compare_algorithms(PROBLEM, tame_model("gdpp", 3, 2, 1, 8), sequences=20, iterations=iterations)
    figure = draw_algorithms(found, tmp_path / "map.svg")
    for index, name in enumerate(found.iteration):
        above, below = figure.axes[index], figure.axes[len(found.iteration) + index]
        assert above.get_title() == name
        np.testing.assert_array_equal(above.collections[0].get_array(), found.cosine[name])
        np.testing.assert_allclose(
            below.collections[0].get_array(), np.log10(np.maximum(found.relative_error[name], 1e-12))
        )
        shift = 0 if name == "ridge" else 1
        np.testing.assert_array_equal(above.get_lines()[0].get_xdata(), found.closest(name) + shift)
    assert (tmp_path / "map.svg").stat().st_size > 5000


def test_shares_beyond_the_range_are_marked_with_their_values():
    patching = patch_noise(PROBLEM, tame_model("diag", 3, 3, 1, 8), sequences=20, parts=["gram"])
    far = dataclasses.replace(patching, restored=np.array([[1.0, 7.5, -4.0]]))
    axis = draw_patching(far).axes[0]
    low, high = axis.get_ylim()
    assert (low, high) == (-1.0, 2.0)
    marks = {line.get_marker(): line.get_xydata().tolist() for line in axis.get_lines() if len(line.get_xdata()) == 1}
    assert marks == {"^": [[2, high]], "v": [[3, low]]}
    assert [text.get_text() for text in axis.texts] == ["7.5", "-4"]
