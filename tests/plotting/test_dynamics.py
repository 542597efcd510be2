"""Pictures of descents, and what is drawn in them."""

import dataclasses
import io
import re

import numpy as np
import pytest

from ridgeformer import LinearTransformer, Problem, train
from ridgeformer.explanation import compare_algorithms, patch_noise
from ridgeformer.models import Channels, LowRank
from ridgeformer.plotting.dynamics import draw_animation, draw_curves, draw_trajectories
from ridgeformer.plotting.explanation import STYLES, draw_algorithms, draw_patching
from ridgeformer.plotting.weights import alone
from ridgeformer.theory import one_layer
from ridgeformer.training import GradientDescent, GradientFlow, Search
from support import refused, tame_model

pytest.importorskip("matplotlib")
PROBLEM = Problem(3, 6, "uniform(0,3)")


def trained(family, **options):
    protocol = GradientDescent(**{"rate": 1e-3, "steps": 60, "scale": 0.1, "snapshots": 4, **options})
    return train(PROBLEM, family, 1, protocol=protocol, sequences=500, threads=1)


@pytest.fixture(scope="module")
def full():
    return trained("full")


@pytest.fixture(scope="module")
def diag():
    return trained("diag")


def test_a_curve_shows_the_recorded_losses_and_the_levels(full, diag):
    figure = draw_curves({"Full": full, "Diag": diag}, levels=[1.2, 0.7], quantity="squared_error")
    (axis,) = figure.axes
    first, second, *dashed = axis.get_lines()
    assert first.get_ydata().tolist() == (2 * full.history.loss[1:]).tolist()
    assert second.get_xdata().tolist() == diag.history.step[1:].tolist()
    assert [line.get_ydata()[0] for line in dashed] == [1.2, 0.7]
    assert [text.get_text() for text in axis.texts] == ["1.2", "0.7"]
    assert (axis.get_xscale(), axis.get_yscale(), axis.get_ylabel()) == ("log", "log", "squared error")


def test_a_fixed_sample_has_two_curves_and_clipped_steps_are_marked():
    run = trained("diag", batch="sample(16)", clip=1e-3, record=10)
    loss, fresh, marks = draw_curves({"Diag": run}).axes[0].get_lines()
    assert loss.get_ydata().tolist() == run.history.loss[1:].tolist()
    np.testing.assert_allclose(fresh.get_ydata(), run.history.fresh_loss[1:], rtol=1e-12)
    assert (fresh.get_label(), marks.get_label()) == (
        "on fresh sequences",
        f"{run.history.clipped[-1]:.0f} clipped steps",
    )
    assert marks.get_xdata().tolist() == run.history.step[1:].tolist()  # every step was clipped


def test_trajectories_show_omegas_or_singular_values(full, diag):
    lines = draw_trajectories(diag).axes[0].get_lines()
    assert [line.get_label() for line in lines] == ["omega xx", "omega xy", "omega yx", "omega yy"]
    assert lines[2].get_ydata().tolist() == [shot.model.family.omega[0, 1, 0] for shot in diag.snapshots]
    lines = draw_trajectories(full).axes[0].get_lines()
    assert len(lines) == 3
    last = np.linalg.svd(alone(full.model, 0), compute_uv=False)
    np.testing.assert_allclose([line.get_ydata()[-1] for line in lines], last)


def test_trajectories_of_channels_show_omegas_and_all_other_products():
    run = trained(Channels(1, 3))
    figure = draw_trajectories(run)
    lines = {line.get_label().split(" (")[0]: line.get_ydata() for line in figure.axes[0].get_lines()}
    assert list(lines) == [f"omega {name}" for name in ("xx", "xy", "yx", "yy")] + ["norm vs", "norm sv", "norm ss"]
    assert "channels(1,3), 1 layer" in figure.get_suptitle()
    for k, shot in enumerate(run.snapshots):
        P, Q = (matrix[0] for matrix in shot.model.family.dense(1))  # x has one coordinate, so there is one of each
        products = np.einsum("kab,kcd->abcd", P, Q)
        y = P.shape[-1] - 1
        assert lines["omega yx"][k] == pytest.approx(products[y, y, 0, 0])
        assert lines["norm vs"][k] ** 2 + lines["omega xy"][k] ** 2 == pytest.approx(
            (products[0, 0] ** 2)[1:, 1:].sum()
        )
        total = sum(found[k] ** 2 for found in lines.values())
        assert total == pytest.approx((products**2).sum())


def test_trajectories_of_a_flow_are_drawn_against_time():
    flow = train(PROBLEM, "full", 1, protocol=GradientFlow(time=7, record=5, snapshots=3), sequences=500, threads=1)
    figure = draw_trajectories(flow)
    assert "time" in figure.axes[0].get_xlabel()
    steps = [shot.step for shot in flow.snapshots]
    for line in figure.axes[0].get_lines():
        assert line.get_xdata().tolist() == flow.history.time[steps].tolist()
    assert "w_hat = W a" in figure.get_suptitle()


def test_a_layer_alone_is_what_it_makes_of_a():
    """For a model that only uses a, its weights are W a; for any model, W is how they follow a."""
    W = np.random.default_rng(0).standard_normal((3, 3))
    np.testing.assert_allclose(alone(one_layer.model_of(W), 0), W)
    model = LinearTransformer(LowRank(2).random(3, 1, 2, 0.5, np.random.default_rng(1)), 3)
    gram = np.zeros((4, 4))
    for i in range(3):
        gram[:] = 0
        gram[3, i] = gram[i, 3] = 1
        P, Q = (value[0] for value in model.family.dense(3))
        weights = -np.einsum("ha,ab,hbi->i", P[:, -1], gram, Q[:, :, :3])
        np.testing.assert_allclose(alone(model, 0)[:, i], weights)


def test_an_animation_has_a_frame_per_snapshot(tmp_path, full, diag, monkeypatch):
    from PIL import Image

    draw_animation(diag, tmp_path / "a.gif", sequences=20, milliseconds=100)
    assert Image.open(io.BytesIO((tmp_path / "a.gif").read_bytes())).n_frames == 4
    draw_animation(full, str(tmp_path / "a.html"), sequences=20)
    page = (tmp_path / "a.html").read_text()
    assert page.count("data:image/png;base64,") == 4
    assert not re.search(r'(src|href)="http', page)
    monkeypatch.setattr(type(full.spec), "describe", lambda self: "</title><script>alert(1)")
    draw_animation(full, tmp_path / "a.html", sequences=20)
    assert "<title>&lt;/title&gt;&lt;script&gt;alert(1)</title>" in (tmp_path / "a.html").read_text()


def test_what_cannot_be_drawn_is_refused(tmp_path, full):
    search = train(PROBLEM, "diag", 1, protocol=Search(effort=0.1), sequences=500, threads=1)
    refused(lambda: draw_curves(search), "this picture is of a descent, whose course is recorded; got a run of Search")
    refused(lambda: draw_trajectories(trained("diag", snapshots=0)), "at least two snapshots; got 0. Train with")
    words = "two snapshots; got 1 of 4, because the descent ended early. The run says: ... not finite at step ... help"
    refused(lambda: draw_trajectories(trained("full", rate=50.0, scale=1.0)), words)
    refused(lambda: draw_animation(full, tmp_path / "a.png"), "a plot must end in .gif or .html; got 'a.png'")
    refused(lambda: draw_curves({}), "needs at least one run; got none. Pass a training, or several by name")
    for level in (-1, 0, float("inf"), float("nan")):
        refused(lambda level=level: draw_curves(full, levels=[level]), "a level must be")
    refused(lambda: draw_curves([full]), 'of one training, or of several by name; got a list. Pass {"rate 1e-3":')
    refused(lambda: draw_curves(full, quantity="x"), "the quantity must be one of loss, adjusted_loss, squared_error;")


# ---- Pictures of patches and of algorithms: what is drawn is what was measured


EXPLAINED = Problem(3, 8, "uniform(0,2)")


def test_shares_are_drawn(tmp_path):
    found = patch_noise(EXPLAINED, tame_model("diag", 3, 3, 1, 8), sequences=20)
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
    found = compare_algorithms(EXPLAINED, tame_model("gdpp", 3, 2, 1, 8), sequences=20, iterations=iterations)
    figure = draw_algorithms(found, tmp_path / "map.svg")
    for index, name in enumerate(found.iteration):
        above, below = figure.axes[index], figure.axes[len(found.iteration) + index]
        assert above.get_title() == name
        np.testing.assert_array_equal(above.collections[0].get_array(), found.cosine[name])
        errors = np.maximum(found.relative_error[name], 1e-12)
        np.testing.assert_allclose(below.collections[0].get_array(), np.log10(errors))
        shift = 0 if name == "ridge" else 1
        np.testing.assert_array_equal(above.get_lines()[0].get_xdata(), found.closest(name) + shift)
    assert (tmp_path / "map.svg").stat().st_size > 5000


def test_shares_beyond_the_range_are_marked_with_their_values():
    patching = patch_noise(EXPLAINED, tame_model("diag", 3, 3, 1, 8), sequences=20, parts=["gram"])
    far = dataclasses.replace(patching, restored=np.array([[1.0, 7.5, -4.0]]))
    axis = draw_patching(far).axes[0]
    low, high = axis.get_ylim()
    assert (low, high) == (-1.0, 2.0)
    marks = {line.get_marker(): line.get_xydata().tolist() for line in axis.get_lines() if len(line.get_xdata()) == 1}
    assert marks == {"^": [[2, high]], "v": [[3, low]]}
    assert [text.get_text() for text in axis.texts] == ["7.5", "-4"]
