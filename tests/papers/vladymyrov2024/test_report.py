"""The figures and the report: drawn from stored evidence, self-contained, and alive in a real browser."""

import functools
import json
import re
from importlib.metadata import metadata

import pytest
from evidence import shared_root, small_outcome

from ridgeformer.papers.vladymyrov2024.claims import CLAIMS
from ridgeformer.papers.vladymyrov2024.evidence import Evidence
from ridgeformer.papers.vladymyrov2024.figures import FIGURES
from ridgeformer.papers.vladymyrov2024.paper import LABELS
from ridgeformer.papers.vladymyrov2024.report.writing import write_page
from ridgeformer.plotting.style import save
from ridgeformer.zoo import explosions
from support import LONGEST

pytest.importorskip("matplotlib")


@pytest.fixture(scope="session")
def outcome(tmp_path_factory):
    return small_outcome(shared_root(tmp_path_factory))


@pytest.fixture(scope="session")
def evidence(outcome):
    return Evidence(outcome.results.stored)


@pytest.fixture(scope="module")
def page(outcome, tmp_path_factory):
    return write_page(outcome, tmp_path_factory.mktemp("report"))


def test_every_figure_is_drawn(outcome):
    """The report writes them as SVG; here they are only made."""
    for picture in FIGURES.values():
        figure = picture.draw(outcome.results)
        width, height = figure.get_size_inches()
        assert width >= 7
        assert height >= 2.5
        assert figure.axes or figure.subfigs


def test_the_same_results_give_the_same_picture(outcome, tmp_path):
    draw = functools.partial(FIGURES["8"].draw, outcome.results)
    first, second = (save(draw, tmp_path / "figure", ["svg"])[0].read_bytes() for _ in "ab")
    assert first == second
    assert b"<svg" in first[:1000]


def crosses(axes):
    return [line for axis in axes for line in axis.get_lines() if line.get_marker() == "x" and len(line.get_xdata())]


@pytest.mark.parametrize("number", [2, 3, 7])
def test_figures_mark_explosions_and_say_so(evidence, number):
    figure = FIGURES[str(number)].draw(evidence)
    marked = sum(len(line.get_xdata()) for line in crosses(figure.axes))
    if number == 7:
        expected = sum(int((found.sum(0)[1:] > 0).sum()) for found in evidence.layer_profiles.exploded.values())
    else:
        shown = [f"uniform(0,{k})" for k in range(8)] if number == 2 else ["categorical(1,3)", "categorical(1,3,5)"]
        places = [(noise, 7) for noise in shown]
        deep = ["uniform(0,5)"] if number == 2 else shown
        places += [(noise, depth) for noise in deep for depth in range(2, 8)]
        curves = [evidence.exploded(n, f, d) for n, d in places for f in ("gdpp", "diag", "full")]
        expected = sum(int((counts > 0).sum()) for counts in curves)
        assert number == 3 or expected > 0
    assert marked == expected
    (legend,) = figure.legends
    assert "a sequence exploded" in [text.get_text() for text in legend.get_texts()]
    assert "at least one sequence exploded: its loss is above 100 d" in FIGURES[str(number)].caption


def page_data(page):
    text = page.read_text()
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.S).group(1).replace("<\\/", "</"))


def test_the_page_knows_the_explosions(page, evidence):
    data = page_data(page)
    part = data["profiles"]["uniform(0,1)"]
    assert part["exploded"]["Full 7"] == evidence.exploded("uniform(0,1)", "full", 7).tolist()
    assert sum(part["exploded"]["Full 7"]) > 0
    assert part["exploded"].keys() == part["losses"].keys()
    assert "Bayes predictor" in part["losses"]
    assert not any("floor" in row for row in part["losses"])
    assert data["sequences"] == {"table": evidence.sequences, "level": evidence.fewer}
    assert data["explodes"] == 100


def test_the_page_needs_no_network(page):
    """Nothing is loaded; the only links out of the page lead to the paper and to the software."""
    text = page.read_text()
    assert not re.search(r"""src=["']?(https?:)?//""", text)
    links = re.findall(r"""href=["']?(https?:[^"']+)""", text)
    addresses = dict(text.split(", ") for text in metadata("ridgeformer").get_all("Project-URL"))
    assert links == ["https://arxiv.org/abs/2402.14180", addresses["Repository"]]
    data = page_data(page)
    assert len(data["cells"]) == 240
    assert len(data["figures"]) == 8
    assert len(data["claims"]) == len(CLAIMS)
    assert all(cell["verdict"] for cell in data["cells"])


def test_figures_without_measurements_are_quick(tmp_path, call):
    code, text, _ = call("papers", "figures", "vladymyrov2024", "--only", "4", "--out", tmp_path, "--json")
    assert code == 0
    assert json.loads(text) == [
        str(tmp_path / "vladymyrov2024" / f"figure-4.{suffix}") for suffix in ("pdf", "svg", "png")
    ]
    assert not (tmp_path / "vladymyrov2024" / "table.json").exists()


CONTRAST = """(() => {
    const light = (text) => {
        const parts = text.match(/\\d+/g).slice(0, 3).map((part) => part / 255);
        const [r, g, b] = parts.map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
    };
    const ratios = [...document.querySelectorAll("#table td")].map((cell) => {
        const style = getComputedStyle(cell), pair = [light(style.color), light(style.backgroundColor)];
        return Math.max(...pair) / Math.min(...pair);
    });
    return Math.min(...ratios);
})()"""  # the least of all cells, as WCAG defines it


def check_the_table(tab):
    # Hovering over a cell tells all about it.
    tab.locator("#table td").nth(10 * 20 + 8).hover()
    tip = tab.locator("#tip").inner_text()
    assert tip.startswith("Full 7, categorical(1,3)")
    assert "Verdict:" in tip
    assert "times the floor" in tip
    # Colours follow the choice.
    shade = "getComputedStyle(document.querySelectorAll('#table td')[43]).backgroundColor"
    before = tab.evaluate(shade)
    tab.select_option("#shade", "floor")
    assert tab.evaluate(shade) != before
    for choice in ("floor", "paper"):
        tab.select_option("#shade", choice)
        assert tab.evaluate(CONTRAST) >= 4.5
    # One stop for the keyboard, from which arrow keys go on.
    assert tab.locator("#table td[tabindex='0']").count() == 1
    tab.locator("#table td[tabindex='0']").focus()
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("ArrowDown")
    assert tab.locator("#tip").inner_text().startswith("GD++ 2, uniform(0,1)")


def check_the_chart(tab, width):
    # The chart follows the problem, the view, the depth and the methods; its axes are labelled.
    assert tab.locator("#chart .line path").count() == 7
    assert {"layers →", "↑ adjusted loss"} <= set(tab.locator("#chart svg text").all_text_contents())
    drawn = tab.locator("#chart").inner_html()
    tab.select_option("#column", "categorical(1,3)")
    assert tab.locator("#chart").inner_html() != drawn
    tab.select_option("#view", "profile")
    drawn = tab.locator("#chart").inner_html()
    tab.select_option("#depth", "3")
    assert tab.locator("#chart").inner_html() != drawn
    tab.locator("#methods input").first.uncheck()
    assert tab.locator("#chart .line path").count() == 6
    tab.locator("#chart svg").hover(position={"x": width / 3, "y": 60})
    tab.locator("#chart [aria-label=tip] text", has_text="sigma =").wait_for()
    assert "Full: " in tab.locator("#chart [aria-label=tip]").text_content()
    tab.locator("#chart").focus()
    tab.keyboard.press("ArrowRight")
    assert "sigma = 0.00" in tab.locator("#values").text_content()
    # Explosions are marked, counted and explained; the black line of a profile is no floor.
    tab.select_option("#column", "uniform(0,1)")
    assert tab.locator("#chart .exploded path").count() > 0
    assert "A cross marks a noise level at which at least one of" in tab.locator("#note").inner_text()
    tab.locator("#chart").focus()
    for _ in range(50):
        tab.keyboard.press("ArrowRight")
    assert "exploded" in tab.locator("#values").text_content()
    assert tab.locator("#methods .bayes").inner_text().strip() == "Bayes predictor"
    tab.select_option("#view", "depth")
    assert tab.locator("#methods .bayes").inner_text().strip() == "Bayes floor"
    tab.select_option("#view", "profile")
    # A problem whose profiles exist for seven layers only.
    tab.select_option("#column", "uniform(0,2)")
    assert tab.locator("#depth").input_value() == "7"


@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_works_in_a_browser(page, browser, width):
    tab = browser.new_page(viewport={"width": width, "height": 800}, locale="en-US", color_scheme="light")
    tab.set_default_timeout(1000 * LONGEST)
    problems = []
    tab.on("console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None)
    tab.on("pageerror", lambda error: problems.append(str(error)))
    tab.on("request", lambda request: problems.append(request.url) if request.url.startswith("http") else None)
    tab.goto(page.as_uri())
    assert tab.locator("#table td").count() == 240
    assert tab.locator("#claims .claim").count() == len(CLAIMS)
    assert tab.locator("#figures img").count() == 8
    assert tab.locator("table[aria-label='Baselines and floors'] tr").count() == 11
    assert tab.locator("nav a").all_inner_texts()[0] == "Claims"
    # Claims come first, each a sentence with a verdict; its numbers are behind a fold.
    numbers = tab.locator("#claims .claim p").first
    assert not numbers.is_visible()
    tab.locator("#claims summary").first.click()
    assert numbers.is_visible()
    tab.get_by_role("button", name="Show all numbers").click()
    assert all(fold.get_attribute("open") is not None for fold in tab.locator("#claims details").all())
    # Nothing but the tables, which scroll, is wider than the window.
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    # Text is legible, and figures are shown at a size.
    assert tab.evaluate("parseFloat(getComputedStyle(document.querySelector('#table td')).fontSize)") >= 12
    for image in tab.locator("#figures img").all():
        image.scroll_into_view_if_needed()
        tab.wait_for_function("image => image.complete && image.naturalWidth > 100", arg=image.element_handle())
    check_the_table(tab)
    check_the_chart(tab, width)
    # It fits with the fonts of any machine; those of fixed width are the widest.
    tab.add_style_tag(content="* { font-family: monospace !important }")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert problems == []
    tab.close()


def test_the_page_has_explosions_actual_models_and_prices_of_all_models(page):
    (table,) = [one for one in page_data(page)["tables"] if one["id"] == "x"]
    assert len(table["rows"]) == 210
    rows = {row[0]: row[1:] for row in table["rows"]}
    stored = explosions()["zoo:diag/3/uniform(0,5)"]
    assert rows["Diag 3, uniform(0,5)"][:2] == ["Diag 3", f"{stored.probability:.1e}"]
    assert rows["Full 2, uniform(0,5)"][0] == "Diag 2"
    lower = next(name for name, one in explosions().items() if one.bound == "lower")
    method, layers, noise = lower.removeprefix("zoo:").split("/")
    assert rows[f"{LABELS[method]} {layers}, {noise}"][1].startswith("at least about ")
    assert {row[0].split()[0] for row in table["rows"] if row[5] == "no caution"} == {"GD++"}
    named = [name for name, row in rows.items() if row[1][0].isdigit() and float(row[1]) > 1e-7]
    assert named
    assert all(name in table["text"] for name in named)
    often = sum(one.probability > 1e-7 for name, one in explosions().items() if "=" not in name)
    assert f"{often} of 210 models" in table["text"]
