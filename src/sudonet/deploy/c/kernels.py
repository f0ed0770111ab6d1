"""C that multiplies rows of weights with a vector: nearly all of the time is spent here.

Weights are stored unsigned, with an offset of 2^(bits - 1), which the sum of all inputs
corrects. So a weight takes one load, also on processors without a short signed load. Four rows
share each input that is loaded.

Weights of 8 bits lie in words of four inputs of a row. The DSP instruction that multiplies two
half words takes inputs 0 and 2, then 1 and 3, which one instruction each extracts from a word
of bytes.

Smaller weights of two rows lie in the halves of a word, so that one product with a byte
multiplies both. The sums of the halves are separated before they can overflow.
"""

from __future__ import annotations

from sudonet.deploy.c import storage
from sudonet.deploy.c.code import Code, filled
from sudonet.deploy.c.numbers import get, hold, ones, word

SUMS = "abcd"

_KERNEL = """
/* @rows@ over whole words: weights of @bits@ bit@plural@ times @numbers@. */
static void @name@(const uint8_t *x, const @type@ *w, uint32_t words, uint32_t *sums)
{
@body@@ending@}
"""

_FAST = """
#if defined(__ARM_FEATURE_DSP)
@fast@#else
@plain@#endif
"""

_BYTES = """
    @sign@ @zeros@;
@mask@    const uint8_t *end = w + @stride@u * words;
    while (w != end) {
@lines@        x += @step@;
        w += @stride@;
    }
"""

_HALVES_OF_BYTES = """
        const uint32_t v = @word@(x);
        const int16x2_t even = (int16x2_t)(v & mask);
        const int16x2_t odd = (int16x2_t)((v >> 8) & mask);
        uint32_t p;
"""

_HALVES_OF_NUMBERS = """
        const uint32_t u = @word@(x), v = @word@(x + 4);
        const int16x2_t even = (int16x2_t)((u & 0xffffu) | v << 16);
        const int16x2_t odd = (int16x2_t)(u >> 16 | (v & 0xffff0000u));
        uint32_t p;
"""

_TWO_PRODUCTS = """
        p = @word@(w@at@);
        @sum@ = __smlad((int16x2_t)(p & mask), even, @sum@);
        @sum@ = __smlad((int16x2_t)((p >> 8) & mask), odd, @sum@);
        NET_HOLD(mask);
"""

# For 4 bits two pairs of words, 8 inputs, make at most 8 * 15 * 255 in a half. For 2 bits it
# is 8 pairs, 64 * 2 * 255, and for 1 bit as many, 128 * 255.
_PAIRS = """
    uint32_t a = 0u, b = 0u, c = 0u, d = 0u, mask = @mask@u, pairs = 2u * words;
    NET_HOLD(mask);
    while (pairs > 0u) {
        int32_t ab = 0, cd = 0, v;
@turns@        a += (uint32_t)ab & 0xffffu;
        b += (uint32_t)ab >> 16;
        c += (uint32_t)cd & 0xffffu;
        d += (uint32_t)cd >> 16;
    }
"""

_TURNS = """
        uint32_t turns = pairs < 8u ? pairs : 8u;
        pairs -= turns;
        for (; turns > 0u; turns--) {
            const uint32_t p = w[0], q = w[1];
@lines@            x += @step@;
            w += 2;
        }
"""

_TWO_TURNS = """
        uint32_t p = w[0], q = w[1];
@lines@        p = w[2];
        q = w[3];
@more@        x += 8;
        w += 4;
        pairs -= 2u;
"""

_PAIRS_OF_WIDE = """
    uint32_t a = 0u, b = 0u, c = 0u, d = 0u, pairs, i;
    for (pairs = 2u * words; pairs > 0u; pairs--) {
        uint32_t p = w[0], q = w[1];
        for (i = 0u; i < @inputs@u; i++) {
            const uint32_t v = (uint32_t)@get@(x, i);
            a += (p & @mask@u) * v;
            b += ((p >> 16) & @mask@u) * v;
            c += (q & @mask@u) * v;
            d += ((q >> 16) & @mask@u) * v;
            p >>= @bits@;
            q >>= @bits@;
        }
        x += @step@;
        w += 2;
    }
"""

_FIELDS = """
    @sign@ a = 0;
    const uint32_t *end = w + words;
    while (w != end) {
        uint32_t p = *w++, fours;
        for (fours = @fours@u; fours > 0u; fours--) {
@lines@            p >>= @shift@;
            x += @step@;
        }
    }
"""

_COUNT = """
/* @rows@ over whole words of 32 bits: @how@. */
static void @name@(const uint8_t *x, const uint32_t *w, uint32_t words, uint32_t *sums)
{
    uint32_t @zeros@;
@marks@    const uint32_t *end = w + @count@u * words;
    while (w != end) {
        const uint32_t v = @word@(x)@inside@;
@lines@        x += 4;
        w += @count@;
    }
@ending@}
"""


def weight_type(bits: int) -> str:
    """The C type of a table of weights: bytes, or words of smaller ones."""
    return "uint8_t" if bits == 8 else "uint32_t"


def kernel(code: Code, kind: str, bits: int, count: int) -> str:
    """``void kernel(x, w, words, sums)``: products of ``count`` rows are added to sums."""
    return code.add(
        f"net_kernel{count}_{kind}_w{bits}",
        _KERNEL,
        rows=_rows(count),
        bits=bits,
        plural="s" if bits > 1 else "",
        numbers="bytes" if kind == "u8" else f"numbers of {storage.BITS[kind]} bits",
        type=weight_type(bits),
        body=_bytes(code, kind, count) if bits == 8 else _fields(code, kind, bits, count),
        ending=_ending(count),
    )


def _rows(count: int) -> str:
    return "One row" if count == 1 else f"{count} rows"


def _ending(count: int) -> str:
    return "".join(f"    sums[{i}] += (uint32_t){SUMS[i]};\n" for i in range(count))


def _bytes(code: Code, kind: str, count: int) -> str:
    """Weights of 8 bits.

    Sums of bytes are signed, since they cannot overflow: compilers keep their order, which
    takes the fewest instructions.
    """
    zeros = ", ".join(f"{name} = 0" for name in SUMS[:count])
    size = storage.BITS[kind] // 8
    values: dict[str, object] = {"zeros": zeros, "stride": 4 * count, "step": 4 * size}
    sign = "int32_t" if kind == "u8" else "uint32_t"
    lines = [f"        {sign} v;\n"]
    for i in range(4):
        lines.append(f"        v = {_number(code, kind, i)};\n")
        lines += [f"        {SUMS[row]} += w[{4 * row + i}] * v;\n" for row in range(count)]
    plain = filled(_BYTES, sign=sign, mask="", lines="".join(lines), **values)
    if kind not in ("u8", "s16"):
        return plain
    load = word(code, dsp_only=True)
    hold(code, dsp_only=True)
    halves = _HALVES_OF_BYTES if kind == "u8" else _HALVES_OF_NUMBERS
    doubles = [
        filled(_TWO_PRODUCTS, word=load, at=f" + {4 * row}" if row else "", sum=SUMS[row])
        for row in range(count)
    ]
    # Partial sums of 16-bit numbers may wrap around, in the instruction as well.
    fast = filled(
        _BYTES,
        sign="int32_t",
        mask="    uint32_t mask = 0x00ff00ffu;\n",
        lines=filled(halves, word=load) + "".join(doubles),
        **values,
    )
    return filled(_FAST, fast=fast, plain=plain)


def _number(code: Code, kind: str, i: int) -> str:
    return f"x[{i}]" if kind == "u8" else f"(uint32_t){get(code, kind)}(x, {i}u)"


def _fields(code: Code, kind: str, bits: int, count: int) -> str:
    """Weights of 4, 2 or 1 bits."""
    size = storage.BITS[kind] // 8
    if count == 1:
        sign = "int32_t" if kind == "u8" else "uint32_t"
        lines = ""
        for i in range(4):
            field = f"({f'p >> {bits * i}' if i else 'p'}) & {2**bits - 1}u"
            lines += f"            a += ({sign})({field}) * {_number(code, kind, i)};\n"
        return filled(
            _FIELDS, sign=sign, fours=8 // bits, lines=lines, shift=4 * bits, step=4 * size
        )
    inputs = 16 // bits
    if kind != "u8":
        return filled(
            _PAIRS_OF_WIDE,
            inputs=inputs,
            get=get(code, kind),
            mask=2**bits - 1,
            bits=bits,
            step=inputs * size,
        )
    hold(code)
    if bits == 4:
        turns = filled(_TWO_TURNS, lines=_pair_lines(4, 0, 8, 4), more=_pair_lines(4, 4, 8, 4))
    else:
        turns = filled(_TURNS, lines=_pair_lines(bits, 0, 12, inputs), step=inputs)
    return filled(_PAIRS, mask=f"0x{(2**bits - 1) * 0x00010001:08x}", turns=turns)


def _pair_lines(bits: int, first: int, deep: int, inputs: int) -> str:
    """The products of some inputs with the fields of two words, from the lowest on."""
    lines = []
    for i in range(inputs):
        shift = f" >> {bits * i}" if i else ""
        lines.append(f"v = x[{first + i}];\n")
        for pair, name in (("ab", "p"), ("cd", "q")):
            field = f"({name}{shift}) & mask" if shift else f"{name} & mask"
            lines.append(f"{pair} += (int32_t)({field}) * v;\n")
        if i % 4 == 3:
            lines.append("NET_HOLD(mask);\n")
    return "".join(" " * deep + line for line in lines)


def counting(code: Code, how: str, count: int) -> str:
    """``void kernel(x, w, words, sums)`` for binary weights and bits: see ``Rows.count``."""
    load, count_of = word(code), ones(code)
    same = {"and": "w[@i@] & v", "xor": "(w[@i@] ^ v) & inside"}[how]
    lines = "".join(
        f"        {SUMS[i]} += {count_of}({same.replace('@i@', str(i))});\n" for i in range(count)
    )
    marked = how == "xor"
    return code.add(
        f"net_kernel{count}_{how}",
        _COUNT,
        rows=_rows(count),
        how="differences inside the image" if marked else "ones in both",
        zeros=", ".join(f"{name} = 0u" for name in SUMS[:count]),
        marks="    const uint8_t *marks = x + 4u * words;\n" if marked else "",
        count=count,
        word=load,
        inside=f", inside = {load}(marks)" if marked else "",
        lines=lines + ("        marks += 4;\n" if marked else ""),
        ending=_ending(count),
    )
