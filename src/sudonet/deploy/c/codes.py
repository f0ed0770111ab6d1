"""The epilogue in C: from sums to codes or scores."""

from __future__ import annotations

from sudonet.deploy.c.code import Code, filled
from sudonet.deploy.c.numbers import get, put
from sudonet.deploy.c.plan import Rows

_CHANNEL = """
/* How many thresholds of the channel lie below a sum. */
static uint32_t @name@(const net_rows *l, uint32_t channel, int32_t sum)
{
    const int32_t *table = l->thresholds + channel * l->count;
    uint32_t code = 0u, left = l->count;
    while (left > 1u) {
        const uint32_t half = left / 2u;
        if (table[code + half - 1u] < sum) {
            code += half;
        }
        left -= half;
    }
    return table[code] < sum ? code + 1u : code;
}
"""

_NARROW = """
/* The same with thresholds of l->width bytes: unsigned, as sums are when 2^31 is added. */
static uint32_t @name@(const net_rows *l, uint32_t channel, int32_t sum)
{
    const uint8_t *table = l->narrow + channel * l->count * l->width;
    const uint32_t lifted = (uint32_t)sum + 0x80000000u;
    uint32_t code = 0u, left = l->count;
    while (left > 0u) {
        const uint32_t half = left / 2u;
        const uint8_t *at = table + (code + half) * l->width;
        uint32_t threshold = 0u, i;
        for (i = 0u; i < l->width; i++) {
            threshold = threshold << 8 | at[i];
        }
        if (threshold + l->lift < lifted) {
            code += half + 1u;
            left -= half + 1u;
        } else {
            left = half;
        }
    }
    return code;
}
"""

_SHARED = """
/* How many thresholds, which all channels share, lie below a sum in fixed point. */
static uint32_t @name@(const net_rows *l, uint32_t channel, int32_t sum)
{
    const int64_t fixed = (int64_t)sum * l->factor[channel] + l->constant[channel];
    uint32_t code = 0u, left = l->count;
    while (left > 1u) {
        const uint32_t half = left / 2u;
        if (l->levels[code + half - 1u] < fixed) {
            code += half;
        }
        left -= half;
    }
    return l->levels[code] < fixed ? code + 1u : code;
}
"""

_SCORE = """
/* Keeps a score, or the best one and its place if there is no room for all. */
static void @name@(net_result *result, uint32_t place, int64_t score)
{
    if (result->output != 0) {
        result->output[place] = score;
    } else if (place == 0u || score > result->best) {
        result->best = score;
        result->place = place;
    }
}
"""

_EMIT = """
/* Codes of the sums that were kept. */
static void @name@(const net_rows *l, uint32_t first, const uint8_t *kept, uint32_t place,
                   uint8_t *y)
{
    uint32_t row;
    for (row = 0u; row < l->rows; row++) {
        const uint32_t channel = first + row;
        const int32_t sum = @get@(kept, row);
@lines@    }
}
"""

_KEEP = """
            if (place == 0u || sum > @get@(y, row + i)) {
                @put@(y, row + i, (uint32_t)sum);
            }
"""


def emit(code: Code, rows: Rows, deep: str) -> str:
    """C lines for the ``sum`` of a ``channel``, indented by ``deep``."""
    index = "place + channel * l->plane"
    if rows.after == "scores":
        score = code.add("net_score", _SCORE)
        return (
            f"{deep}{score}(y, {index},\n"
            f"{deep}          (int64_t)sum * l->factor[channel] + l->constant[channel]);\n"
        )
    text = {"channel": _CHANNEL, "narrow": _NARROW, "shared": _SHARED}[rows.after]
    found = f"{code.add(f'net_code_{rows.after}', text)}(l, channel, sum)"
    value = f"l->emitted[{found}]" if rows.mapped else found
    return f"{deep}{put(code, rows.out)}(y, {index}, {value});\n"


def emit_kept(code: Code, rows: Rows) -> str:
    """``void emit(l, first, kept, place, y)``."""
    return code.add(
        f"net_emit_{rows.after}_{rows.out}{'_mapped' if rows.mapped else ''}",
        _EMIT,
        get=get(code, "s32"),
        lines=emit(code, rows, "        "),
    )


def keep(code: Code) -> str:
    """C lines that keep a sum if it is the largest of its pooling window."""
    return filled(_KEEP, get=get(code, "s32"), put=put(code, "s32"))
