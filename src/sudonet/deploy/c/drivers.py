"""C that loops over a layer: rows of weights, windows, pooling."""

from __future__ import annotations

from sudonet.deploy.c.code import Code
from sudonet.deploy.c.codes import emit, emit_kept, keep
from sudonet.deploy.c.kernels import weight_type
from sudonet.deploy.c.numbers import get, put, signed, total
from sudonet.deploy.c.plan import Planned, Rows
from sudonet.deploy.c.products import dot, elements
from sudonet.deploy.layers import MaxPool, SumPool

# A weight is field * step - bias.
STEP = {8: 1, 4: 1, 2: 1, 1: 2}
BIAS = {8: 128, 4: 8, 2: 1, 1: 1}

_ROWS = """
/* All rows of one group times one vector of n numbers. */
static void @name@(const net_rows *l, uint32_t n, const @type@ *w,@offset@@first@
                   const uint8_t *x, uint32_t place, @target@ *y)
{
    const uint32_t stride = (n + @last@u) / @per@u * @elements@u;
    const uint32_t start = @start@;
    uint32_t row = 0u;
    while (row < l->rows) {
        uint32_t sums[@most@], done = 1u, i;
@dots@        w += done * stride;
        for (i = 0u; i < done; i++) {
@channel@            const int32_t sum = @signed@(@sum@);
@emit@        }
        row += done;
    }
}
"""

_FOUR = """
        sums[0] = 0u;
        if (l->rows - row >= 4u) {
            sums[1] = 0u;
            sums[2] = 0u;
            sums[3] = 0u;
            @four@(x, n, w, sums);
            done = 4u;
        } else {
            @one@(x, n, w, sums);
        }
"""

_ONE = """
        sums[0] = 0u;
        @one@(x, n, w, sums);
"""

_GATHER = """
/* The inputs of one window, row by row, with padding outside of the image. */
static void @name@(const net_windows *l, const net_pass *p, uint32_t group, uint32_t row,
                   uint32_t column, const uint8_t *x, uint8_t *patch)
{
    /* Before the first row or column these wrap around to values beyond the image. */
    const uint32_t top = (uint32_t)p->rows.first + row * p->rows.step;
    const uint32_t left = (uint32_t)p->columns.first + column * p->columns.step;
    const uint32_t rows = p->rows.taps, columns = p->columns.taps, apart = p->columns.distance;
    const uint32_t end = (group + 1u) * l->channels@pad@;
    uint32_t k = 0u, channel, i, j;
    for (channel = group * l->channels; channel < end; channel++) {
        for (i = 0u; i < rows; i++) {
            const uint32_t y = top + i * p->rows.distance;
            const uint32_t width = y < l->height ? l->width : 0u;
            const uint32_t line = (channel * l->height + y) * l->width;
            uint32_t at = left;
            for (j = 0u; j < columns; j++) {
@tap@                k++;
                at += apart;
            }
        }
    }
}
"""

_TAP = """
                @put@(patch, k, at < width ? (uint32_t)@get@(x, line + at)@scale@ : pad);
"""

_TAP_MARKED = """
                @put@(patch, k, at < width ? (uint32_t)@get@(x, line + at) : 0u);
                @put@(patch + p->inputs / 8u, k, at < width ? 1u : 0u);
"""

_WINDOWS = """
static void @name@(const net_windows *l, const @type@ *w, const uint8_t *x, @target@ *y,
                   uint8_t *patch)
{
    uint32_t i, group, row, column;
    for (i = 0u; i < l->passes; i++) {
        const net_pass *p = l->pass + i;
        @clear@(patch, p->bytes);
        for (group = 0u; group < l->groups; group++) {
            for (row = 0u; row < p->rows.outputs; row++) {
                for (column = 0u; column < p->columns.outputs; column++) {
                    const uint32_t down = p->rows.out_first + row * p->rows.out_step;
                    const uint32_t across = p->columns.out_first + column * p->columns.out_step;
                    @gather@(l, p, group, row, column, x, patch);
                    @rows@(l->rows, p->inputs, w,@offset@ group * l->rows->rows, patch,
                           down * l->out_width + across, y);
                }
            }
            w += p->weights;
        }
    }
}
"""

_POOLED = """
/* Max pooling of sums: only the largest become codes. */
static void @name@(const net_windows *l, const @type@ *w, const uint8_t *x, uint8_t *y,
                   uint8_t *patch, uint8_t *kept)
{
    const net_pass *p = l->pass;
    uint32_t group, row, column, i, j;
    @clear@(patch, p->bytes);
    for (group = 0u; group < l->groups; group++) {
        for (row = 0u; row < l->out_height; row++) {
            for (column = 0u; column < l->out_width; column++) {
                for (i = 0u; i < l->pool_height; i++) {
                    for (j = 0u; j < l->pool_width; j++) {
                        @gather@(l, p, group, row * l->pool_down + i,
                               column * l->pool_across + j, x, patch);
                        @rows@(l->rows, p->inputs, w,@offset@ patch, i + j, kept);
                    }
                }
                @emit@(l->rows, group * l->rows->rows, kept, row * l->out_width + column, y);
            }
        }
        w += p->weights;
    }
}
"""

_CLEAR = """
/* Volatile, or compilers would call memset. */
static void @name@(volatile uint8_t *x, uint32_t bytes)
{
    for (; bytes > 0u; bytes--) {
        *x++ = 0u;
    }
}
"""

_POOL = """
/* The @what@ of every window. */
static void @name@(const net_pool *l, const uint8_t *x, uint8_t *y)
{
    uint32_t k = 0u, channel, row, column, i, j;
    for (channel = 0u; channel < l->channels; channel++) {
        for (row = 0u; row < l->out_height; row++) {
            for (column = 0u; column < l->out_width; column++) {
                int32_t found = @begin@;
                for (i = 0u; i < l->kernel_height; i++) {
                    /* Before the first row or column these wrap around. */
                    const uint32_t down = row * l->stride_height + i - l->pad_height;
                    const uint32_t width = down < l->height ? l->width : 0u;
                    for (j = 0u; j < l->kernel_width; j++) {
                        const uint32_t across = column * l->stride_width + j - l->pad_width;
                        if (across < width) {
                            const uint32_t line = (channel * l->height + down) * l->width;
                            const int32_t value = @get@(x, line + across);
@take@                        }
                    }
                }
                @put@(y, k, (uint32_t)found);
                k++;
            }
        }
    }
}
"""

_LARGER = """
                            if (value > found) {
                                found = value;
                            }
"""

_ADDED = """
                            found += value;
"""


def target_type(rows: Rows) -> str:
    return "uint8_t" if rows.out else "net_result"


def rows_function(code: Code, rows: Rows, *, kept: bool = False) -> str:
    """``void rows(l, n, w, [offset,] first, x, place, y)``.

    If sums are ``kept``, y gets the maximum of each sum and of what was there, or the sum
    itself if place is 0.
    """
    marks = [rows.count or f"{rows.vector}_w{rows.bits}"]
    marks += ["kept"] if kept else [rows.after, rows.out]
    marks += ["centred"] * rows.centred + ["mapped"] * (rows.mapped and not kept)
    one = dot(code, rows, 1)
    dots = _ONE if code.rows == 1 else _FOUR
    values: dict[str, object] = {"one": one}
    if code.rows == 4:
        values["four"] = dot(code, rows, 4)
    return code.add(
        "net_rows_" + "_".join(mark for mark in marks if mark),
        _ROWS.replace("@dots@", dots.lstrip("\n"))
        .replace("@emit@", keep(code) if kept else emit(code, rows, "            "))
        .replace("@sum@", _sum(rows))
        .replace("@start@", _start(code, rows)),
        type=weight_type(rows.bits),
        offset=" const int32_t *offset," if rows.centred else "",
        first="" if kept else " uint32_t first,",
        channel="" if kept else "            const uint32_t channel = first + row + i;\n",
        target="uint8_t" if kept else target_type(rows),
        last=rows.per_word - 1,
        per=rows.per_word,
        elements=elements(rows),
        most=code.rows,
        signed=signed(code),
        **values,
    )


def _start(code: Code, rows: Rows) -> str:
    """The start value of a sum: the part that all rows share."""
    if rows.count == "xor":
        # Inside the image, bits that differ count -1 and the others 1.
        return f"{total(code, 'b1', counted=True)}(x + n / 8u, n)"
    found = f"{total(code, rows.vector, counted=bool(rows.count))}(x, n)"
    bias = BIAS[rows.bits]
    return f"0u - {found if bias == 1 else f'{bias}u * {found}'}"


def _sum(rows: Rows) -> str:
    if rows.count == "xor":
        return "start - 2u * sums[i]"
    step = STEP[rows.bits]
    found = f"start + {'sums[i]' if step == 1 else f'{step}u * sums[i]'}"
    if not rows.centred:
        return found
    return f"l->doubled * ({found}) + (uint32_t)offset[row + i]"


def windows_function(code: Code, source: str, planned: Planned) -> str:
    """``void windows(l, w, x, y, patch)``."""
    rows, patch = planned.rows, planned.patch
    assert rows is not None
    assert patch is not None
    marked = rows.count == "xor"
    gather = code.add(
        f"net_gather_{source}_{'marked' if marked else patch.storage}"
        + ("_doubled" if planned.scale == 2 else ""),
        _GATHER.replace("@tap@", (_TAP_MARKED if marked else _TAP).lstrip("\n")),
        get=get(code, source),
        put=put(code, patch.storage),
        scale=" * 2u" if planned.scale == 2 else "",
        pad="" if marked else ", pad = l->pad",
    )
    kept = planned.pool is not None
    inner = rows_function(code, rows, kept=kept)
    name = gather.replace("gather", "pooled" if kept else "windows")
    name += inner.removeprefix("net_rows").removesuffix("_kept")
    values = {"clear": code.add("net_clear", _CLEAR), "gather": gather, "rows": inner}
    values |= {"type": weight_type(rows.bits), "target": target_type(rows)}
    values |= {"offset": " p->offset + group * l->rows->rows," if rows.centred else ""}
    if kept:
        following = emit_kept(code, rows)
        name += following.removeprefix("net_emit")
        return code.add(name, _POOLED, emit=following, **values)
    return code.add(name, _WINDOWS, **values)


def pool_function(code: Code, layer: MaxPool | SumPool, source: str, target: str) -> str:
    """``void pool(l, x, y)``."""
    largest = isinstance(layer, MaxPool)
    return code.add(
        f"net_{'largest' if largest else 'added'}_{source}_{target}",
        _POOL.replace("@take@", (_LARGER if largest else _ADDED).lstrip("\n")),
        what="largest" if largest else "sum",
        begin="INT32_MIN" if largest else "0",
        get=get(code, source),
        put=put(code, target),
    )
