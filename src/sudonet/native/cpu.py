"""What this CPU can do, as far as it matters for speed or for results."""

from __future__ import annotations

from pathlib import Path

INFO = Path("/proc/cpuinfo")
_FLAGS = {
    "AVX2": {"avx2"},
    "AVX512": {"avx512f"},
    "VNNI": {"avx512_vnni", "avx_vnni"},
    "AMX": {"amx_int8"},
}
"""What each feature is called among Linux's flags; any one of them will do."""


def features() -> dict[str, bool]:
    """Which features Linux lists; empty elsewhere and on processors that are not x86."""
    if not INFO.exists():
        return {}
    for line in INFO.read_text(errors="replace").splitlines():
        key, _, words = line.partition(":")
        if key.strip() == "flags":
            flags = set(words.split())
            return {name: not flags.isdisjoint(any_of) for name, any_of in _FLAGS.items()}
    return {}
