"""Weights and thresholds as the C reads them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sudonet.deploy.c.drivers import BIAS
from sudonet.deploy.c.plan import Planned, Rows
from sudonet.deploy.layers import Affine, ChannelThresholds, accumulator_bounds

COLUMNS = 96
"""Limit of the characters in a line of numbers."""


def weights(planned: Planned, at_once: int) -> tuple[NDArray[Any], list[int]]:
    """A layer's table of weights, and for every pass the elements of one group."""
    layer, rows = planned.layer, planned.rows
    assert isinstance(layer, Affine)
    assert rows is not None
    if layer.kind == "dense":
        return packed(layer.weights, rows, at_once), []
    parts, sizes = [], []
    for one in planned.passes:
        kernel = layer.by_output[:, :, list(one.rows.taps)][:, :, :, list(one.columns.taps)]
        groups = kernel.reshape(layer.groups, layer.channels // layer.groups, -1)
        tables = [packed(group, rows, at_once) for group in groups]
        parts += tables
        sizes.append(len(tables[0]))
    return np.concatenate(parts), sizes


def packed(matrix: NDArray[np.int8], rows: Rows, at_once: int) -> NDArray[Any]:
    """Rows of weights in words; ``at_once`` rows are interleaved, word by word.

    Examples
    --------
    >>> ternary = Rows("u8", 2, "", False, "scores", "", False)
    >>> [f"{n:08x}" for n in packed(np.array([[1, 0, -1, 1]], np.int8), ternary, 1)]
    ['55555586']
    """
    bits, per = rows.bits, rows.per_word
    count, inputs = matrix.shape
    words = rows.words(inputs)
    # The padding of the last word meets inputs of 0, so that its value does not matter.
    fields = np.full((count, words * per), BIAS[bits] if bits > 1 else 0, np.uint32)
    lifted = matrix.astype(np.int64) + BIAS[bits]
    fields[:, :inputs] = lifted // 2 if bits == 1 else lifted
    whole = count // at_once * at_once
    blocks = fields[:whole].reshape(count // at_once, at_once, words, per).swapaxes(1, 2)
    if bits < 8 and not rows.count and at_once == 4:
        blocks = _paired(blocks)
    joined = [_words(blocks, bits), _words(fields[whole:].reshape(count - whole, words, per), bits)]
    table = np.concatenate(joined)
    return table.astype("<u4").view(np.uint8) if bits == 8 else table


def _paired(blocks: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Fields of rows 0 and 1, and of 2 and 3, as the halves of words, for half the inputs each.

    (blocks, words, 4 rows, fields) becomes (blocks, words, 2 halves of inputs, 2 pairs of rows,
    2 rows, fields) and then words again.
    """
    many, words, _, per = blocks.shape
    split = blocks.reshape(many, words, 2, 2, 2, per // 2)
    paired: NDArray[np.uint32] = split.transpose(0, 1, 4, 2, 3, 5).reshape(many, words, 4, per)
    return paired


def _words(fields: NDArray[np.uint32], bits: int) -> NDArray[np.uint32]:
    """The last axis as bits of one word, the first field lowest."""
    shifts = np.arange(fields.shape[-1], dtype=np.uint32) * np.uint32(bits)
    words: NDArray[np.uint32] = np.bitwise_or.reduce(fields << shifts, axis=-1).reshape(-1)
    return words


def narrow(layer: Affine) -> tuple[NDArray[np.uint8], int]:
    """Thresholds in as few bytes as they need, big-endian, and the bytes of one.

    Thresholds that no sum reaches, or every sum passes, are clipped to the range of sums.
    """
    after = layer.after
    assert isinstance(after, ChannelThresholds)
    ends = accumulator_bounds(layer, layer.by_output).astype(np.int64)[:, None]
    table = np.clip(after.table.astype(np.int64), -ends - 1, ends)
    width = next(n for n in range(1, 5) if _fits(table, n))
    lifted = (table + 2 ** (8 * width - 1)).astype(">u4")
    return lifted.reshape(-1, 1).view(np.uint8)[:, 4 - width :].reshape(-1), width


def _fits(table: NDArray[np.int64], width: int) -> bool:
    limit = 2 ** (8 * width - 1)
    return bool(-limit <= table.min() and table.max() < limit)


def numbers(values: Iterable[int], kind: str) -> str:
    """A C initialiser: the numbers in lines, written so that each has the type ``kind``."""
    words = [_literal(int(value), kind) for value in values]
    lines, line = [], ""
    for word in words:
        if len(line) + len(word) + 2 > COLUMNS:
            lines.append(line)
            line = ""
        line += f"{word}, " if line else f"    {word}, "
    return "\n".join(one.rstrip() for one in [*lines, line])


def _literal(value: int, kind: str) -> str:
    if kind == "uint32_t":
        return f"0x{value:08x}u"
    if kind == "int64_t":
        return f"INT64_C({value})" if value > -(2**63) else "INT64_MIN"
    if kind == "int32_t" and value == -(2**31):
        return "INT32_MIN"
    return str(value)
