"""Pictures of descents, and what is drawn in them."""

import io
import re

import numpy as np
import pytest

from ridgeformer import InputError, LinearTransformer, Problem, train
from ridgeformer.models import Channels, LowRank
from ridgeformer.plotting.dynamics import draw_animation, draw_curves, draw_trajectories
from ridgeformer.plotting.weights import alone
from ridgeformer.theory import one_layer
from ridgeformer.training import GradientDescent, GradientFlow, Search

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
    with pytest.raises(InputError, match="this picture is of a descent, whose course is recorded; got a run of Search"):
        draw_curves(search)
    with pytest.raises(InputError, match=r"at least two snapshots; got 0. Train with snapshots=20"):
        draw_trajectories(trained("diag", snapshots=0))
    words = (
        r"two snapshots; got 1 of 4, because the descent ended early. The run says: .*not finite at step .* may help\."
    )
    with pytest.raises(InputError, match=words):
        draw_trajectories(trained("full", rate=50.0, scale=1.0))
    with pytest.raises(InputError, match=r"a plot must end in .gif or .html; got 'a.png'"):
        draw_animation(full, tmp_path / "a.png")
    with pytest.raises(InputError, match=r"needs at least one run; got none. Pass a training, or several by name"):
        draw_curves({})
    for level in (-1, 0, float("inf"), float("nan")):
        with pytest.raises(InputError, match=r"a level must be"):
            draw_curves(full, levels=[level])
    with pytest.raises(
        InputError, match=r"of one training, or of several by name; got a list\. Pass {.rate 1e-3.: run}"
    ):
        draw_curves([full])
    with pytest.raises(InputError, match="the quantity must be one of loss, adjusted_loss, squared_error; got 'x'"):
        draw_curves(full, quantity="x")
