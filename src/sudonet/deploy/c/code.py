"""C functions, each written once and after those that it calls."""

from __future__ import annotations

import re
from dataclasses import dataclass, field


@dataclass
class Code:
    """The functions of one source file.

    Names in the C of this package begin with ``net_``, which a network's own name replaces.

    Parameters
    ----------
    rows
        Rows of weights that are multiplied at once: 4, or 1 for the least code.
    partial
        Vectors and bits of weights of rows that do not fill their last word.
    long
        The same for rows so long that sums of bytes could overflow 32 bits.
    """

    rows: int
    partial: frozenset[tuple[str, int]] = frozenset()
    long: frozenset[tuple[str, int]] = frozenset()
    functions: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, text: str, **values: object) -> str:
        """Add a function unless it is there already; ``@key@`` stands for a value."""
        if name not in self.functions:
            self.functions[name] = filled(text, name=name, **values)
        return name

    @property
    def text(self) -> str:
        return "\n".join(self.functions.values())


def filled(text: str, **values: object) -> str:
    """A piece of C with values in the place of ``@key@``."""
    return re.sub(r"@(\w+)@", lambda match: str(values[match[1]]), text.removeprefix("\n"))


def prefixed(text: str, name: str) -> str:
    """C with the network's own name in the place of ``net``."""
    text = re.sub(r"\bnet_(?=\w)", f"{name}_", text)
    return re.sub(r"\bNET_(?=\w)", f"{name.upper()}_", text)
