"""Compare ways to close what the paper leaves open, on its tanh and relu rows alone.

    python research/calibrate.py checkerboard regression memorization mnist autoencoder
    python research/calibrate.py "mnist: the recipe"

trains the baselines of an experiment under every variant of variants.py, or under one, measures
how far they are from the published cells, and writes calibration.json and calibration.md. No SUDO
unit is trained here. The recipe is closed: this shows how it was found, and does not change it.
"""

import json
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from rich.progress import track
from variants import RATE, VARIANTS, Variant

from sudonet.experiments import BASELINES, EXPERIMENTS, GRIDS, Experiment, Trial
from sudonet.report.published import tables
from sudonet.train import Result, stream

HERE = Path(__file__).parent
RECORD = HERE / "calibration.json"
PAGE = HERE / "calibration.md"


def trials(experiment: Experiment, variant: Variant) -> Iterator[Trial]:
    for shape in variant.shapes:
        for column in variant.columns:
            for steps in variant.steps[-1:] if variant.curve else variant.steps:
                for activation in BASELINES:
                    for seed in range(variant.replicas):
                        yield Trial(experiment.name, shape, column, activation, RATE, seed, steps)


def published(experiment: str, shape: str, activation: str, column: int) -> list[float]:
    """The cell in the main text and in the appendix, where it has one."""
    grid = GRIDS[f"{experiment}-{shape}"]
    place = grid.columns.index(column)
    names = [name for name in (grid.id, f"r-{grid.id}") if name in GRIDS]
    return [tables()[name].rows[activation][place] for name in names]


def run(name: str, some: Sequence[Variant]) -> Iterator[list[dict[str, Any]]]:
    """Some variants of an experiment in turn: mean of its replicas for every cell."""
    experiment = EXPERIMENTS[name]
    task = experiment.task()
    for variant in some:
        ours = variant.task(task)
        planned = list(trials(experiment, variant))
        specs = [variant.spec(experiment, trial, ours.data) for trial in planned]
        values: dict[tuple[str, int, str, int], list[float]] = {}
        results = stream(specs, ours.data, judge=ours.score)
        for result in track(results, f"{name}: {variant.name}", total=len(specs)):
            t = planned[result.index]
            for steps in variant.steps if variant.curve else (t.steps,):
                place = t.shape, t.column, t.activation, steps
                value = (
                    _read_off(result, steps, len(ours.data))
                    if variant.curve
                    else result.measures.get("value", math.nan)
                )
                values.setdefault(place, []).append(value)
        yield [
            {
                "experiment": name,
                "variant": variant.name,
                "shape": shape,
                "column": column,
                "activation": activation,
                "steps": steps,
                "value": mean(found),
                "replicas": len(found),
                "source": ours.source.name,
                "published": published(name, shape, activation, column),
            }
            for (shape, column, activation, steps), found in sorted(values.items())
        ]


def _read_off(result: Result, steps: int, samples: int) -> float:
    """The summed error after so many steps, by the mean loss of the two epochs up to there."""
    epochs = steps * result.spec.batch_size // samples
    return samples * float(result.losses[epochs - 2 : epochs].mean())


def page(record: list[dict[str, Any]]) -> str:
    """The record as Markdown tables, one for each variant."""
    lines = []
    for name in EXPERIMENTS:
        mine = [r for r in record if r["experiment"] == name]
        for variant in dict.fromkeys(r["variant"] for r in mine):
            some = [r for r in mine if r["variant"] == variant]
            steps = sorted({r["steps"] for r in some})
            lines += ["", f"**{name}: {variant}**", ""]
            headings = ["network", "activation", "paper", *(f"{n:,} steps" for n in steps)]
            lines += ["| " + " | ".join(headings) + " |", "|---" * len(headings) + "|"]
            for place in sorted({(r["shape"], r["column"], r["activation"]) for r in some}):
                cells = {
                    r["steps"]: r
                    for r in some
                    if (r["shape"], r["column"], r["activation"]) == place
                }
                shape, column, activation = place
                paper = " / ".join(f"{v:g}" for v in next(iter(cells.values()))["published"])
                found = [f"{cells[n]['value']:.4g}" if n in cells else "" for n in steps]
                lines.append(
                    "| " + " | ".join([f"{shape} x {column}", activation, paper, *found]) + " |"
                )
    return "\n".join(lines)


BEGIN, END = "<!-- written by research/calibrate.py: begin -->", "<!-- end -->"


def write(record: list[dict[str, Any]]) -> None:
    """The record and the page that shows it, which must not differ."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    RECORD.write_text("[\n" + ",\n".join(json.dumps(r) for r in record) + "\n]\n")
    PAGE.write_text(f"{before}{BEGIN}\n{page(record)}\n\n{END}{after}")


def main() -> None:
    names = sys.argv[1:] or list(VARIANTS)
    record = json.loads(RECORD.read_text()) if RECORD.exists() else []
    for argument in names:
        name, _, wanted = (part.strip() for part in argument.partition(":"))
        if name not in VARIANTS:
            sys.exit(f"no experiment is called {name!r}: choose from {', '.join(VARIANTS)}")
        some = [v for v in VARIANTS[name] if wanted in ("", v.name)]
        if not some:
            known = "\n".join(v.name for v in VARIANTS[name])
            sys.exit(f"{name} has no variant {wanted!r}, only:\n{known}")
        for rows in run(name, some):
            ours = {(r["experiment"], r["variant"]) for r in rows}
            record = [r for r in record if (r["experiment"], r["variant"]) not in ours] + rows
            write(record)


if __name__ == "__main__":
    main()
