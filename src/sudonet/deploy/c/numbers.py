"""C that reads and writes single numbers, and adds them up."""

from __future__ import annotations

from sudonet.deploy.c import storage
from sudonet.deploy.c.code import Code, filled

_PACKED_GET = """
static inline int32_t @name@(const uint8_t *x, uint32_t i)
{
    return (int32_t)(((uint32_t)x[i / @per@u] >> (i % @per@u * @bits@u)) & @mask@u);
}
"""

_GET = {
    "u8": """
static inline int32_t @name@(const uint8_t *x, uint32_t i)
{
    return (int32_t)x[i];
}
""",
    "u16": """
static inline int32_t @name@(const uint8_t *x, uint32_t i)
{
    return (int32_t)((uint32_t)x[2u * i] | (uint32_t)x[2u * i + 1u] << 8);
}
""",
    "s16": """
static inline int32_t @name@(const uint8_t *x, uint32_t i)
{
    const uint32_t bits = (uint32_t)x[2u * i] | (uint32_t)x[2u * i + 1u] << 8;
    return (int32_t)(bits ^ 0x8000u) - 0x8000;
}
""",
    "s32": """
static inline int32_t @name@(const uint8_t *x, uint32_t i)
{
    return @signed@(@word@(x + 4u * i));
}
""",
}

_PACKED_PUT = """
static inline void @name@(uint8_t *y, uint32_t i, uint32_t value)
{
    const uint32_t shift = i % @per@u * @bits@u;
    const uint32_t others = (uint32_t)y[i / @per@u] & ~((uint32_t)@mask@u << shift);
    y[i / @per@u] = (uint8_t)(others | value << shift);
}
"""

_PUT = """
static inline void @name@(uint8_t *y, uint32_t i, uint32_t value)
{
@bytes@}
"""

# Compilers do not always turn shifts and ors into one load, even where it is allowed.
_WORD = """
/* Four bytes, which need not be aligned. */
static inline uint32_t @name@(const uint8_t *x)
{
#if defined(__ARM_FEATURE_UNALIGNED) && !defined(__ARM_BIG_ENDIAN)
    uint32_t found;
    __builtin_memcpy(&found, x, 4u);
    return found;
#else
    return (uint32_t)x[0] | (uint32_t)x[1] << 8 | (uint32_t)x[2] << 16 | (uint32_t)x[3] << 24;
#endif
}
"""

_HOLD = """
/* Keeps a mask in its register, where a shift is free, and loads in their order: moved to the
 * front, all of them would need more registers than there are. */
#if defined(__GNUC__)
#define NET_HOLD(mask) __asm__ volatile("" : "+r"(mask) : : "memory")
#else
#define NET_HOLD(mask) (void)(mask)
#endif
"""

_SIGNED = """
/* The number that 32 bits stand for in two's complement; compiles to no instruction. */
static inline int32_t @name@(uint32_t bits)
{
    return bits <= 0x7fffffffu ? (int32_t)bits : -(int32_t)(0xffffffffu - bits) - 1;
}
"""

_ONES = """
static inline uint32_t @name@(uint32_t bits)
{
    bits -= (bits >> 1) & 0x55555555u;
    bits = (bits & 0x33333333u) + ((bits >> 2) & 0x33333333u);
    bits = (bits + (bits >> 4)) & 0x0f0f0f0fu;
    return (bits * 0x01010101u) >> 24;
}
"""

_SUM = """
static uint32_t @name@(const uint8_t *x, uint32_t n)
{
    uint32_t sum = 0u, i;
    for (i = 0u; i < n; i++) {
        sum += (uint32_t)@get@(x, i);
    }
    return sum;
}
"""

_SUM_BYTES = """
static uint32_t @name@(const uint8_t *x, uint32_t n)
{
    uint32_t sum = 0u;
    const uint8_t *end = x + n;
#if defined(__ARM_FEATURE_DSP)
    while (end - x >= 4) {
        sum = __usada8(@word@(x), 0u, sum);
        x += 4;
    }
#endif
    while (x != end) {
        sum += *x++;
    }
    return sum;
}
"""

_SUM_BITS = """
static uint32_t @name@(const uint8_t *x, uint32_t n)
{
    uint32_t sum = 0u;
    for (; n >= 32u; n -= 32u) {
        sum += @ones@(@word@(x));
        x += 4;
    }
    if (n > 0u) {
        sum += @ones@(@word@(x) & (0xffffffffu >> (32u - n)));
    }
    return sum;
}
"""


def word(code: Code, *, dsp_only: bool = False) -> str:
    """``uint32_t word(const uint8_t *x)``."""
    return _for_dsp(code, "net_word", _WORD, dsp_only)


def hold(code: Code, *, dsp_only: bool = False) -> None:
    """``NET_HOLD(mask)``."""
    _for_dsp(code, "NET_HOLD", _HOLD, dsp_only)


def _for_dsp(code: Code, name: str, text: str, dsp_only: bool) -> str:
    """Add code for processors with DSP instructions only, or for all if ``dsp_only`` is False."""
    if dsp_only:
        guarded = f"#if defined(__ARM_FEATURE_DSP)\n{text.lstrip()}#endif\n"
        return code.add(name, guarded)
    code.functions[name] = filled(text, name=name)
    return name


def signed(code: Code) -> str:
    return code.add("net_signed", _SIGNED)


def ones(code: Code) -> str:
    return code.add("net_ones", _ONES)


def get(code: Code, kind: str) -> str:
    """``int32_t get(const uint8_t *x, uint32_t i)``."""
    name = f"net_get_{kind}"
    if kind in storage.PACKED:
        return code.add(name, _PACKED_GET, **_packing(kind))
    if kind == "s32":
        return code.add(name, _GET[kind], signed=signed(code), word=word(code))
    return code.add(name, _GET[kind])


def put(code: Code, kind: str) -> str:
    """``void put(uint8_t *y, uint32_t i, uint32_t value)``."""
    name = f"net_put_{kind}"
    if kind in storage.PACKED:
        return code.add(name, _PACKED_PUT, **_packing(kind))
    size = storage.BITS[kind] // 8
    place = "y[i]" if size == 1 else f"y[{size}u * i + @at@u]"
    lines = [
        f"    {place.replace('@at@', str(at))} = (uint8_t)"
        f"{'value' if size == 1 else f'(value >> {8 * at} & 0xffu)'};\n"
        for at in range(size)
    ]
    return code.add(name, _PUT, bytes="".join(lines))


def total(code: Code, kind: str, *, counted: bool = False) -> str:
    """``uint32_t sum(const uint8_t *x, uint32_t n)``: of all numbers, modulo 2^32."""
    name = f"net_sum_{kind}"
    if counted:
        return code.add("net_count_b1", _SUM_BITS, ones=ones(code), word=word(code))
    if kind == "u8":
        return code.add(name, _SUM_BYTES, word=word(code, dsp_only=True))
    return code.add(name, _SUM, get=get(code, kind))


def _packing(kind: str) -> dict[str, object]:
    bits = storage.BITS[kind]
    return {"bits": bits, "per": 8 // bits, "mask": 2**bits - 1}
