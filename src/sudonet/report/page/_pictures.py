"""The figures of the page: drawn into files, and embedded."""

from __future__ import annotations

import base64
import io
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from sudonet.report.figures import CAPTIONS, FORMATS, caption, draw, save
from sudonet.report.surfaces import BOTH, DPI, new_figure
from sudonet.study.figure_file import Arrays, FigureError, Meta, read
from sudonet.study.figures import FIGURES, MORE

TITLES = {
    "unit": "The unit",
    "parabola-2": "A parabola with 2 hidden units",
    "parabola-4": "A parabola with 4 hidden units",
    "parabola-10": "A parabola with 10 hidden units",
    "checkerboard-samples": "The samples of the board",
    "checkerboard-surfaces": "Decision surfaces",
    "checkerboard-binary": "Decision surfaces of binary units",
    "regression": "The regression surface, fits and errors",
    "histogram": "How often each level is used",
    "memorization": "A memorized picture",
    "autoencoder": "Photographs through an autoencoder",
    "checkerboard-levels": "One board, every number of levels",
}

MORE_CAPTIONS = {
    "autoencoder": (
        "Squares of two photographs, scaled down to 32 x 32, and what convolutional "
        "autoencoders of scale 1 make of them. The titles have the summed squared error of a "
        "square, on average, with colours from -1 to 1."
    ),
    "checkerboard-levels": (
        "What networks of 4 hidden layers of 10 units answer for every point of the board, one "
        "for every number of levels. The titles have the share of the board that gets the "
        "right colour."
    ),
}

COLOURS = 256
"""Colours of an embedded PNG: few enough for a small file, enough for smooth scales."""

COLOURFUL = ("autoencoder",)
"""Figures that need more colours than that; the page shows them as JPEGs."""

LINKS = "figures"
"""The folder of the files, beside the page."""


@dataclass(frozen=True)
class Picture:
    """A figure of the page.

    Parameters
    ----------
    name, title, caption
        What it shows.
    image
        The picture itself as a data: address; None if there is none.
    width, height
        Its size in pixels.
    files
        Format and address of its files, relative to the page.
    problem
        Why there is none.
    """

    name: str
    title: str
    caption: str
    image: str | None = None
    width: int = 0
    height: int = 0
    files: tuple[tuple[str, str], ...] = ()
    problem: str | None = None


def pictures(folder: Path, out: Path, formats: Collection[str] = FORMATS) -> Iterator[Picture]:
    """Draw every figure of ``folder`` into files below ``out``; say what is missing.

    A figure that was not made, or whose file is damaged, still has its place.
    """
    for name in (*FIGURES, *MORE):
        path = folder / f"{name}.npz"
        if not path.exists():
            problem = "This figure has not been made: sudonet reproduce figures makes it."
            yield Picture(name, TITLES[name], _about(name), problem=problem)
            continue
        try:
            yield _picture(name, *read(path), out / LINKS, formats)
        except FigureError as error:
            yield Picture(name, TITLES[name], _about(name), problem=f"{error}.")


def levels(folder: Path) -> dict[str, Any] | None:
    """The boards of ``checkerboard-levels`` for the page's script; None if not made.

    The boards follow one another, each row by row, lowest y first, a byte a point: 0 stands
    for -1, 255 for +1.
    """
    try:
        arrays, meta = read(folder / "checkerboard-levels.npz")
    except FigureError:
        return None
    boards = list(arrays.values())
    return {
        "names": list(arrays),
        "values": [round(meta["values"][name], 2) for name in arrays],
        "side": len(boards[0]),
        "boards": base64.b64encode(np.stack(boards).tobytes()).decode(),
        "scale": [[round(255 * part) for part in BOTH(n / 255)[:3]] for n in range(256)],
    }


def _about(name: str) -> str:
    return CAPTIONS[name] if name in CAPTIONS else MORE_CAPTIONS[name]


def _caption(name: str, meta: Meta) -> str:
    if name in CAPTIONS:
        return caption(name, meta)
    # All figures describe the training in the same words.
    return MORE_CAPTIONS[name] + caption("unit", meta).removeprefix(CAPTIONS["unit"])


def _picture(name: str, arrays: Arrays, meta: Meta, out: Path, formats: Collection[str]) -> Picture:
    more = {"autoencoder": _draw_squares, "checkerboard-levels": _draw_levels}
    figure = more[name](arrays, meta) if name in more else draw(name, arrays, meta)
    kind, image, size = _embedded(figure, name in COLOURFUL)
    out.mkdir(parents=True, exist_ok=True)
    wanted = [form for form in FORMATS if form in formats]
    for form in wanted:
        path = out / f"{name}.{form}"
        if form == kind:
            path.write_bytes(image)  # in few colours, a third of the bytes
        else:
            save(figure, path)
    address = f"data:image/{kind};base64,{base64.b64encode(image).decode()}"
    files = tuple((form, f"{LINKS}/{name}.{form}") for form in wanted)
    return Picture(name, TITLES[name], _caption(name, meta), address, *size, files)


def _embedded(figure: Figure, colourful: bool) -> tuple[str, bytes, tuple[int, int]]:
    """A figure as the page shows it: the format, the file and its size in pixels."""
    drawn, file = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, dpi=DPI)
    with Image.open(drawn) as image:
        plain = image.convert("RGB")
    if colourful:
        # No chroma subsampling, which would blur letters.
        plain.save(file, "JPEG", quality=88, subsampling=0, optimize=True)
        return "jpeg", file.getvalue(), plain.size
    # Maximum coverage leaves gradients smoother than the median cut does, in fewer bytes.
    few = plain.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE)
    few.save(file, "PNG", optimize=True)
    return "png", file.getvalue(), plain.size


def _draw_squares(arrays: Arrays, meta: Meta) -> Figure:
    """Photographs above, and a row for each network below."""
    columns = len(arrays["photographs"])
    figure = new_figure(0.3 + 0.98 * len(arrays))
    parts = figure.subfigures(len(arrays), 1, squeeze=False)
    for part, (name, images) in zip(parts.flat, arrays.items(), strict=True):
        value = meta["values"].get(name)
        title = "the photographs" if value is None else f"{name}: squared error {value:.0f}"
        part.suptitle(title, fontsize=9, x=0.01, ha="left")
        for axes, image in zip(part.subplots(1, columns), images, strict=True):
            axes.imshow(image.transpose(1, 2, 0), interpolation="nearest")
            axes.set_axis_off()
    return figure


def _draw_levels(arrays: Arrays, meta: Meta) -> Figure:
    """Ten boards, five side by side."""
    figure = new_figure(4.1)
    for axes, (name, board) in zip(figure.subplots(2, 5).flat, arrays.items(), strict=True):
        axes.imshow(board, BOTH, vmin=0, vmax=255, origin="lower", extent=(-1, 1, -1, 1))
        axes.set_title(f"{name}: {meta['values'][name]:.1f} %", fontsize=10)
        axes.set_xticks([])
        axes.set_yticks([])
    return figure
