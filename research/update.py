"""Write what results/results.sqlite says: ``python research/update.py``.

That is the report page with its Markdown tables and PNG figures, results/README.md, the agreement
with the paper and its claims in docs/results.md, and the summary in README.md. The figures are
drawn from the arrays in figures/, which ``sudonet reproduce figures`` trained.
"""

import shutil
from pathlib import Path
from statistics import median

from sudonet.experiments import GRIDS
from sudonet.report.agreement import Agreement
from sudonet.report.claims import Verdict, judge
from sudonet.report.page import write
from sudonet.report.summary import HEADINGS, agreements, all_cells, line
from sudonet.report.tables import render
from sudonet.study.figures import histograms
from sudonet.study.store import Row, Store

ROOT = Path(__file__).parents[1]
ARRAYS = ROOT / "research" / "figures"
RESULTS = ROOT / "results"
STORE = RESULTS / "results.sqlite"
HISTOGRAM = "histogram.npz"
"""The one array that lies beside the store, too: ``sudonet claims`` needs it for claim 10."""

NEAR = 0.05
"""A table agrees if its rank correlation is at most so much below its ceiling."""

BEGIN, END = "<!-- written by research/update.py: begin -->", "<!-- end -->"


README = """# Results

{run}. [docs/results.md](../docs/results.md) says what they mean.

| file | holds |
|---|---|
| `results.sqlite` | every network of the recipe, a row each |
| `tables/` | every cell beside the paper's, with its replicas, spread and share of the protocol |
| `figures/` | the paper's figures, drawn again; claim 10 is judged by `histogram.npz` |
| `index.html` | the report; open it in a browser from a clone or a download of this folder |

    sudonet table checkerboard-2 --store results/results.sqlite
    sudonet claims --store results/results.sqlite      # the numbers behind each verdict

The arrays that the figures are drawn from are in [research/figures](../research/figures).
`sudonet report` makes the page again, with tables in LaTeX and figures in SVG and PDF beside it:

    mkdir -p out && cp -r results/results.sqlite research/figures out && sudonet report

`python research/update.py` writes this folder and what the documentation says of it.
"""


def stored() -> list[Row]:
    """Every network."""
    with Store.read(STORE) as store:
        return store.rows()


def pages(rows: list[Row]) -> dict[Path, str]:
    """What every file in Markdown should hold."""
    tables = all_cells(rows)
    found = {
        RESULTS / "tables" / f"{name}.md": render(GRIDS[name], cells, "md")
        for name, cells in tables.items()
    }
    hours = sum(row.cpu_seconds for row in rows) / 3600
    agreed, verdicts = agreements(tables), judge(tables, histograms(ARRAYS))
    cells = sum(one.cells_run for one in agreed)
    run = f"{len(rows):,} networks, {hours:.1f} CPU hours, {cells:,} of the 1,030 cells"
    found[RESULTS / "README.md"] = README.format(run=run)
    whole = [*agreement_lines(agreed), "", *claim_lines(verdicts)]
    found |= dict([_between(ROOT / "docs" / "results.md", whole)])
    found |= dict([_between(ROOT / "README.md", headline(run, agreed, verdicts))])
    return found


def agreement_lines(agreed: list[Agreement]) -> list[str]:
    return [
        "| " + " | ".join(HEADINGS) + " |",
        "|---" + "|--:" * (len(HEADINGS) - 1) + "|",
        *("| " + " | ".join(line(one)) + " |" for one in agreed),
    ]


def claim_lines(verdicts: list[Verdict]) -> list[str]:
    decided = sum(one.verdict != "undecided" for one in verdicts)
    return [
        f"## The paper's claims: {decided} of {len(verdicts)} decided",
        "",
        "| | claim | verdict |",
        "|--:|---|---|",
        *(f"| {one.number} | {one.claim} | {one.verdict} |" for one in verdicts),
    ]


def headline(run: str, agreed: list[Agreement], verdicts: list[Verdict]) -> list[str]:
    """By experiment: how far the rank correlation of its tables stays behind what noise allows."""
    lines = ["| | tables | cells | rank correlation | at best | within the paper's noise |"]
    lines += ["|---|--:|--:|--:|--:|--:|"]
    for name in dict.fromkeys(GRIDS[one.table].experiment for one in agreed):
        some = [one for one in agreed if GRIDS[one.table].experiment == name]
        ranks = [one.spearman for one in some if one.spearman is not None]
        within = [one.within_noise for one in some if one.within_noise is not None]
        run_cells, all_cells_ = (
            sum(getattr(one, which) for one in some) for which in ("cells_run", "cells_published")
        )
        lines.append(
            f"| {name} | {len(some)} | {run_cells} of {all_cells_} | {median(ranks):.2f} "
            f"| {median(one.ceiling for one in some):.2f} | {median(within):.0%} |"
        )
    words = [one.verdict for one in verdicts]
    said = ", ".join(
        f"{words.count(word)} {word}" for word in ("supported", "not supported", "undecided")
    )
    near = sum(one.spearman is not None and one.spearman >= one.ceiling - NEAR for one in agreed)
    return [
        f"{run}; medians over the tables of an experiment:",
        "",
        *lines,
        "",
        f"{near} of the {len(agreed)} tables come within {NEAR} of the rank correlation that the",
        f"paper's noise allows at best. Claims: {said}.",
    ]


def _between(path: Path, lines: list[str]) -> tuple[Path, str]:
    """A page with its marked part written anew."""
    before, begin, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{path} has no {BEGIN} ... {END}")
    return path, "\n".join([f"{before}{BEGIN}", "", *lines, "", f"{END}{after}"])


if __name__ == "__main__":
    networks = stored()
    page = write(networks, ARRAYS, RESULTS, formats=("png", "md"))
    shutil.copyfile(ARRAYS / HISTOGRAM, RESULTS / "figures" / HISTOGRAM)
    for path, text in pages(networks).items():
        path.write_text(text, encoding="utf-8")
    print(f"wrote {page}, {RESULTS / 'README.md'}, the tables, and what the docs say of them")
