"""Write the tables of results.sqlite as Markdown: run it with ``python results/update.py``."""

from pathlib import Path

from sudonet.experiments import GRIDS
from sudonet.report.claims import judge
from sudonet.report.summary import HEADINGS, agreements, all_cells, line
from sudonet.report.tables import render
from sudonet.study.store import Store

HERE = Path(__file__).parent
STORE = HERE / "results.sqlite"


def pages() -> dict[Path, str]:
    """What every file should hold."""
    with Store.read(STORE) as store:
        rows = store.rows()
    tables = all_cells(rows)
    found = {
        HERE / "tables" / f"{name}.md": render(GRIDS[name], cells, "md")
        for name, cells in tables.items()
        if cells
    }
    hours = sum(row.cpu_seconds for row in rows) / 3600
    lines = [
        "# Results so far",
        "",
        f"{len(rows):,} networks, {hours:.1f} CPU hours. Cells that are missing were not run yet;",
        "those trained by less than the full protocol say so in [tables/](tables).",
        "",
        "| " + " | ".join(HEADINGS) + " |",
        "|---" + "|--:" * (len(HEADINGS) - 1) + "|",
    ]
    lines += ["| " + " | ".join(line(one)) + " |" for one in agreements(tables)]
    verdicts = judge(tables)
    decided = sum(one.verdict != "undecided" for one in verdicts)
    lines += ["", f"## The paper's claims: {decided} of {len(verdicts)} decided", ""]
    lines += ["| | claim | verdict |", "|--:|---|---|"]
    lines += [f"| {one.number} | {one.claim} | {one.verdict} |" for one in verdicts]
    lines += ["", "`sudonet claims --store results/results.sqlite` shows the numbers behind each."]
    found[HERE / "README.md"] = "\n".join(lines) + "\n"
    return found


if __name__ == "__main__":
    for path, text in pages().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    print(f"wrote {HERE / 'README.md'} and the tables")
