"""The page of the report in a real browser."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from sudonet import Staircase
from sudonet.experiments import EXPERIMENTS, GRIDS
from sudonet.report.page import write
from sudonet.study.figures import FIGURES, MORE, read
from tests import ROOT
from tests.report import synthetic_rows
from tests.report.browser import axe, chromium
from tests.report.report_rows import row
from tests.study.made_figures import made

pytestmark = [pytest.mark.browser, pytest.mark.slow]  # makes all figures first

SCREENSHOTS = ROOT / "out" / "screenshots"
WIDTHS, THEMES = (360, 1600), ("light", "dark")
SECTIONS = ("overview", "claims", "tables", "bits", "unit", "board", "figures")
LIMIT = 8_000_000
KINDS = {
    "tanh": {},
    "sigmoid": {"underlying": "sigmoid"},
    "rectified": {"rectified": True},
    "rectified-full": {"rectified": True, "placement": "full"},
}


@pytest.fixture(scope="module")
def figures(tmp_path_factory):
    return made(tmp_path_factory)


@pytest.fixture(scope="module")
def path(figures, tmp_path_factory):
    """A report on every cell, with a few networks that were lost, and all figures."""
    return write(synthetic_rows.rows(), figures, tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def opened(browser):
    """A function that opens a page, which must not complain or load anything."""
    contexts, complaints = [], []

    def open_page(path, width=1600, theme="light"):
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=theme, reduced_motion="reduce"
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(180_000)  # a busy machine takes its time over large pictures
        page.on("console", lambda m: complaints.append(m.text) if m.type != "log" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda r: complaints.append(r.url[:80]) if alien(r.url, path) else None)
        page.goto(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


def alien(url, path):
    return url.partition("#")[0] != path.as_uri() and not url.startswith("data:")


@pytest.fixture(scope="module")
def page(opened, path):
    return opened(path)


@pytest.fixture
def fresh(opened, path):
    """A page of its own, for tests that change much."""
    return opened(path)


def numbers(page, table, view, column):
    """What the rows of a table show in a column, from top to bottom."""
    return page.eval_on_selector_all(
        f"[id='{table}'] tbody tr",
        f"(rows) => rows.map((row) => row.cells[{column + 1}].dataset.{view})",
    )


def visible_text(page, selector):
    return page.locator(selector).first.inner_text().strip()


def test_the_whole_page_is_small_and_complete(path, page):
    assert path.stat().st_size < LIMIT
    assert page.locator(".missing").count() == 0
    assert page.locator("#figures img").count() == len(FIGURES) + len(MORE) - 1
    broken = "(all) => all.filter((one) => !one.complete || !one.naturalWidth).length"
    assert page.eval_on_selector_all("img", broken) == 0
    files = {one.name for one in (path.parent / "figures").iterdir()}
    assert files == {f"{n}.{form}" for n in (*FIGURES, *MORE) for form in ("png", "svg", "pdf")}


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_screenshots(opened, path, width, theme):
    """For a person to look at; what can be told without one is checked."""
    page = opened(path, width, theme)
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.screenshot(path=SCREENSHOTS / f"{width}-{theme}.png")
    for name in SECTIONS:
        assert page.locator(f"#{name}").bounding_box()["height"] > 200
        if name != "tables":
            page.locator(f"#{name}").screenshot(path=SCREENSHOTS / f"{width}-{theme}-{name}.png")
    for name in EXPERIMENTS:
        place = page.locator(f"[aria-labelledby=experiment-{name}]")
        place.screenshot(path=SCREENSHOTS / f"{width}-{theme}-tables-{name}.png")
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    brightness = sum(int(n) for n in background.removeprefix("rgb(").rstrip(")").split(","))
    assert (brightness > 600) == (theme == "light")
    # Letters of the plots stay large enough to be read.
    smallest = page.evaluate(
        """() => Math.min(...[...document.querySelectorAll("main svg text")]
            .map((one) => one.getBoundingClientRect().height).filter((height) => height))"""
    )
    assert smallest > 8.5


@pytest.mark.parametrize("width", WIDTHS)
def test_labels_of_the_plots_do_not_lie_on_one_another(opened, path, width):
    page = opened(path, width)
    overlapping = page.evaluate(
        """() => [...document.querySelectorAll(".panel svg, #unit-chart svg")].filter((svg) => {
            const boxes = [...svg.querySelectorAll("text")]
                .map((one) => one.getBoundingClientRect()).filter((box) => box.width);
            const edge = svg.getBoundingClientRect();
            return boxes.some((a, k) => a.left < edge.left - 1 || a.right > edge.right + 1
                || boxes.slice(k + 1).some((b) =>
                    Math.min(a.right, b.right) - Math.max(a.left, b.left) > 0.5
                    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 2));
        }).map((svg) => svg.getAttribute("aria-label"))"""
    )
    assert overlapping == []


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_keeps_people_out(opened, path, width, theme):
    page = opened(path, width, theme)
    page.evaluate(axe())
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    # Another view has other colours and is the same page otherwise.
    runs = {"ours": {}, "difference": {"runOnly": ["color-contrast"]}}
    for view, options in runs.items():
        page.locator(f"[data-switch=all] input[value={view}]").check()
        found = page.evaluate(
            "(options) => axe.run({ resultTypes: ['violations'], ...options })", options
        )
        serious = {
            one["id"]: [node["html"][:200] for node in one["nodes"][:3]]
            for one in found["violations"]
            if one["impact"] in ("serious", "critical")
        }
        assert serious == {}


def test_views_of_a_table(fresh):
    cell = "td[data-cell='regression-2.sudo-16.20']"
    assert visible_text(fresh, cell).startswith("0.6")
    fresh.locator("[data-switch=regression-2] input[value=published]").check()
    assert visible_text(fresh, cell) == "0.60"
    assert visible_text(fresh, "td[data-cell='regression-4.sudo-16.20']") != "0.00"
    other = fresh.locator("[id=regression-4]").get_attribute("data-view")
    assert other == "ours"
    fresh.locator("[data-switch=all] input[value=difference]").check()
    views = fresh.eval_on_selector_all(".block", "(all) => all.map((one) => one.dataset.view)")
    assert views == ["difference"] * len(GRIDS)
    assert fresh.locator("[data-switch=mnist-4] input[value=difference]").is_checked()
    shown = float(visible_text(fresh, cell).replace("\N{MINUS SIGN}", "-"))
    said = float(fresh.locator(cell).get_attribute("data-difference"))
    assert shown == pytest.approx(said, abs=0.0051)


@pytest.mark.parametrize(("table", "best"), [("mnist-4", max), ("memorization-2", min)])
@pytest.mark.parametrize("view", ["ours", "published", "difference"])
def test_columns_sort_best_first_and_back(fresh, table, best, view):
    fresh.locator(f"[data-switch='{table}'] input[value={view}]").check()
    before = numbers(fresh, table, view, 1)
    head = fresh.locator(f"[id='{table}'] thead th").nth(2)
    head.locator("button").click()
    known = [float(n) for n in numbers(fresh, table, view, 1) if n is not None]
    assert known == sorted(known, reverse=best is max)
    assert head.get_attribute("aria-sort") == ("descending" if best is max else "ascending")
    head.locator("button").click()
    turned = numbers(fresh, table, view, 1)
    assert [float(n) for n in turned if n is not None] == sorted(known, reverse=best is min)
    if None in turned:
        assert set(turned[len(known) :]) == {None}  # what has no number stays below
    fresh.locator(f"[id='{table}'] thead button").first.click()
    assert numbers(fresh, table, view, 1) == before
    assert head.get_attribute("aria-sort") == "none"


def test_sorting_follows_the_view(fresh):
    fresh.locator("[id='mnist-4'] thead button").nth(1).click()
    fresh.locator("[data-switch=mnist-4] input[value=published]").check()
    shown = [float(n) for n in numbers(fresh, "mnist-4", "published", 0)]
    assert shown == sorted(shown, reverse=True)


def test_pointing_at_a_cell_or_a_point_shows_its_details(fresh):
    tip = fresh.locator("#tip")
    assert not tip.is_visible()
    fresh.locator("td[data-cell='checkerboard-2.sudo-16.50']").hover()
    for words in ("sudo-16, 50 units, checkerboard-2", "replica", "Learning rate", "CPU time"):
        assert words in tip.inner_text()
    fresh.locator("[id='checkerboard-2'] circle[data-plot=ours]").nth(3).hover(force=True)
    assert "sudo-16, 5 units, checkerboard-2" in tip.inner_text()
    box = tip.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 1600
    fresh.mouse.move(2, 400)
    assert not tip.is_visible()


def test_cells_are_reached_with_the_keyboard(fresh):
    first = fresh.locator("td[data-cell='checkerboard-1.tanh.5']")
    fresh.locator("[id='checkerboard-1'] thead button").last.focus()
    fresh.keyboard.press("Tab")
    assert first.evaluate("(one) => one === document.activeElement")
    for key in ("ArrowDown", "ArrowRight", "ArrowDown", "End"):
        fresh.keyboard.press(key)
    focused = fresh.evaluate("document.activeElement.dataset.cell")
    assert focused == "checkerboard-1.sudo-2.200"
    tip = fresh.locator("#tip")
    assert "sudo-2, 200 units" in tip.inner_text()
    assert fresh.evaluate("document.activeElement.getAttribute('aria-describedby')") == "tip"
    fresh.keyboard.press("Escape")
    assert not tip.is_visible()
    fresh.keyboard.press("Tab")  # one stop a table
    assert fresh.evaluate("document.activeElement.dataset.cell") is None


def test_details_stay_where_the_focus_scrolls_to(opened, path):
    page = opened(path, width=360)
    page.set_viewport_size({"width": 360, "height": 400})
    page.locator("td[data-cell='mnist-4.tanh.2']").focus()
    for _ in range(9):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("End")
    page.wait_for_timeout(200)
    tip, cell = page.locator("#tip"), page.locator("td[data-cell='mnist-4.sudo-256.100']")
    assert "sudo-256, 100 units, mnist-4" in tip.inner_text()
    for box in (tip.bounding_box(), cell.bounding_box()):
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= 400


def test_the_first_stop_skips_the_navigation(fresh):
    fresh.keyboard.press("Tab")
    assert fresh.evaluate("document.activeElement.textContent") == "Skip to the content"
    fresh.keyboard.press("Enter")
    assert fresh.evaluate("document.activeElement.id") == "main"


def test_evidence_is_one_click_away(fresh):
    claim = fresh.locator("#claims details").nth(4)
    assert not claim.locator("li").first.is_visible()
    claim.locator("summary").click()
    assert "2 L levels as good as L" in claim.locator("li").first.inner_text()


# ------------------------------------------------------------------ the unit


def in_page(page, levels, kind):
    return page.evaluate(
        """([levels, kind]) => {
            const unit = window.sudonet.staircase(levels, kind);
            return [unit.thresholds, unit.values, unit.outputs, unit.bits];
        }""",
        [levels, kind],
    )


@pytest.mark.parametrize("kind", KINDS)
def test_the_unit_is_staircase_for_every_number_of_levels(page, kind):
    units = page.evaluate(
        """(kind) => Array.from({ length: 255 }, (_, k) => {
            const unit = window.sudonet.staircase(k + 2, kind);
            return [unit.thresholds, unit.values, unit.outputs, unit.bits];
        })""",
        kind,
    )
    same = of = 0
    for levels, (thresholds, values, outputs, bits) in enumerate(units, 2):
        unit = Staircase(levels, **KINDS[kind])
        assert values == unit.values.tolist()
        assert (outputs, bits) == (unit.outputs, unit.bits)
        # Two libraries may round a logarithm to neighbouring numbers, no further.
        assert len(thresholds) == len(unit.thresholds)
        off = np.abs(np.array(thresholds) - unit.thresholds) / np.spacing(np.abs(unit.thresholds))
        assert off.max() <= 2
        same, of = same + (off == 0).sum(), of + len(off)
    assert same / of > 0.9


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("levels", [2, 3, 4, 9, 16, 37, 64, 255, 256])
def test_codes_and_slopes_at_sampled_inputs(page, kind, levels):
    unit = Staircase(levels, **KINDS[kind])
    theirs = np.array(in_page(page, levels, kind)[0])
    sides = [np.nextafter(theirs, -np.inf), theirs, np.nextafter(theirs, np.inf)]
    ends = [-1e300, -40.0, -1.0, -5e-324, 0.0, 5e-324, 1.0, 40.0, 1e300]
    x = np.concatenate([np.linspace(-8, 8, 400), ends, *sides])
    found = page.evaluate(
        """([levels, kind, x]) => {
            const unit = window.sudonet.staircase(levels, kind);
            return [x.map(unit.code), x.map(unit.smooth), x.map(unit.derivative)];
        }""",
        [levels, kind, x.tolist()],
    )
    codes, smooth, slope = map(np.array, found)
    # Strictly below: on a threshold, and just below it, an input has the lower code.
    index = np.arange(len(theirs))
    assert np.array_equal(codes[-3 * len(theirs) :], np.concatenate([index, index, index + 1]))
    # Where both libraries agree on a threshold, so they do on its neighbours.
    agreed = np.tile(theirs == unit.thresholds, 3)
    plain = np.concatenate([np.ones(409, bool), agreed])
    assert np.array_equal(codes[plain], unit.codes(x)[plain])
    np.testing.assert_allclose(smooth, unit.smooth(x), rtol=1e-14, atol=1e-16)
    np.testing.assert_allclose(slope, unit.derivative(x), rtol=1e-14, atol=0)


def test_the_controls_of_the_unit(fresh):
    readout = fresh.locator("#unit-readout")
    fresh.locator("#unit-number").fill("16")
    fresh.locator("#unit-number").press("Enter")
    assert fresh.locator("#unit-levels").input_value() == "16"
    fresh.locator("#unit-kind input[value=rectified]").check()
    lines = dict(zip(*[iter(readout.inner_text().split("\n"))] * 2, strict=True))
    assert (lines["values it can emit"], lines["bits that tell them apart"]) == ("9", "4")
    fresh.locator("#unit-kind input[value=rectified-full]").check()
    lines = dict(zip(*[iter(readout.inner_text().split("\n"))] * 2, strict=True))
    assert (lines["values it can emit"], lines["bits that tell them apart"]) == ("16", "4")
    fresh.locator("#unit-kind input[value=tanh]").check()
    fresh.locator("#unit-levels").press("ArrowRight")
    assert fresh.locator("#unit-number").input_value() == "17"
    fresh.locator("#unit-input").evaluate(
        "(one) => { one.value = 0.4; one.dispatchEvent(new Event('input')); }"
    )
    code = int(Staircase(17).codes([0.4])[0])
    said = fresh.locator("#unit-said").inner_text()
    assert f"Input 0.40 has code {code} of 0 to 16" in said
    assert f"emits {Staircase(17).values[code]:.4f}" in said
    for text, expected in (("1", "2"), ("999", "256"), ("", "2")):
        fresh.locator("#unit-number").evaluate(
            "(one, text) => { one.value = text; one.dispatchEvent(new Event('change')); }", text
        )
        assert fresh.locator("#unit-levels").input_value() == expected


def test_the_drawn_stairs_are_the_unit(fresh):
    fresh.locator("#unit-number").fill("4")
    fresh.locator("#unit-number").press("Enter")
    path = fresh.locator("#unit-stairs").get_attribute("d")
    points = np.array([p.split(",") for p in path[1:].split("L")], float)
    xs, ys = points[1:-1:2, 0], points[::2, 1]
    unit = Staircase(4)
    assert len(xs) == 3
    # Even steps in height; the middle threshold is 0, and the others lie alike on both sides.
    assert np.diff(ys).tolist() == pytest.approx([np.diff(ys)[0]] * 3, abs=0.02)
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.02)
    width = points[-1, 0] - points[0, 0]
    assert (xs[1] - xs[0]) / width == pytest.approx(unit.thresholds[2] / 7, abs=1e-3)


# ------------------------------------------------------------------ board and bits


def test_the_board_is_the_recorded_network(fresh, figures):
    arrays, meta = read(figures / "checkerboard-levels.npz")
    data = fresh.evaluate("JSON.parse(document.getElementById('page-data').textContent).board")
    recorded = np.frombuffer(base64.b64decode(data["boards"]), np.uint8)
    assert np.array_equal(recorded.reshape(len(arrays), 125, 125), np.stack(list(arrays.values())))
    scale = np.array(data["scale"])
    for name in ("sudo-2", "tanh"):
        label = fresh.locator("#board-strip label", has=fresh.locator(f"b:text-is('{name}')"))
        label.click()
        assert f"{name}: {meta['values'][name]:.1f} %" in fresh.locator("#board-said").inner_text()
        address = fresh.locator("#board-large").evaluate("(canvas) => canvas.toDataURL()")
        with Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2]))) as image:
            drawn = np.asarray(image.convert("RGB"), int)[2::4, 2::4]
        expected = scale[arrays[name][::-1]]  # the lowest row is drawn last
        assert np.abs(drawn - expected).max() <= 1
    fresh.keyboard.press("ArrowRight")
    assert "relu" in fresh.locator("#board-said").inner_text()


def test_the_explorer_shows_every_network(fresh):
    for name in EXPERIMENTS:
        fresh.locator("#bits-experiment").select_option(name)
        data = fresh.evaluate("JSON.parse(document.getElementById('page-data').textContent).bits")
        experiment = next(one for one in data if one["name"] == name)
        for rectified in (True, False):
            fresh.locator("#bits-rectified").set_checked(rectified)
            points = [p for p in experiment["points"] if rectified or not p["rectified"]]
            assert fresh.locator("#bits-chart .point").count() == len(points)
            front = experiment["fronts"]["ours"]["all" if rectified else "sudo"]
            table = fresh.locator("#bits-front tbody th").all_text_contents()
            assert table == [experiment["points"][k]["name"] for k in front]


def test_the_explorer_places_points_by_bits_and_error(fresh):
    data = fresh.evaluate("JSON.parse(document.getElementById('page-data').textContent).bits")
    points = {p["cell"]: p for p in next(d for d in data if d["name"] == "regression")["points"]}
    boxes = fresh.locator("#bits-chart .point").evaluate_all(
        """(all) => all.map((one) => { const b = one.getBBox();
            return [one.dataset.cell, b.x + b.width / 2, b.y + b.height / 2]; })"""
    )
    x, y = np.array([[a, b] for _, a, b in boxes]).T
    bits = np.log([points[cell]["bits"] for cell, _, _ in boxes])
    error = np.log([points[cell]["ours"] for cell, _, _ in boxes])
    for drawn, value in ((x, bits), (y, error)):
        slope, start = np.polyfit(value, drawn, 1)
        assert np.abs(drawn - (slope * value + start)).max() < 0.1
    labels = fresh.locator("#bits-chart .asked-label").all_text_contents()
    assert sorted(labels) == ["10 units, L = 256", "20 units, L = 16"]


def test_the_explorer_by_keyboard(fresh):
    fresh.locator("#bits-chart").focus()
    fresh.keyboard.press("ArrowRight")
    said = fresh.locator("#bits-said").inner_text()
    assert "20 bits" in said
    assert fresh.locator("#bits-chart .current").count() == 1
    assert "regression-2" in fresh.locator("#tip").inner_text()
    for _ in range(95):  # and round again
        fresh.keyboard.press("ArrowRight")
    bits = int(
        fresh.locator("#bits-said").inner_text().rpartition(":")[2].split()[0].replace(",", "")
    )
    assert bits == 1600
    fresh.keyboard.press("ArrowRight")
    assert fresh.locator("#bits-said").inner_text() == said


# ------------------------------------------------------------------ themes, paper, gaps


def test_the_theme_follows_the_system_until_a_person_chooses(opened, path):
    page = opened(path, theme="dark")
    colour = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(colour)
    button = page.locator("#theme")
    assert button.inner_text() == "Light"
    button.click()
    assert page.evaluate(colour) != dark
    page.reload()
    assert page.evaluate(colour) != dark
    page.locator("#theme").click()
    assert page.evaluate(colour) == dark


def test_paper_is_white_and_has_everything(opened, path):
    page = opened(path, theme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator(".top").is_visible()
    assert not page.locator(".switch").first.is_visible()
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.locator("details[open]").count() == 0


def test_a_store_with_gaps_works_alike(opened, tmp_path):
    some = [row(80.0, seed=s, activation="sudo-8", steps=87_500) for s in range(2)]
    some.append(row(float("nan"), diverged=3, activation="sudo-2", steps=87_500))
    page = opened(write(some, tmp_path / "none", tmp_path / "report"))
    assert "has not been made" in page.locator("#board .missing").inner_text()
    assert visible_text(page, "td[data-cell='checkerboard-2.sudo-2.5']") == "none*"
    assert visible_text(page, "td[data-cell='checkerboard-2.tanh.5']") == "not run"
    page.locator("[id='checkerboard-2'] thead button").nth(1).click()
    order = numbers(page, "checkerboard-2", "ours", 0)
    assert order[0] == "80.0"
    assert order[1:] == [None] * 9
    assert "Nothing of Regression has been run" in page.locator("#bits-chart").inner_text()
    page.locator("#bits-side input[value=published]").check()
    assert page.locator("#bits-chart .point").count() == 96


def test_hostile_names_do_nothing(opened, tmp_path):
    name = "</script><script>window.harmed = 1</script><img src=x onerror='window.harmed = 1'>"
    some = [
        row(80.0, seed=s, source=name, engine=name, versions=name, steps=87_500) for s in range(2)
    ]
    page = opened(write(some, tmp_path / "none", tmp_path / "report"))
    page.locator("td[data-cell='checkerboard-2.tanh.5']").hover()
    assert name in page.locator("#tip").inner_text()
    assert page.evaluate("window.harmed") is None
