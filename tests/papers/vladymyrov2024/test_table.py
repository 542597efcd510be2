"""Table 1, the stored evidence, the claims and the commands that print them."""

import copy
import csv
import io
import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
from evidence import SEQUENCES, shared_root, small_outcome
from rich.console import Console

from ridgeformer import Problem, compare, evaluate, load, papers, zoo
from ridgeformer.exact import exact_loss
from ridgeformer.files import jsonable
from ridgeformer.losses import BelowFloorWarning
from ridgeformer.papers import Results
from ridgeformer.papers.vladymyrov2024 import PAPER, render
from ridgeformer.papers.vladymyrov2024.claims import CLAIMS
from ridgeformer.papers.vladymyrov2024.evidence import BAYES, Evidence
from ridgeformer.papers.vladymyrov2024.paper import COLUMNS, FAMILIES, grid, printed
from ridgeformer.papers.vladymyrov2024.table import TableOne, measure
from support import each, refused

NOISE = "categorical(1,3)"


@pytest.fixture(scope="session")
def root(tmp_path_factory):
    return shared_root(tmp_path_factory)


@pytest.fixture(scope="session")
def evidence(root):
    return Evidence(small_outcome(root).results.stored)


def test_the_paper_prints_240_numbers_and_the_grid_is_all_cells_with_five_seeds():
    table = printed()
    assert len(table) == 240
    assert table["full", 7, NOISE] == (0.010, 0.0005)
    assert table["gdpp", 4, "uniform(0,0)"][1] == pytest.approx(5e-8)
    assert table["TunedRR", None, "uniform(0,7)"][0] == 0.068
    specs = list(grid().specs())
    assert len(specs) == 1050
    assert {(spec.problem.dim, spec.problem.context) for spec in specs} == {(10, 20)}


def test_a_column_is_what_evaluate_says():
    table = measure(zoo.shipped(), columns=(NOISE,), sequences=2000, seed=3)
    assert len(table.cells) == 24
    problem = Problem(10, 20, NOISE)
    for family, layers in (("gdpp", 2), ("diag", 5), ("full", 7)):
        alone = evaluate(problem, load(f"zoo:{family}/{layers}/{NOISE}"), sequences=2000, seed=3)
        cell = table[family, layers, NOISE]
        assert cell.loss == pytest.approx(alone.loss, rel=1e-12)
        assert cell.error == pytest.approx(alone.error, rel=1e-9)
        assert cell.floor == pytest.approx(alone.floor, rel=1e-9)
        assert cell.unadjusted == pytest.approx(alone.unadjusted, rel=1e-12)
        assert cell.seeds.tolist() == [zoo.record(f"zoo:{family}/{layers}/{NOISE}/{seed}").loss for seed in range(5)]
        # The paper's estimator, with our model, at its number of sequences.
        query = evaluate(problem, load(f"zoo:{family}/{layers}/{NOISE}"), sequences=100_000, seed=5, estimator="query")
        # Heavy tails: the error itself is known to some tens of percent.
        assert cell.paper_error == pytest.approx(query.error, rel=0.5)


def test_cells_that_fall_short_are_found():
    shipped = zoo.shipped()
    models = dict(shipped.models)

    def swap(target, source):
        models[target, shipped.best(*target)] = models[source, shipped.best(*source)]

    swap(("full", 7, NOISE), ("full", 2, NOISE))  # a deep model no better than a shallow one
    swap(("diag", 3, NOISE), ("gdpp", 1, "uniform(0,7)"))  # far above the paper
    table = measure(zoo.Zoo(shipped.records, models), columns=(NOISE,), sequences=4000)
    faults = {f"{cell.row}, {cell.noise}": " ".join(cell.faults) for cell in table.faulty}
    assert "worse than Full 6" in faults[f"Full 7, {NOISE}"]
    assert "above the paper" in faults[f"Diag 3, {NOISE}"]
    assert "worse than GD++ 3" in faults[f"Diag 3, {NOISE}"]
    text = _print(render.terminal(table))
    assert f"Diag 3, {NOISE}: above the paper" in text


def test_a_cell_below_the_floor_is_found(monkeypatch):
    class Worse:
        """Not the Bayes predictor: a floor that models go below."""

        def __init__(self, noise):
            pass

        def weights(self, moments):
            return 0.3 * moments.b / moments.context

    monkeypatch.setattr("ridgeformer.papers.vladymyrov2024.table.BayesRR", Worse)
    with pytest.warns(BelowFloorWarning) as measured:
        table = measure(zoo.shipped(), columns=(NOISE,), sequences=2000)
    assert any("below the floor" in fault for cell in table.faulty for fault in cell.faults)
    assert any("Full 7, categorical(1,3) has" in str(warning.message) for warning in measured)
    with pytest.warns(BelowFloorWarning) as stored:
        TableOne(json.loads(json.dumps(table.as_dict())))
    assert [str(warning.message) for warning in stored] == [str(warning.message) for warning in measured]


@each(
    ("uniform(0,5)", 4, "is at least that of ConstRR, "),
    ("uniform(0,6)", 2, "lowest expected loss found for GD++ 2 is"),
    ("uniform(0,0)", 4, "lowest expected loss found for GD++ 4 is"),
)
@pytest.mark.slow
def test_what_no_gdpp_model_can_reach_is_said(noise, layers, words):
    cell = measure(zoo.shipped(), columns=(noise,), sequences=20_000)["gdpp", layers, noise]
    (fault,) = cell.faults
    least = float(fault.split(words)[1])
    assert cell.limit < least
    assert least == pytest.approx(exact_loss(Problem(noise=noise), load(f"zoo:gdpp/{layers}/{noise}")), rel=2e-3)


@pytest.mark.parametrize("noise", ["uniform(0,0)", "uniform(0,1)"])
@pytest.mark.slow
def test_cells_above_the_paper_for_their_tails_name_a_model_that_is_not(noise):
    """That model has the loss which is said, at most what the number of the paper allows, on the same sequences."""
    table = measure(zoo.shipped(), columns=(noise,))
    reckless = [name for name in zoo.further_models() if name.startswith("zoo:caution=") and name.endswith(noise)]
    names = {zoo.place_of(name.partition("/")[2])[:3]: name for name in reckless}
    faulty = {place for place, cell in table.cells.items() if cell.method != "gdpp" and len(cell.faults)}
    assert faulty == names.keys()
    for key, name in names.items():
        (fault,) = table[key].faults
        said, allowed = map(float, re.search(re.escape(name) + " has (.*), allowed (.*), and explodes", fault).groups())
        found = evaluate(Problem(noise=noise), load(name), sequences=100_000, seed=1, with_floor=False)
        assert found.loss == pytest.approx(said, rel=1e-3)
        assert said <= allowed < 1.2 * table[key].paper + 1e-4


def _print(what, width=100):
    console = Console(width=width, file=io.StringIO())
    console.print(what)
    return console.file.getvalue()


def test_the_table_is_readable_at_100_columns(evidence):
    text = _print(render.terminal(evidence.table))
    lines = text.splitlines()
    assert max(map(len, lines)) <= 100
    assert "…" not in text
    assert len([line for line in lines if re.match(r"(GD\+\+|Diag|Full) \d|ConstRR|AdaRR|TunedRR|floor", line)]) == 25
    first = next(i for i, line in enumerate(lines) if line.startswith("Full 7"))
    shown = lines[first].split()[2:], lines[first + 1].split()
    assert shown[0] == [render.short(evidence.table["full", 7, noise].loss) for noise in COLUMNS]
    assert shown[1] == [render.short(evidence.table["full", 7, noise].paper) for noise in COLUMNS]


def test_one_column_has_all_numbers(evidence):
    text = _print(render.column_table(evidence.table.only("uniform(0, 5)")))
    assert max(map(len, text.splitlines())) <= 100
    assert f"{evidence.table['diag', 4, 'uniform(0,5)'].loss:.5g}" in text
    refused(lambda: evidence.table.only("uniform(0,9)"), "the column must be one of")


def test_markdown_and_latex_have_every_cell(evidence):
    markdown = render.as_markdown(evidence.table).splitlines()
    assert len([line for line in markdown if line.startswith("|")]) == 2 + 24 + 1
    assert markdown[0].count("|") == markdown[10].count("|") == 12
    latex = render.as_latex(evidence.table)
    assert latex.count(r"\\") == 1 + 24 + 1
    assert latex.count(r"\textbf") == 10
    for line in latex.splitlines():
        assert not line.endswith(r"\\") or line.count("&") == 10


def test_profiles_and_layers_are_what_evaluation_says(evidence):
    model, problem = load("zoo:diag/7/uniform(0,5)"), Problem(10, 20, "uniform(0,5)")
    known = compare(problem, model, "sigma", sequences=SEQUENCES // 5, seed=1)
    np.testing.assert_allclose(evidence.curve("uniform(0,5)", "diag", 7), known.loss[0], rtol=1e-9)
    losses = evidence.layers["Diag 7"]
    assert losses.shape == (5, 8)
    best = zoo.shipped().best("diag", 7, "uniform(0,5)")
    alone = evaluate(problem, model, sequences=SEQUENCES // 5, seed=1, with_floor=False).loss
    assert losses[best, -1] == pytest.approx(alone, rel=1e-9)
    found = evidence.layer_profiles
    assert found.losses.full.shape == found.exploded.full.shape == (5, 8, len(found.sigmas))
    over = {"layer": None, "sigma": found.sigmas}
    known = compare(problem, model, over, sequences=SEQUENCES // 5, seed=1)
    np.testing.assert_allclose(found.losses.diag[best], known.loss[0], rtol=1e-9)
    assert set(evidence.profiles[NOISE].losses) >= {"Full 2", "GD++ 7", "TunedRR", BAYES}


def test_every_claim_has_numbers_and_a_verdict(evidence):
    checks = list(replace(PAPER, checks=CLAIMS).decide(evidence))
    assert len(checks) == 21
    for claim in checks:
        assert claim.verdict in ("supported", "partly supported", "contradicted")
        assert re.search(r"\d", claim.measured)
        assert "nan" not in claim.measured
        assert claim.claim
        assert claim.rule
        assert claim.where


def altered(evidence, cell=None, curve=None, layer=None, layer_profile=None, iterations=None, matrix=None):
    """Results with other numbers: of cells, profiles, layers, iterations, or other weights."""
    stored = copy.deepcopy(dict(evidence.stored))
    for one in stored["table"]["cells"]:
        one |= {"floor": 0.0, **(cell(Results(one)) if cell else {})}
    for noise, part in stored["profiles"].items() if curve else ():
        part["losses"] = {row: curve(row, *evidence.levels(noise)) for row in part["losses"]}
    if layer:
        stored["layers"] = {row: layer(row, evidence.layers[row]) for row in evidence.layers}
    if layer_profile:
        sigmas = evidence.layer_profiles.sigmas
        losses = {f: np.stack([layer_profile(f, i, sigmas) for i in range(8)])[None] for f in FAMILIES}
        exploded = {f: np.zeros(one.shape, int) for f, one in losses.items()}
        stored["layer_profiles"] |= {"losses": losses, "exploded": exploded}
    if iterations:
        stored["iterations"] = iterations
    if matrix is not None:
        stored["weights"] = {name: [matrix] * 4 for name in "QP"}
    return Results(jsonable(stored))


def by_method(otherwise=1.0, **losses):
    return lambda key: {"loss": losses.get(key.method, otherwise)}


def most(key):
    """sigma_max."""
    return float(key.noise[key.noise.index(",") + 1]) if key.noise.startswith("uniform") else 1.0


def flat(value, sigmas):
    return np.full(len(sigmas), value)


def by_row(otherwise=1.0, **losses):
    """Constant profiles, by the first word of the row."""
    return lambda row, sigmas, inside: flat(losses.get(row.split()[0], otherwise), sigmas)


def better_outside(method):
    return lambda row, sigmas, inside: np.where(inside == row.startswith(method), 2.0, 1.0)


def zigzag(method):
    return lambda row, sigmas, inside: 1 + sigmas + row.startswith(method) * (np.arange(len(sigmas)) % 2) * 5


def as_the_paper_says(family, layer, sigmas):
    """GD++ and Diag move down, Diag drops at low noise late, Full does at first and rises at high noise in the end."""
    if family == "full":
        return np.where(sigmas < 1, 0.1 ** min(layer, 3), 1.0 + (layer == 7))
    place = 1 + np.abs(sigmas - (5 - 0.6 * layer))
    return place * np.where((sigmas < 1) & (family == "diag") & (layer >= 6), 0.1, 1.0)


def against_the_paper(family, layer, sigmas):
    if family == "full":
        return np.where(sigmas > 4, 0.1 ** min(layer, 3), 1.0)
    return 1 + np.abs(sigmas - 0.6 * layer)


NEVER, LATE = (
    [
        {"noise": noise, "iterations": count, "loss": loss}
        for noise in "ab"
        for count, loss in ((0, 1.0), (10, value), (100, 1.0), (500, 1.0))
    ]
    for value in (1.0, 2.0)
)

# Numbers that support a claim, and numbers that contradict it.
DECIDED = {
    "iterations": ({"iterations": LATE}, {"iterations": NEVER}),
    "few_layers": ({"cell": by_method()}, {"cell": lambda key: {"loss": 0.5 ** (key.layers or 0)}}),
    "alike": ({"cell": by_method()}, {"cell": by_method(diag=2.0)}),
    "gdpp_is_constant": (
        {"cell": by_method()},
        {"cell": lambda key: {"loss": 1.0 + (0.5 if key.layers == 7 else -0.5) * (key.method == "gdpp")}},
    ),
    "advantage_grows": (
        {"cell": lambda key: {"loss": 1.0 if key.layers else 1 + most(key)}},
        {"cell": lambda key: {"loss": 1.0 if key.layers else 1 / (1 + most(key))}},
    ),
    "beats_ada": ({"cell": by_method(AdaRR=2.0)}, {"cell": by_method(AdaRR=0.5)}),
    "matches_tuned": ({"cell": by_method(TunedRR=2.0)}, {"cell": by_method(TunedRR=0.5)}),
    "only_tuned_is_near": ({"cell": by_method(TunedRR=1.2, AdaRR=2.0, ConstRR=2.0)}, {"cell": by_method(TunedRR=2.0)}),
    "mirrors_constant": ({"curve": by_row()}, {"curve": by_row(**{"GD++": 2.0})}),
    "ada_profile": ({"curve": lambda row, sigmas, inside: sigmas}, {"curve": by_row()}),
    "tuned_middle": (
        {
            "cell": by_method(AdaRR=1.2),
            "curve": lambda row, sigmas, inside: 1 + (row == "TunedRR") * ((sigmas > 1.5) & (sigmas < 4)),
        },
        {
            "cell": by_method(AdaRR=0.5),
            "curve": lambda row, sigmas, inside: 2 - (row == "TunedRR") * ((sigmas > 1.5) & (sigmas < 4)),
        },
    ),
    "alike_everywhere": ({"curve": by_row()}, {"curve": by_row(Diag=2.0)}),
    "two_layers": (
        {"curve": lambda row, sigmas, inside: 1 + np.abs(sigmas - 2.5) if row.endswith(" 2") else flat(0.5, sigmas)},
        {"curve": lambda row, sigmas, inside: 1 + sigmas if row.endswith(" 2") else flat(3.0, sigmas)},
    ),
    "gdpp_stops": ({"cell": by_method()}, {"cell": lambda key: {"loss": 0.5 ** (key.layers or 0)}}),
    "gap_on_two": ({"cell": by_method(diag=2.0)}, {"cell": by_method()}),
    "extrapolates": ({"curve": better_outside("Diag")}, {"curve": better_outside("Full")}),
    "heavy_diagonal": ({"matrix": np.eye(11)}, {"matrix": 1 - np.eye(11)}),
    "fluctuates": (
        {"cell": by_method(), "curve": zigzag("Full")},
        {"cell": by_method(diag=2.0), "curve": zigzag("Diag")},
    ),
    "unadjusted": (
        {"cell": lambda key: {"loss": {"full": 1.0}.get(key.method, 2.0), "unadjusted": 1.0}},
        {"cell": lambda key: {"loss": 1.0, "unadjusted": {"full": 1.0}.get(key.method, 2.0)}},
    ),
    "falls_by_layer": (
        {"layer": lambda row, found: -np.arange(found.shape[1]) + np.zeros_like(found)},
        {"layer": lambda row, found: np.zeros_like(found)},
    ),
    "early_stopping": ({"layer_profile": as_the_paper_says}, {"layer_profile": against_the_paper}),
}


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.__name__)
def test_claims_follow_the_numbers(evidence, claim):
    holds, fails = DECIDED[claim.__name__]
    for numbers, verdict in ((holds, "supported"), (fails, "contradicted")):
        assert claim(altered(evidence, **numbers)).verdict == verdict


# ---- the command line


@pytest.fixture
def stored(root, evidence, tmp_path):
    """The file of the table, in a folder of results that the test may change."""
    folder = tmp_path / "vladymyrov2024"
    folder.mkdir()
    for name in ("tuned.json", "table.json"):
        shutil.copy(root / "evidence" / "vladymyrov2024" / "quick" / name, folder / name)
    return folder / "table.json"


@pytest.fixture
def place(stored):
    return ["--out", str(stored.parents[1]), "--sequences", str(SEQUENCES)]


def test_table1_prints_every_format(evidence, place, call):
    code, text, _ = call("papers", "table1", *place)
    assert code == 0
    assert "Full 7" in text
    assert json.loads(call("papers", "table1", "--json", *place)[1]) == json.loads(json.dumps(evidence.table.as_dict()))
    rows = list(csv.DictReader(call("papers", "table1", "--csv", "-", *place)[1].splitlines()))
    assert len(rows) == 240
    row = next(r for r in rows if (r["method"], r["layers"], r["noise"]) == ("diag", "5", NOISE))
    assert float(row["loss"]) == evidence.table["diag", 5, NOISE].loss
    assert json.loads(row["seeds"])[4] == zoo.record(f"zoo:diag/5/{NOISE}/4").loss
    assert call("papers", "table1", "--latex", *place)[1] == render.as_latex(evidence.table)
    assert call("papers", "table1", "--markdown", *place)[1] == render.as_markdown(evidence.table)
    assert "uniform(0,5): floor" in call("papers", "table1", "--column", "uniform(0,5)", *place)[1]


@pytest.mark.slow
def test_table1_measures_again_if_asked_to(stored, place, call):
    true = stored.read_text()
    changed = json.loads(true)
    changed["result"]["cells"][0]["loss"] = 123.0
    stored.write_text(json.dumps(changed))
    assert json.loads(call("papers", "table1", "--json", *place)[1])["cells"][0]["loss"] == 123
    assert json.loads(call("papers", "table1", "--json", "--again", *place)[1]) == json.loads(true)["result"]
    assert json.loads(stored.read_text()) == changed


@each(
    (["table1", "--column", "uniform(0,9)"], "the column must be one of uniform(0,0), uniform(0,1)"),
    (["table1", "--retrain"], "--retrain needs a folder for the runs"),
    (["table1", "--workers", "2"], "are for --retrain"),
    (["table1", "--runs", "/nonexistent"], "lacks 1050 of 1050"),
    (["table1", "--sequences", "1"], "sequences must be at least 20"),
    (["table1", "--retrain", "--runs", "r", "--dask", "tcp://127.0.0.1:1"], "address of a running Dask scheduler"),
    (["figures", "vladymyrov2024", "--only", "9"], "one of 1, 2, 3, 4, 5, 6, 7, 8, layers; got '9'"),
    (["figures", "vladymyrov2024", "--only", "4", "--out", "/proc/nothing"], "/proc/nothing"),
    (["report", "--out", "/proc/nothing"], "a report needs results"),
    (["show", "zhang2024"], "there must be results of zhang2024"),
    (["verify", "--only", "gravity"], "a statement must be one of linear_model"),
    (["run", "nobody1900"], f"a paper must be one of {', '.join(papers.IDS)}"),
    (["run", "zhang2024", "--set", "size"], "--set takes NAME=VALUE; got 'size'"),
    (["run", "zhang2024", "--set", "size=3"], "the settings of zhang2024 are"),
)
def test_bad_input_is_refused(arguments, words, call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, error = call("papers", *arguments)
    assert code == 2
    assert words in error
