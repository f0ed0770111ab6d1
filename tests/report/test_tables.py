import csv
import io
import json
from dataclasses import asdict, fields

import pytest
from rich.console import Console

from sudonet.experiments import GRIDS, TableGrid
from sudonet.report.agreement import agreement
from sudonet.report.cell import Cell
from sudonet.report.tables import render, table
from tests.report.report_rows import cell, printed

GRID = TableGrid("checkerboard-2", "checkerboard", "2", (5, 10), ("tanh", "relu", "sudo-2"))
REDUCED = "reduced: 1 of 3 rates, 20 % of the steps"
CELLS = {
    ("tanh", 5): cell(82.04, spread=0.41),
    ("tanh", 10): cell(94.3, spread=1.26, full=False, protocol=REDUCED),
    ("relu", 5): cell(80.0, spread=None, replicas=1, full=False, protocol=REDUCED),
    ("relu", 10): cell(90.0, spread=0.4, replicas=2, trials=3, diverged=1),
    ("sudo-2", 5): cell(None, spread=None, replicas=0, reason="all 3 networks diverged"),
}
PICTURE = TableGrid("memorization-4", "memorization", "4", (50,), ("tanh", "relu"))
STAND_IN = {"source": "china.jpg", "stand_in_for": "the pier"}
PICTURES = {
    ("tanh", 50): cell(500.0, spread=2.0, **STAND_IN),
    ("relu", 50): cell(600.0, spread=3.0, **STAND_IN),
}


TERMINAL = """\
             checkerboard-2: accuracy, %, higher is better
┏━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━━━━━┓
┃                ┃                  5 units ┃                 10 units ┃
┡━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━━━━━┩
│ tanh           │             82.0= (81.3) │             94.3~ (97.5) │
│                │                 ±0.4 n=3 │              ±1.3 n=3 r1 │
│ relu           │             80.0! (71.9) │             90.0= (91.1) │
│                │                   n=1 r1 │              ±0.4 n=2 d2 │
│ sudo-2         │              none (54.4) │                 - (71.1) │
│                │                       d3 │                          │
└────────────────┴──────────────────────────┴──────────────────────────┘
Ours, in brackets the paper's
= within the paper's noise (2), ~ within three times, ! beyond
Spearman 1.00, ceiling 1.00; mean difference +1.1
50 % of the cells within noise, 75 % within three times
4 of 50 cells, 2 by the full protocol
Data: a board
Engine: native-avx2
r1: reduced: 1 of 3 rates, 20 % of the steps
d2: 1 of 3 networks diverged
d3: all 3 networks diverged"""

MARKDOWN = """\
### checkerboard-2: accuracy, %, higher is better

| | 5 units | 10 units |
|---|---:|---:|
| tanh | 82.0= (81.3)<br>±0.4 n=3 | 94.3~ (97.5)<br>±1.3 n=3 r1 |
| relu | 80.0! (71.9)<br>n=1 r1 | 90.0= (91.1)<br>±0.4 n=2 d2 |
| sudo-2 | none (54.4)<br>d3 | - (71.1) |

- Ours, in brackets the paper's
- = within the paper's noise (2), ~ within three times, ! beyond
- Spearman 1.00, ceiling 1.00; mean difference +1.1
- 50 % of the cells within noise, 75 % within three times
- 4 of 50 cells, 2 by the full protocol
- Data: a board
- Engine: native-avx2
- r1: reduced: 1 of 3 rates, 20 % of the steps
- d2: 1 of 3 networks diverged
- d3: all 3 networks diverged
"""

LATEX = r"""\begin{table}
\caption{memorization-4: sum of squared errors, lower is better}
\begin{tabular}{lr}
\hline
 & 50 units \\
\hline
tanh & 500.00 (878.56) \\
 & /tanh 1.00 (1.00) \\
 & $\pm$2.00 n=3 \\
relu & 600.00 (937.17) \\
 & /tanh 1.20$\sim$ (1.07) \\
 & $\pm$3.00 n=3 \\
\hline
\end{tabular}

Ours, in brackets the paper's; compared by ratio to tanh \\
= within the paper's noise (0.13), $\sim$ within three times, ! beyond \\
Spearman not defined, ceiling 0.81; mean difference +0.13 \\
0 \% of the cells within noise, 100 \% within three times \\
2 of 30 cells, 2 by the full protocol \\
Data: china.jpg, which stands in for the pier \\
Engine: native-avx2 \\
\end{table}
"""


def as_text(grid, cells):
    console = Console(file=io.StringIO(), width=100, color_system=None)
    console.print(table(grid, cells))
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


def test_in_the_terminal():
    assert as_text(GRID, CELLS) == TERMINAL


def test_markdown():
    assert render(GRID, CELLS, "md") == MARKDOWN


def test_latex():
    assert render(PICTURE, PICTURES, "latex") == LATEX


def test_colours_say_what_the_marks_say():
    columns = table(GRID, CELLS).columns
    styles = [[text.style for text in column.cells] for column in columns[1:]]
    assert styles == [["green", "red", "red"], ["yellow", "green", "dim"]]
    marks = [[text.plain for text in column.cells] for column in columns[1:]]
    assert "82.0= (81.3)" in marks[0][0]
    assert "80.0! (71.9)" in marks[0][1]
    assert "94.3~ (97.5)" in marks[1][0]


def test_a_reference_has_no_mark_and_no_colour():
    column = table(PICTURE, PICTURES).columns[1]
    tanh, relu = column.cells
    assert (tanh.style, tanh.plain) == ("", "500.00 (878.56)\n/tanh 1.00 (1.00)\n±2.00 n=3")
    assert relu.plain == "600.00 (937.17)\n/tanh 1.20~ (1.07)\n±3.00 n=3"


def test_names_with_brackets_are_not_taken_for_markup():
    text = as_text(GRID, {("tanh", 5): cell(80.0, source="[red]board[/red] [x]")})
    assert "[red]board[/red] [x]" in text


def test_an_empty_table_can_be_shown():
    text = as_text(GRID, {})
    assert "- (81.3)" in text
    assert "No cell can be compared" in text
    assert "0 of 50 cells" in text


@pytest.mark.parametrize("name", GRIDS)
@pytest.mark.parametrize("kind", ["md", "csv", "json", "latex"])
def test_every_table_in_every_format(name, kind):
    text = render(GRIDS[name], printed(name), kind)
    assert all(row in text for row in GRIDS[name].rows)
    assert text.endswith("\n")


@pytest.mark.parametrize("name", GRIDS)
def test_every_table_in_a_narrow_terminal(name):
    console = Console(file=io.StringIO(), width=80, color_system=None)
    console.print(table(GRIDS[name], printed(name)))
    assert max(map(len, console.file.getvalue().splitlines())) <= 80


def test_an_unknown_format_is_an_error_that_names_the_others():
    with pytest.raises(ValueError, match="one of md, csv, json, latex, got 'html'"):
        render(GRID, CELLS, "html")


def test_json_has_every_field():
    found = json.loads(render(GRID, CELLS, "json"))
    assert found["agreement"] == asdict(agreement(GRID, CELLS))
    assert [(one["activation"], one["column"]) for one in found["cells"]] == GRID.cells
    for record in found["cells"]:
        ours = CELLS.get((record["activation"], record["column"]))
        for name in {field.name for field in fields(Cell)} - {"others"}:
            assert record[name] == (None if ours is None else getattr(ours, name))
    first, missing = found["cells"][0], found["cells"][-1]
    assert (first["published"], first["ours_as_compared"]) == (81.3, 82.04)
    assert first["difference_in_noise"] == pytest.approx(0.37)
    assert (missing["published"], missing["difference"]) == (71.1, None)


def test_csv_has_a_line_a_cell_and_what_json_has():
    lines = list(csv.DictReader(io.StringIO(render(PICTURE, PICTURES, "csv"))))
    records = json.loads(render(PICTURE, PICTURES, "json"))["cells"]
    assert len(lines) == len(PICTURE.cells)
    for line, record in zip(lines, records, strict=True):
        assert line == {k: "" if v is None else str(v) for k, v in record.items()}
    assert float(lines[1]["ours_as_compared"]) == 1.2


def test_a_reason_of_many_lines_stays_on_one():
    failed = cell(None, spread=None, replicas=0, reason="it failed:\n  out of memory")
    assert "- d1: it failed: out of memory\n" in render(GRID, {("tanh", 5): failed}, "md")


def test_latex_escapes_what_it_must():
    text = render(GRID, {("tanh", 5): cell(80.0, source=r"a_b & 50 % {x} \y ~ #")}, "latex")
    assert r"a\_b \& 50 \% \{x\} \textbackslash{}y $\sim$ \#" in text
