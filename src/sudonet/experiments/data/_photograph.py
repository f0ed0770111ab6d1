"""The picture that networks memorize."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sudonet.experiments.data._bundled import photograph
from sudonet.experiments.data._source import DataError, Source

if TYPE_CHECKING:
    from PIL.Image import Image

SIDE = 150
TILES, LIMIT = 2, 3.0
"""Local contrast is equalised, a little, in 2 x 2 tiles of 75 x 75 pixels: see docs/recipe.md."""

BUNDLED = "china.jpg, scikit-learn's photograph by danielbuechele (CC BY 2.0)"
DEEP = ("I", "F")
"""First letters of Pillow's modes of more than 8 bits, which its conversion to grey clips."""


@dataclass(frozen=True, eq=False)
class Picture:
    """Grey values from 0 to 1, float32 (150, 150)."""

    pixels: NDArray[np.float32]
    source: Source


def picture(file: Path | None = None) -> Picture:
    """A picture to memorize: its central square, grey, with equalised local contrast.

    The paper's own picture was never published, so any picture stands in for it. The
    equalisation takes the place of the paper's pseudo-HDR step.

    Parameters
    ----------
    file
        Any picture that Pillow reads; a photograph that comes with scikit-learn by default.

    Raises
    ------
    DataError
        If the file is missing or cannot be read.
    """
    if file is None:
        name, grey = BUNDLED, _bundled()
    else:
        name, grey = f"the picture {file.name}", _read(file)
    pixels = equalised(grey)
    return Picture(pixels, Source.of(name, pixels, stand_in_for="the paper's picture"))


def equalised(
    grey: NDArray[np.uint8], tiles_a_side: int = TILES, limit: float = LIMIT
) -> NDArray[np.float32]:
    """Contrast-limited adaptive histogram equalisation of a picture of 150 x 150.

    Every tile has a curve from its own histogram, in which no grey value counts for more than
    ``limit`` times the mean count of all values, so that even areas stay near their value;
    between the centres of tiles, the curves are interpolated. Zuiderveld, "Contrast Limited
    Adaptive Histogram Equalization", Graphics Gems IV, 1994.
    """
    n, size = tiles_a_side, SIDE // tiles_a_side
    tiles = grey.reshape(n, size, n, size).swapaxes(1, 2).reshape(n, n, -1)
    curves = np.apply_along_axis(_curve, 2, tiles, limit)
    place = np.clip((np.arange(SIDE) + 0.5) / size - 0.5, 0, n - 1)  # in tiles' centres
    low = np.minimum(place.astype(int), n - 2)
    near = place - low
    pixels = np.zeros((SIDE, SIDE))
    for down, vertical in ((0, 1 - near), (1, near)):
        for right, horizontal in ((0, 1 - near), (1, near)):
            curve = curves[(low + down)[:, None], (low + right)[None, :], grey]
            pixels += vertical[:, None] * horizontal[None, :] * curve
    return np.clip(pixels, 0, 1).astype(np.float32)


def _curve(tile: NDArray[np.uint8], limit: float) -> NDArray[np.float64]:
    """The new value, 0 to 1, of each of the 256 grey values."""
    counts = np.bincount(tile, minlength=256)
    clipped = np.minimum(counts, limit * tile.size / 256)
    return np.cumsum(clipped + (tile.size - clipped.sum()) / 256) / tile.size


def _bundled() -> NDArray[np.uint8]:
    from PIL.Image import fromarray

    return central_square(fromarray(photograph("china.jpg")))


def _read(file: Path) -> NDArray[np.uint8]:
    from PIL import Image, ImageOps

    if not file.is_file():
        state = "is not a file" if file.exists() else "does not exist"
        raise DataError(f"the picture {file} {state}: correct its name, or use the default picture")
    try:
        with Image.open(file) as image:
            if not image.mode.startswith(DEEP):
                # Cameras store the orientation instead of rotating the picture.
                return central_square(ImageOps.exif_transpose(image))
    # SyntaxError is what Pillow raises for some damaged files.
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(
            f"the picture {file} cannot be read ({error}): give a picture in PNG, JPEG or another "
            "form that Pillow reads"
        ) from error
    raise DataError(
        f"the picture {file} has more than 8 bits a channel (mode {image.mode}): "
        "save it with 8, as PNG or JPEG"
    )


def central_square(image: Image) -> NDArray[np.uint8]:
    """The middle of a picture, grey, 150 x 150."""
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    square = image.crop((left, top, left + side, top + side)).convert("L")
    from PIL.Image import Resampling

    return np.asarray(square.resize((SIDE, SIDE), Resampling.LANCZOS))
