"""``sudonet report`` and the page it writes, without a browser."""

import base64
import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from sudonet import cli
from sudonet.experiments import EXPERIMENTS, GRIDS, Trial, checkerboard
from sudonet.report import published
from sudonet.report.claims import Verdict
from sudonet.report.page import _bits, _curves, _overview, write
from sudonet.study.figures import FIGURES, MORE, make
from sudonet.study.store import Store
from sudonet.train import Data
from tests.report import synthetic_rows
from tests.report.page_reader import Page
from tests.report.report_rows import row

LIMIT = 8_000_000
MINUS = "\N{MINUS SIGN}"


def written(rows, folder, figures="none"):
    return Page(write(rows, folder / figures, folder / "report").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def rows():
    """Every network of the paper, as if all had been trained and none had diverged."""
    return synthetic_rows.rows(lost=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("page")


@pytest.fixture(scope="module")
def page(rows, folder):
    return written(rows, folder)


@pytest.fixture(scope="module")
def means(rows):
    """Mean and spread of every cell, straight from the rows."""
    values = {}
    for one in rows:
        t = one.trial
        values.setdefault((t.experiment, t.shape, t.activation, t.column), {}).setdefault(
            t.rate, []
        ).append(one.value)
    found = {}
    for key, by_rate in values.items():
        best = max if EXPERIMENTS[key[0]].higher_is_better else min
        chosen = best(by_rate.values(), key=np.mean)
        found[key] = float(np.mean(chosen)), float(np.std(chosen, ddof=1))
    return found


def as_printed(means, grid, activation, column):
    mean, spread = means[grid.experiment, grid.shape, activation, column]
    if grid.experiment == "autoencoder":
        base = means["autoencoder", "conv", "tanh", 1][0]
        return mean / base, spread / base
    return mean, spread


def as_compared(means, grid, activation, column):
    mean, spread = as_printed(means, grid, activation, column)
    if grid.experiment == "memorization":
        base = means[grid.experiment, grid.shape, "tanh", column][0]
        return mean / base, spread / base
    return mean, spread


def cells_of(page):
    return {one["data-cell"]: one for one in page.all("td") if one.get("data-cell")}


def test_it_needs_nothing_but_itself(page, folder):
    for one in page.elements:
        for name, value in one.attributes.items():
            assert not name.startswith("on"), one.tag
            if name in ("src", "href"):
                assert value.startswith(("#", "data:")) or (folder / "report" / value).exists()
    assert {one["href"][1:] for one in page.all("a") if one["href"].startswith("#")} <= {
        one.get("id") for one in page.elements
    }
    style = page.one("style").text
    assert "url(" not in style
    assert "@import" not in style
    (policy,) = (one["content"] for one in page.all("meta") if one.get("http-equiv"))
    assert "default-src 'none'" in policy
    assert not page.all("link")


def test_identifiers_are_unique(page):
    names = [one["id"] for one in page.elements if one.get("id")]
    assert len(names) == len(set(names))


def test_every_table_has_every_cell(page):
    found = cells_of(page)
    assert len(found) == 1030
    assert set(found) == {
        f"{grid.id}.{unit}.{column}" for grid in GRIDS.values() for unit, column in grid.cells
    }
    assert set(page.data["details"]) == set(found)


def test_cells_are_the_means_of_the_rows(page, means):
    for name, cell in cells_of(page).items():
        table, activation, column = name.split(".")
        grid, about = GRIDS[table], published.table(table)
        ours, _ = as_printed(means, grid, activation, int(column))
        theirs = about.value(activation, int(column))
        assert float(cell["data-ours"]) == pytest.approx(ours, rel=1e-9)
        assert float(cell["data-published"]) == theirs
        assert f"{ours:,.{about.decimals}f}" in cell.text
        assert f"{theirs:,.{about.decimals}f}" in cell.text
        if cell.get("data-difference"):
            compared, _ = as_compared(means, grid, activation, int(column))
            if about.compared_by_ratio:
                theirs /= about.value("tanh", int(column))
            assert float(cell["data-difference"]) == pytest.approx(compared - theirs, abs=1e-9)


def test_cells_that_are_one_by_definition_have_no_difference(page):
    found = cells_of(page)
    without = {name for name, cell in found.items() if not cell.get("data-difference")}
    assert without == {
        f"{grid.id}.tanh.{column}"
        for grid in GRIDS.values()
        for column in grid.columns
        if grid.experiment == "memorization"
        or (grid.id.endswith("autoencoder-conv"), column) == (1, 1)
    }


def test_plots_show_the_means_of_the_rows(page, means):
    marks = [one for one in page.elements if one.get("data-plot") == "ours"]
    assert len(marks) == 1030
    for mark in marks:
        table, activation, column = mark["data-cell"].split(".")
        ours, _ = as_compared(means, GRIDS[table], activation, int(column))
        assert float(mark["data-value"]) == pytest.approx(ours, rel=1e-9)


def test_plots_show_the_published_numbers(page):
    marks = [one for one in page.elements if one.get("data-plot") == "published"]
    assert len(marks) == 1030
    for mark in marks:
        table, activation, column = mark["data-cell"].split(".")
        about = published.table(table)
        value = about.value(activation, int(column))
        if about.compared_by_ratio:
            value /= about.value("tanh", int(column))
        assert float(mark["data-value"]) == pytest.approx(value)


@pytest.mark.parametrize("table", ["checkerboard-2", "regression-4", "r-memorization-4", "mnist-1"])
def test_points_are_where_the_axis_says(page, table):
    """The scale is recovered from the axis' own numbers, then every point is checked by it."""
    transform = math.log if "regression" in table else float
    svgs = [one for one in page.all("svg", role="img") if one.within(id=table)]
    assert len(svgs) == len(GRIDS[table].columns)
    for picture in svgs:
        inside = [one for one in page.elements if picture in one.parents]
        ticks = [
            (float(line["y1"]), float(text.text))
            for line, text in zip(
                [one for one in inside if "grid" in one.classes()],
                [one for one in inside if one.get("text-anchor") == "end"],
                strict=True,
            )
        ]
        assert len(ticks) >= 2
        (y0, v0), (y1, v1) = ticks[0], ticks[-1]
        for mark in inside:
            if mark.tag != "circle":
                continue
            value = transform(float(mark["data-value"]))
            share = (value - transform(v0)) / (transform(v1) - transform(v0))
            assert float(mark["cy"]) == pytest.approx(y0 + share * (y1 - y0), abs=0.05)
            levels = int(mark["data-cell"].split(".")[1].rpartition("-")[2])
            assert float(mark["cx"]) == _curves.level_x(levels)


def test_bands_are_the_spread_over_the_replicas(page, means):
    grid = GRIDS["checkerboard-1"]
    bands = [
        one["d"] for one in page.all("path") if "band" in one.classes() and one.within(id=grid.id)
    ]
    lines = [
        one["d"] for one in page.all("path") if "line" in one.classes() and one.within(id=grid.id)
    ]
    assert len(bands) == len(lines) == len(grid.columns)
    marks = [
        one
        for one in page.all("circle")
        if one.get("data-plot") == "ours" and one.within(id=grid.id)
    ]
    # Pixels for each unit of accuracy, from two points that are far apart.
    low, high = (f(marks, key=lambda m: float(m["data-value"])) for f in (min, max))
    slope = (float(high["cy"]) - float(low["cy"])) / (
        float(high["data-value"]) - float(low["data-value"])
    )
    for column, band in zip(grid.columns, bands, strict=True):
        points = [tuple(map(float, p.split(","))) for p in re.findall(r"[\d.]+,[\d.-]+", band)]
        upper, lower = points[:8], points[8:][::-1]
        for unit, up, down in zip(grid.rows[2:], upper, lower, strict=True):
            _, spread = as_compared(means, grid, unit, column)
            assert up[0] == down[0]
            assert down[1] - up[1] == pytest.approx(-2 * slope * spread, abs=0.1)


def test_details_tell_what_stands_behind_a_cell(page):
    title, lines = page.data["details"]["checkerboard-2.sudo-16.50"]
    assert title == "sudo-16, 50 units, checkerboard-2"
    said = dict(lines)
    assert "3 replicas" in said["Ours"]
    assert "±" in said["Ours"]
    assert said["Published"] == "97.6"
    assert said["Learning rate"].endswith("best of 3")
    assert said["Steps"] == f"{checkerboard.STEPS['2']:,}, 100 % of the protocol"
    assert said["CPU time"].endswith("for 9 networks")
    assert said["Protocol"] == "full"
    assert said["Engine"] == "native-avx2"
    assert "x noise" in said["Difference"]


def test_the_overview_says_what_was_run(page, rows):
    text = " ".join(page.section("overview").text.split())
    assert "1,030 " in text
    assert "MNIST" in text
    assert "in place of the paper's picture" in text
    assert "torch 2.13.0" in text
    assert f"{len(rows):,}," in text
    tiles = [one for one in page.all("a") if "tile" in one.classes()]
    assert [one["href"][1:] for one in tiles] == [
        grid.id for name in EXPERIMENTS for grid in GRIDS.values() if grid.experiment == name
    ]
    assert all("in noise" in one.text for one in tiles)


@pytest.mark.parametrize(
    ("supported", "refuted", "said"),
    [
        (1, 1, "of the paper's 4 claims is supported; 1 is not, 2 undecided"),
        (0, 2, "of the paper's 4 claims are supported; 2 are not, 2 undecided"),
        (2, 0, "of the paper's 4 claims are supported; 0 are not, 2 undecided"),
    ],
)
def test_one_claim_is_and_more_are(supported, refuted, said):
    found = ["supported"] * supported + ["not supported"] * refuted + ["undecided"] * 2
    verdicts = [Verdict(number, "", verdict, []) for number, verdict in enumerate(found)]
    assert _overview.headlines([], verdicts)[-1] == (str(supported), said)


def test_one_cell_has_a_value_and_lies_within_noise(tmp_path):
    page = written([row(70.0, activation="sudo-8", steps=87_500)], tmp_path)
    said = {one.text for one in page.all("dt")}
    assert "of the paper's 1,030 cells has a value of ours" in said
    assert "of 1 cell compared lies within the paper's own noise" in said
    assert "% of 1 cell, within" in page.one("article", id="checkerboard-2").text


def test_a_note_stands_in_the_overview(page, tmp_path):
    note = "Of 5 rows <b>2</b> are left out."
    path = write([], tmp_path / "none", tmp_path / "report", note=note)
    found = Page(path.read_text(encoding="utf-8"))
    (said,) = (
        one.text for one in found.all("p", **{"class": "missing"}) if one.within(id="overview")
    )
    assert said == note
    assert not [one for one in page.all("p", **{"class": "missing"}) if one.within(id="overview")]


def test_all_claims_have_a_verdict_and_evidence(page):
    claims = [one for one in page.all("details") if one.within(id="claims")]
    assert len(claims) == 14
    for claim in claims:
        lines = [one for one in page.all("li") if claim in one.parents]
        assert lines
        (badge,) = (
            one for one in page.all("span") if "badge" in one.classes() and claim in one.parents
        )
        assert badge.text in ("supported", "not supported", "undecided")


def test_the_160_bit_question_has_numbers(page, means):
    card = page.one("aside")
    for unit, column, theirs in (("sudo-16", 20, "0.60"), ("sudo-256", 10, "0.71")):
        mean, spread = means["regression", "2", unit, column]
        assert f"{mean:.2f} ± {spread:.2f}" in card.text
        assert theirs in card.text


def test_tables_are_written_as_files(page, folder):
    for name in GRIDS:
        assert f"### {name}:" in (folder / "report" / "tables" / f"{name}.md").read_text()
        assert r"\begin{tabular}" in (folder / "report" / "tables" / f"{name}.tex").read_text()


def test_points_of_the_explorer(page, means):
    found = {one["name"]: one for one in page.data["bits"]}
    assert list(found) == list(EXPERIMENTS)
    points = found["regression"]["points"]
    assert len(points) == 96  # 2 depths, 3 widths, 8 numbers of levels, twice
    for point in points:
        table, unit, column = point["cell"].split(".")
        mean, _ = as_printed(means, GRIDS[table], unit, int(column))
        assert point["ours"] == pytest.approx(mean)
        layers = int(GRIDS[table].shape)
        assert point["bits"] == layers * int(column) * math.log2(point["levels"])
    by_cell = {point["cell"]: point for point in points}
    for cell in ("regression-2.sudo-16.20", "regression-2.sudo-256.10"):
        assert by_cell[cell]["bits"] == 160
    accuracy = {point["cell"]: point for point in found["mnist"]["points"]}
    assert accuracy["mnist-1.sudo-2.100"]["published"] == pytest.approx(
        100 - published.table("mnist-1").value("sudo-2", 100)
    )


@pytest.mark.parametrize("side", ["ours", "published"])
@pytest.mark.parametrize("kind", ["all", "sudo"])
def test_fronts_hold_what_nothing_beats(page, side, kind):
    for experiment in page.data["bits"]:
        points = [
            (k, point["bits"], point[side])
            for k, point in enumerate(experiment["points"])
            if kind == "all" or not point["rectified"]
        ]
        front = experiment["fronts"][side][kind]
        expected = {
            k
            for k, b, e in points
            if not any(o <= e and p <= b and (o, p) != (e, b) for _, p, o in points)
        }
        at = {k: (b, e) for k, b, e in points}
        assert {at[k] for k in front} == {at[k] for k in expected}  # equal points count once
        assert [at[k][0] for k in front] == sorted(at[k][0] for k in front)


@pytest.mark.parametrize(
    ("experiment", "shape", "column"),
    [("checkerboard", "4", 50), ("autoencoder", "conv", 2), ("autoencoder", "dense", 4)],
)
def test_hidden_units_are_those_of_the_networks(experiment, shape, column):
    trial = Trial(experiment, shape, column, "tanh", 0.001, 0, 1)
    nothing = Data(np.zeros((1, 2), np.float32), np.zeros((1, 1), np.float32))
    spec = EXPERIMENTS[experiment].spec(trial, nothing)
    counts = []
    model = spec.module()
    for unit in list(model)[1:-1:2]:
        unit.register_forward_hook(lambda *of: counts.append(of[-1].numel()))
    with torch.no_grad():
        model(torch.zeros(1, *spec.input_shape))
    assert sum(counts) == _bits.hidden_units(experiment, shape, column)


# ------------------------------------------------------------------ stores with gaps


def test_an_empty_store_has_every_gap_named(tmp_path):
    page = written([], tmp_path)
    cells = cells_of(page)
    assert len(cells) == 1030
    assert not any(cell.get("data-ours") for cell in cells.values())
    assert all("not run" in cell.text for cell in cells.values())
    assert not [one for one in page.elements if one.get("data-plot") == "ours"]
    assert "sudonet reproduce --tables mnist-4 trains" in page.one("article", id="mnist-4").text
    card = page.one("aside").text
    assert card.count("not run") == 2
    assert "undecided" in card
    assert "No cell can be compared" in page.one("article", id="mnist-1").text


def test_missing_cells_leave_gaps_in_curves(tmp_path):
    some = [
        row(value, seed=seed, activation=f"sudo-{levels}", steps=87_500)
        for levels, value in ((2, 60.0), (4, 70.0), (16, 80.0))
        for seed in (0, 1)
    ]
    page = written(some, tmp_path)
    (line, *_) = (
        one["d"]
        for one in page.all("path")
        if "line" in one.classes() and one.within(id="checkerboard-2")
    )
    assert line.count("M") == 2  # from 2 to 4 levels, and 16 alone
    assert line.count("L") == 1
    plotted = [one["data-cell"] for one in page.elements if one.get("data-plot") == "ours"]
    assert plotted == [f"checkerboard-2.sudo-{n}.5" for n in (2, 4, 16)]
    notes = page.one("article", id="checkerboard-2").text
    assert "Not run (47 of 50 cells)" in notes
    assert "sudo-8 has no value" in page.all("svg", role="img")[5]["aria-label"]


def test_diverged_failed_and_single_networks_are_named(tmp_path):
    full = {"steps": 87_500}
    some = [
        *(row(math.nan, seed=s, diverged=5, activation="sudo-2", **full) for s in range(3)),
        row(None, failed="out of <b>memory</b>", activation="sudo-4", **full),
        row(70.0, activation="sudo-8", **full),
        row(80.0, seed=0, activation="sudo-16", **full),
        row(82.0, seed=1, activation="sudo-16", **full),
        row(math.inf, seed=2, diverged=9, activation="sudo-16", **full),
    ]
    page = written(some, tmp_path)
    cells = cells_of(page)
    for unit in ("sudo-2", "sudo-4"):
        cell = cells[f"checkerboard-2.{unit}.5"]
        assert not cell.get("data-ours")
        assert cell.text.startswith("none")
    notes = page.one("article", id="checkerboard-2").text
    assert "No value: all 3 networks diverged (sudo-2 with 5 units)" in notes
    assert "No value: all 1 networks failed: out of <b>memory</b> (sudo-4 with 5 units)" in notes
    assert "One replica, so no spread (sudo-8 with 5 units)" in notes
    assert "* 1 of 3 networks diverged (sudo-16 with 5 units)" in notes
    said = {name: dict(lines) for name, (_, lines) in page.data["details"].items()}
    assert said["checkerboard-2.sudo-8.5"]["Ours"] == "70.0, 1 replica, so no spread"
    assert said["checkerboard-2.sudo-16.5"]["Ours"].startswith("81.0 ± 1.4, 2 replicas")
    assert said["checkerboard-2.sudo-16.5"]["Diverged"] == "1 of 3 networks"
    assert cells["checkerboard-2.sudo-16.5"].text.startswith("81.0*")
    assert "nan" not in page.section("tables").text.lower()
    ran = page.section("overview").text
    assert "4 / 1" in ran


def test_a_ratio_without_its_tanh_cell_is_not_drawn(tmp_path):
    rate = EXPERIMENTS["memorization"].protocol("2", 50).rates[0]
    some = [row(900.0, experiment="memorization", column=50, rate=rate, activation="sudo-8")]
    page = written(some, tmp_path)
    cell = cells_of(page)["memorization-2.sudo-8.50"]
    assert float(cell["data-ours"]) == 900
    assert not cell.get("data-difference")
    assert not [one for one in page.elements if one.get("data-plot") == "ours"]


HOSTILE = '</script><script>alert(1)</script><img src=x onerror="alert(2)"> & \u2028 {{ 7 * 7 }}'


def test_hostile_names_stay_text(tmp_path):
    marked = {"source": HOSTILE, "stand_in_for": HOSTILE, "engine": HOSTILE, "cpu": HOSTILE}
    texts = {"versions": HOSTILE, "finished": HOSTILE}
    some = [row(80.0, seed=s, steps=87_500, **marked, **texts) for s in (0, 1)]
    some.append(row(None, failed=HOSTILE, activation="relu", **marked, **texts))
    page = written(some, tmp_path)
    assert len(page.all("script")) == 2
    assert not page.all("img")
    assert not [one for one in page.elements if one.get("onerror")]
    assert dict(page.data["details"]["checkerboard-2.tanh.5"][1])["Engine"] == HOSTILE
    assert "{{ 7 * 7 }}" in page.section("overview").text
    assert "onerror" in page.one("article", id="checkerboard-2").text


# ------------------------------------------------------------------ figures


def test_missing_figures_say_how_to_make_them(page):
    text = page.section("figures").text
    assert text.count("sudonet reproduce figures makes it") == len(FIGURES) + len(MORE) - 1
    assert "sudonet reproduce figures makes it" in page.section("board").text
    assert page.data["board"] is None
    claim = next(one for one in page.all("details") if "extreme levels" in one.text)
    assert "no histogram of sudo-4" in claim.text


def test_a_damaged_figure_says_so_in_its_place(tmp_path):
    folder = tmp_path / "made"
    make(folder, names=["unit", "parabola-2"], share=0.001)
    (folder / "parabola-2.npz").write_bytes(b"nothing")
    (folder / "histogram.npz").write_bytes(b"nothing")
    page = written([], tmp_path, "made")
    damaged = page.one("figure", id="figure-parabola-2").text
    assert "cannot read the figure" in damaged
    assert "make it again" in damaged
    (image,) = page.all("img")
    assert image.within(id="figure-unit")
    files = sorted(path.name for path in (tmp_path / "report" / "figures").iterdir())
    assert files == ["unit.pdf", "unit.png", "unit.svg"]


def test_files_beside_the_page_are_those_asked_for(tmp_path):
    make(tmp_path / "made", names=["unit"], share=0.001)
    path = write([], tmp_path / "made", tmp_path / "report", formats=("png", "md"))
    page = Page(path.read_text(encoding="utf-8"))
    files = {one.relative_to(path.parent).as_posix() for one in path.parent.glob("*/*")}
    assert files == {"figures/unit.png"} | {f"tables/{name}.md" for name in GRIDS}
    links = {one["href"] for one in page.all("a")}
    assert {link for link in links if not link.startswith("#")} == files
    # The page embeds the file's own bytes.
    (image,) = page.all("img")
    drawn = (path.parent / "figures" / "unit.png").read_bytes()
    assert image["src"] == f"data:image/png;base64,{base64.b64encode(drawn).decode()}"


# ------------------------------------------------------------------ the command


def run(*arguments):
    return CliRunner().invoke(cli.app, [str(a) for a in arguments])


@pytest.fixture
def store(tmp_path):
    path = tmp_path / "study" / "results.sqlite"
    with Store.open(path) as found:
        for seed in range(3):
            found.add(row(80.0 + seed, seed=seed, steps=87_500))
    return path


def test_the_command_says_where_the_page_is(store, tmp_path):
    result = run("report", "--store", store, "--out", tmp_path / "new" / "report")
    assert result.exit_code == 0, result.output
    path = tmp_path / "new" / "report" / "index.html"
    assert result.stdout.splitlines()[-1] == f"wrote {path}"
    assert "81.0" in cells_of(Page(path.read_text(encoding="utf-8")))["checkerboard-2.tanh.5"].text
    assert sorted(one.name for one in path.parent.iterdir()) == ["index.html", "tables"]


def check_user_error(result, *words):
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    for word in words:
        assert word in result.stderr


def test_no_store(tmp_path):
    result = run("report", "--store", tmp_path / "none")
    check_user_error(result, "no store", "sudonet reproduce")


def test_a_folder_that_cannot_be(store, tmp_path):
    (tmp_path / "file").touch()
    result = run("report", "--store", store, "--out", tmp_path / "file" / "report")
    check_user_error(result, "cannot write", "file", "--out")


def test_progress_counts_every_part(tmp_path):
    seen = []
    write([], tmp_path / "none", tmp_path / "report", lambda *at: seen.append(at))
    assert [done for done, _ in seen] == list(range(1, seen[-1][1] + 1))
    assert len({total for _, total in seen}) == 1


def test_a_second_report_replaces_the_first(tmp_path):
    write([], tmp_path / "none", tmp_path / "report")
    path = write([row(80.0, steps=87_500)], tmp_path / "none", tmp_path / "report")
    assert "80.0" in cells_of(Page(path.read_text(encoding="utf-8")))["checkerboard-2.tanh.5"].text
    assert not list((tmp_path / "report").glob(".*"))


def test_ten_thousand_rows_stay_small(tmp_path, rows):
    many = rows + [replace(one, recipe="another") for one in rows]
    assert len(many) > 10_000
    path = write(many, tmp_path / "none", tmp_path / "report")
    assert path.stat().st_size < LIMIT / 3  # the figures need some room too


def test_numbers_have_true_minus_signs(page):
    texts = [cell.text for cell in cells_of(page).values()]
    assert any(MINUS in text for text in texts)
    assert not any("-" in text for text in texts)


def test_data_is_strict_json(page):
    text = page.one("script", id="page-data").text
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert "<" not in text
