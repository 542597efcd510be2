"""The page in a real browser: sliders, dragging, training, the address, export, keyboard and small screens."""

import re
from urllib.parse import unquote

import numpy as np
import pytest

from ridgeformer import Problem, evaluate, load
from support import each

pytestmark = pytest.mark.slow
STATE = "playground.store.state"


def number(tab, name="adjusted loss"):
    text = tab.locator(f"dd[data-name='{name}']").first.evaluate("(element) => element.firstChild.textContent")
    return float(text.rstrip("\N{MULTIPLICATION SIGN} ").replace("\N{MINUS SIGN}", "-"))


def test_sliders_switches_and_layers(visit):
    tab = visit("view=explore")
    loss = number(tab)
    expected = evaluate(Problem(10, 20, "uniform(0,5)"), load("zoo:diag/4/uniform(0,5)"), sequences=2048).loss
    assert loss == pytest.approx(expected, rel=0.05)  # of 2,048 or, later, 16,384 sequences
    tab.locator("#omega-1-yx").focus()
    tab.keyboard.press("ArrowRight")
    tab.wait_for_function(
        f"{STATE}.omega[0][2] !== playground.models.find((m) => m.name === 'diag/4/uniform(0,5)').omega[0][2]"
    )
    tab.get_by_label("switch xy of layer 3 off").click()
    tab.wait_for_function(
        "Number(document.querySelector(\"dd[data-name='adjusted loss']\").firstChild.textContent) > 0.3"
    )
    assert tab.evaluate(f"{STATE}.off") == ["3.xy"]
    tab.get_by_role("button", name="Add a layer").click()
    assert tab.locator("section.layer").count() == 5
    tab.get_by_label("remove layer 5").click()
    assert tab.locator("section.layer").count() == 4
    tab.wait_for_function("location.hash.includes('off=3.xy')")
    # The same model in Python, from the address.
    tab.evaluate("playground.store.write()")
    model = load(tab.url)
    omega = tab.evaluate(f"{STATE}.omega")
    omega[2][1] = 0
    np.testing.assert_array_equal(model.kernel.omega.reshape(-1, 4), omega)
    assert tab.locator("#ablations svg, #explosions svg, #filters svg, #path svg").count() >= 4


def test_choosing_a_model_and_a_problem(visit):
    tab = visit("view=explore")
    tab.locator("#shipped").select_option(label="Diag, 3 layers")  # the first: d = 1
    tab.wait_for_selector("#points .handles circle")
    assert tab.evaluate(f"[{STATE}.d, {STATE}.n]") == [1, 10]
    tab.locator("#noise").fill("uniform(0,x)")
    tab.keyboard.press("Enter")
    assert "must be uniform(0,5)" in tab.get_by_role("alert").first.inner_text()
    tab.locator("#noise").fill("categorical(1,3)")
    tab.keyboard.press("Enter")
    assert tab.evaluate(f"{STATE}.noise") == "categorical(1,3)"


@pytest.mark.parametrize("d", [1, 2])
def test_examples_can_be_dragged(visit, d):
    tab = visit(f"view=explore&d={d}&n=5&noise=uniform(0,2)&omega=0,0,-0.1,0")
    handle = tab.locator("#points .handles circle").nth(2)
    handle.wait_for()
    handle.scroll_into_view_if_needed()
    box, w = handle.bounding_box(), "document.querySelector('#points svg[role=img]').getAttribute('aria-label')"
    before = tab.evaluate(w)
    tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tab.mouse.down()
    tab.mouse.move(box["x"] + 40, box["y"] - 30, steps=4)
    tab.mouse.up()
    tab.wait_for_function(f"{w} !== {before!r}")
    x = tab.evaluate(f"{STATE}.tokens.x[2][0]")
    handle.focus()
    tab.keyboard.press("ArrowLeft")
    assert tab.evaluate(f"{STATE}.tokens.x[2][0]") == pytest.approx(x - 0.1)
    tab.wait_for_function("location.hash.includes('context=')")


def test_eigenvalues_can_be_dragged(visit):
    tab = visit("view=explore&d=3&n=8&noise=uniform(0,2)&omega=0,0,-0.1,0")
    handle = tab.locator("#eigenvalues .handles circle").nth(2)
    handle.wait_for()
    before = float(handle.get_attribute("aria-valuenow"))
    handle.focus()
    tab.keyboard.press("ArrowUp")
    tab.wait_for_function(
        "Math.abs(document.querySelectorAll('#eigenvalues .handles circle')[2].getAttribute('aria-valuenow') "
        f"- {before + 1}) < 1e-6"
    )
    x = np.array(tab.evaluate(f"{STATE}.tokens.x"))
    assert np.linalg.eigvalsh(x.T @ x)[2] == pytest.approx(before + 1, rel=1e-9)


def test_training_starts_steps_pauses_and_resets(visit):
    tab = visit("view=train&d=2&n=10&noise=uniform(0,2)&train.layers=2&train.optimiser=adam&omega=0,0,0,0")
    tab.get_by_role("button", name="Step").click()
    status = tab.locator("#training-status")
    tab.wait_for_function("document.querySelector('#training-status').textContent.startsWith('Step 1.')")
    tab.get_by_role("button", name="Start").click()
    tab.wait_for_function("/Step [2-9]\\d/.test(document.querySelector('#training-status').textContent)")
    tab.get_by_role("button", name="Pause").click()
    tab.get_by_role("button", name="Go on").wait_for()
    tab.wait_for_selector("dd[data-name='ratio']")
    tab.wait_for_function(f"{STATE}.omega.length === 2")
    tab.evaluate("playground.store.write()")
    assert load(tab.url).kernel.omega.any()  # can be shared
    tab.get_by_role("button", name="Reset").click()
    assert status.inner_text().startswith("Ready.")


def test_quasi_newton_training_ends_and_can_be_explored(visit):
    tab = visit("view=train&d=2&n=10&noise=uniform(0,2)&train.layers=2&omega=0,0,0,0")
    tab.get_by_role("button", name="Start").click()
    tab.wait_for_function("document.querySelector('#training-status').textContent.endsWith('Done.')")
    ratio = number(tab, "ratio")
    assert 1 < ratio < 7.5  # the search in Python ends at 6.7
    tab.get_by_role("button", name="Explore this model").click()
    tab.wait_for_selector("#profile svg")
    tab.evaluate("playground.store.write()")
    found = evaluate(Problem(2, 10, "uniform(0,2)"), load(tab.url), sequences=16384)
    assert found.ratio == pytest.approx(ratio, rel=0.01)  # three digits are shown


@each(
    ("diag", "-0.01,0.0001,-0.03,0.0002;0,0,-0.2,0.001&off=1.xy", [[-0.01, 0, -0.03, 0.0002], [0, 0, -0.2, 0.001]]),
    ("gdpp", "-0.01,0,-0.03,0", [[-0.01, 0, -0.03, 0]]),
)
def test_a_model_leaves_the_page_in_every_form(family, text, omega, visit, tmp_path):
    problem = Problem(10, 20, "uniform(0,5)")
    tab = visit(f"view=explore&d=10&n=20&noise=uniform(0,5)&family={family}&omega={text}")
    given = {"d": 10, "n": 20, "noise": "uniform(0,5)", "omega": omega, "size": 2048}
    loss = tab.evaluate("(given) => playground.engine.ask('losses', given)", given)["loss"]
    tab.get_by_role("button", name="Share and export").click()
    models = {"address": load(tab.locator("#link").input_value())}
    for button, name in (("Model file", "model.safetensors"), ("JSON", "model.json"), ("Python", "model.py")):
        with tab.expect_download() as download:
            tab.get_by_role("button", name=button, exact=True).click()
        assert download.value.suggested_filename == name
        download.value.save_as(tmp_path / name)
    models["file"] = load(tmp_path / "model.safetensors")
    session = {}
    exec((tmp_path / "model.py").read_text().replace("print(", "str("), session)
    models["code"] = session["model"]
    text = (tmp_path / "model.json").read_text()
    models["json"] = load(re.search(r'"address": "(.*?)"', text)[1])
    for name, model in models.items():
        assert evaluate(problem, model, sequences=2048).loss == pytest.approx(loss, rel=1e-9), name
    assert {model.family.name for model in models.values()} == {family}


def test_a_table_becomes_the_context(visit, tmp_path):
    tab = visit("view=explore&omega=0,0,-0.03,0")
    (tmp_path / "own.csv").write_text("a,b,y\n1,2,3\n-1,0.5,2\n0,1,1\n")
    tab.locator("#csv").set_input_files(tmp_path / "own.csv")
    tab.wait_for_function(f"{STATE}.tokens?.y.length === 3")
    x, y = (np.array(tab.evaluate(f"{STATE}.tokens.{name}")) for name in "xy")
    assert np.mean(x, axis=0) == pytest.approx([0, 0], abs=1e-12)
    assert np.var(x, axis=0) == pytest.approx([1, 1])
    assert [np.mean(y), np.var(y)] == pytest.approx([0, 2], abs=1e-12)
    tab.locator("#scale").uncheck()
    tab.locator("#csv").set_input_files(tmp_path / "own.csv")
    tab.wait_for_function(f"{STATE}.tokens.y[0] === 3")
    assert tab.evaluate(f"[{STATE}.d, {STATE}.n, {STATE}.tokens.x[1]]") == [2, 3, [-1, 0.5]]
    (tmp_path / "bad.csv").write_text("1,2\n3\n")
    tab.locator("#csv").set_input_files(tmp_path / "bad.csv")
    tab.get_by_text("Row 2 of the table must have 2 numbers.").wait_for()


def test_beat_the_floor_keeps_the_best(visit):
    tab = visit("view=score")
    omega = tab.get_by_role("spinbutton", name="omega yx of layer 1 as a number")
    first = tab.locator("#score").inner_text()
    omega.fill("-0.025")
    tab.keyboard.press("Enter")
    tab.wait_for_function("(before) => document.querySelector('#score').textContent !== before", arg=first)
    better, best = tab.locator("#score").inner_text(), tab.locator("#best").inner_text()
    assert best.startswith(f"{better} ")
    assert int(first) < int(better) < 0  # one step is worse than ridge regression
    omega.fill("-0.5")
    tab.keyboard.press("Enter")
    tab.wait_for_function("(before) => document.querySelector('#score').textContent !== before", arg=better)
    assert tab.locator("#best").inner_text() == best


@each(
    ("d=1", "d=1&n=10&noise=uniform(0,2)"),
    ("view=train&d=2", "d=2&n=10&noise=uniform(0,2)"),
    ("noise=categorical(1,3)", "d=10&n=20&noise=categorical(1,3)"),
    ("d=5&n=12&noise=fixed(1)", "d=5&n=12&noise=fixed(1)&family=diag&omega=0,0,-0.05263157894736842,0"),
)
def test_a_link_without_a_model_opens_its_problem(address, opened, visit):
    """With a shipped model for that problem; where none ships, with the best step, -1/(n + d + 1 + sigma^2)."""
    tab = visit(address)
    tab.evaluate("playground.store.write()")
    assert opened in unquote(tab.url)


def test_a_wrong_address_is_explained(browser, file):
    tab = browser.new_page()
    tab.goto(f"{file.as_uri()}#d=99&omega=0,0,0,0")
    text = tab.get_by_role("alert").inner_text()
    assert "d must be a whole number from 1 to 20; got 99." in text
    tab.close()


UNNAMED = """[...document.querySelectorAll('input, select, textarea, button')].filter((element) =>
    !element.labels?.length && !element.getAttribute('aria-label') && !element.textContent.trim()).length"""


@pytest.mark.parametrize("view", ["explore", "train", "score", "chapters", "chapter-2", "chapter-7"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_works_on_a_phone_and_for_screen_readers(visit, view, scheme):
    tab = visit(f"view={view}", viewport={"width": 390, "height": 844}, color_scheme=scheme)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    assert tab.evaluate(UNNAMED) == 0
    charts = tab.locator("svg[role=img]")
    assert all(charts.nth(i).get_attribute("aria-label") for i in range(charts.count()))
    assert tab.locator("h1").count() == 1


def test_it_can_be_embedded(browser, file, tmp_path):
    outer = tmp_path / "outer.html"
    outer.write_text(f'<iframe src="{file.as_uri()}#view=chapter-3&bare=1" width="900" height="700"></iframe>')
    tab = browser.new_page()
    tab.goto(outer.as_uri())
    frame = tab.frame_locator("iframe")
    frame.locator("#task").wait_for()
    assert not frame.locator("header").is_visible()
    frame.get_by_role("link", name="Next chapter").click()  # stays bare
    frame.get_by_text("Chapter 4 of 10").wait_for()
    assert not frame.locator("header").is_visible()
    tab.close()


def test_a_link_to_hand_out(visit):
    tab = visit("view=chapter-5")
    tab.get_by_role("button", name="Words").click()
    assert "no predictor" in tab.get_by_role("dialog").inner_text().lower()
    tab.keyboard.press("Escape")
    tab.get_by_role("button", name="Share").click()
    tab.get_by_label("without the navigation").check()
    link = tab.locator("#link").input_value()
    assert link.endswith("&bare=1")
    tab.get_by_text("Show it in another page").click()
    assert tab.locator("#frame").input_value().startswith('<iframe src="file:')
    tab.goto("about:blank")
    tab.goto(link)
    tab.get_by_text("Chapter 5 of 10").wait_for()
    assert not tab.locator("header").is_visible()
    tab.wait_for_function("playground.updates > 0")


NAME = """document.activeElement.getAttribute("aria-label") ?? document.activeElement.labels?.[0]?.textContent
    ?? document.activeElement.textContent"""


def test_everything_can_be_reached_by_the_keyboard(visit):
    """The tab key comes to every control of the view, in the order of the page."""
    tab = visit("view=explore&d=1&n=3&noise=uniform(0,2)&omega=0,0,-0.1,0")
    tab.locator("#eigenvalues .handles circle").first.wait_for()
    tab.evaluate("document.activeElement.blur()")
    seen = []
    for _ in range(60):
        tab.keyboard.press("Tab")
        name = tab.evaluate(NAME)
        if seen and name == seen[0]:
            break
        seen.append(name)
    for name in ("Explore", "Train", "Words", "trained model", "features d", "Another context", "Add a layer"):
        assert name in seen, name
    assert sum(name.startswith("example ") for name in seen) == 3
    assert any(name.startswith("eigenvalue 1") for name in seen)
