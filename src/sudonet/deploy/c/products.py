"""C that calls the kernels for rows of any length and vectors of any storage."""

from __future__ import annotations

from sudonet.deploy.c import storage
from sudonet.deploy.c.code import Code, filled
from sudonet.deploy.c.kernels import counting, kernel, weight_type
from sudonet.deploy.c.numbers import get
from sudonet.deploy.c.plan import Rows

LONGEST = 2**15
"""Inputs of a row whose products, 255 * 255 each, add up to less than 2^31."""

CHUNK = 32
"""Codes that are unpacked at once; no word has more weights."""

_DOT = """
static void @name@(const uint8_t *x, uint32_t n, const @type@ *w, uint32_t *sums)
{
    @const@uint32_t words = n / @per@u;
@long@    @kernel@(x, w, words, sums);
@partial@}
"""

_LONG = """
    while (words > @most@u) {
        @kernel@(x, w, @most@u, sums);
        x += @inputs@u;
        w += @weights@u;
        words -= @most@u;
    }
"""

_PARTIAL = """
    if (n % @per@u != 0u) {
        uint8_t part[@bytes@];
        uint32_t i;
        x += words * @bytes@u;
        for (i = 0u; i < @bytes@u; i++) {
            part[i] = (uint8_t)(i < n % @per@u * @size@u ? x[i] : 0u);
        }
        @kernel@(part, w + words * @stride@u, 1u, sums);
    }
"""

_UNPACKED = """
static void @name@(const uint8_t *x, uint32_t n, const @type@ *w, uint32_t *sums)
{
    uint8_t part[@chunk@];
    uint32_t at, i;
    for (at = 0u; at < n; at += @chunk@u) {
        const uint32_t left = n - at < @chunk@u ? n - at : @chunk@u;
        const uint32_t words = (left + @last@u) / @per@u;
        for (i = 0u; i < @chunk@u; i++) {
            part[i] = (uint8_t)(i < left ? @get@(x, at + i) : 0);
        }
        @kernel@(part, w, words, sums);
        w += words * @stride@u;
    }
}
"""

_COUNTED = """
static void @name@(const uint8_t *x, uint32_t n, const uint32_t *w, uint32_t *sums)
{
    @kernel@(x, w, (n + 31u) / 32u, sums);
}
"""


def elements(rows: Rows) -> int:
    """Elements of a table in one word of a row."""
    return 4 if rows.bits == 8 else 1


def dot(code: Code, rows: Rows, count: int) -> str:
    """``void dot(x, n, w, sums)``: adds the products of ``count`` rows to as many sums."""
    kind, bits = rows.vector, rows.bits
    if rows.count:
        inner = counting(code, rows.count, count)
        return code.add(f"net_dot{count}_{rows.count}", _COUNTED, kernel=inner)
    name = f"net_dot{count}_{kind}_w{bits}"
    values: dict[str, object] = {
        "type": weight_type(bits),
        "per": rows.per_word,
        "stride": count * elements(rows),
    }
    if kind in storage.PACKED:
        values |= {"chunk": CHUNK, "last": rows.per_word - 1, "get": get(code, kind)}
        return code.add(name, _UNPACKED, kernel=kernel(code, "u8", bits, count), **values)
    size = storage.BITS[kind] // 8
    most = LONGEST // rows.per_word
    values |= {"kernel": kernel(code, kind, bits, count), "size": size}
    values |= {"bytes": rows.per_word * size, "most": most, "inputs": LONGEST * size}
    values |= {"weights": most * count * elements(rows)}
    long = kind == "u8" and (kind, bits) in code.long
    return code.add(
        name,
        _DOT,
        const="" if long else "const ",
        long=filled(_LONG, **values) if long else "",
        partial=filled(_PARTIAL, **values) if (kind, bits) in code.partial else "",
        **values,
    )
