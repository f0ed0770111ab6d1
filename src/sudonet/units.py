"""SUDO and R-SUDO as modules, and the names under which activations are known.

The modules hold no parameters and no buffers: a network trained with tanh loads
into its SUDO twin, and back, with nothing to convert.
"""

from __future__ import annotations

from torch import Tensor, nn

from sudonet import functional
from sudonet.staircase import Staircase, expect_staircase


class StaircaseUnit(nn.Module):
    """The activation of any :class:`~sudonet.Staircase`.

    Parameters
    ----------
    staircase
        The unit's definition.

    Examples
    --------
    >>> import torch
    >>> StaircaseUnit(Staircase(3))(torch.tensor([-2.0, 0.1, 2.0]))
    tensor([-1.,  0.,  1.])
    """

    def __init__(self, staircase: Staircase) -> None:
        super().__init__()
        self.staircase = expect_staircase(staircase)

    @property
    def name(self) -> str:
        """The unit's name, such as ``sudo-32``."""
        return self.staircase.name

    def forward(self, x: Tensor) -> Tensor:
        return functional.apply(x, self.staircase)

    def extra_repr(self) -> str:
        return self.name


class SUDO(StaircaseUnit):
    r"""Sigmoid-underlying, discrete-output unit.

    Forward, over tanh with L levels::

        y = -1 + (ceil((tanh(x) + 1) * L / 2) - 1) * 2 / (L - 1)

    Backward, as if the staircase were not there::

        dy/dx = 1 - tanh(x)^2

    ``sudonet plot-unit sudo-9 unit.png`` draws both.

    Parameters
    ----------
    levels
        L, how many values the unit can emit: an integer from 2 to 65,536.
    underlying
        ``"tanh"`` (-1..1), ``"sigmoid"`` (0..1), ``"hardtanh"`` or ``"relu6"``.

    References
    ----------
    S. Baluja, "Empirical Explorations in Training Networks with Discrete
    Activations", section 2.

    Examples
    --------
    >>> import torch
    >>> SUDO(4)
    SUDO(sudo-4)
    >>> SUDO(4)(torch.tensor([-2.0, 0.1, 2.0]))
    tensor([-1.0000,  0.3333,  1.0000])
    """

    def __init__(self, levels: int, underlying: str = "tanh") -> None:
        super().__init__(Staircase(levels, underlying))


class RSUDO(StaircaseUnit):
    """Rectified SUDO: 0 for x <= 0 and no derivative for x < 0.

    Forward: ``max(SUDO(x), 0)`` with ``placement="paper"``, which leaves L/2 + 1
    outputs for even L; with ``placement="full"``, L levels k/(L-1) over u in 0..1.
    Backward: the underlying derivative where x >= 0.

    Parameters
    ----------
    levels
        L, an integer from 2 to 65,536.
    underlying
        ``"tanh"``, ``"hardtanh"`` or ``"relu6"``, the capped linear ramp.
    placement
        ``"paper"`` or ``"full"``.

    References
    ----------
    S. Baluja, "Empirical Explorations in Training Networks with Discrete
    Activations", appendix.

    Examples
    --------
    >>> import torch
    >>> RSUDO(8, placement="full")
    RSUDO(r-sudo-8-full)
    >>> RSUDO(4)(torch.tensor([-2.0, 0.1, 2.0]))
    tensor([0.0000, 0.3333, 1.0000])
    """

    def __init__(self, levels: int, underlying: str = "tanh", placement: str = "paper") -> None:
        super().__init__(Staircase(levels, underlying, rectified=True, placement=placement))


SMOOTH: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "sigmoid": nn.Sigmoid,
    "hardtanh": nn.Hardtanh,
    "relu6": nn.ReLU6,
}
"""Continuous activations by name."""

CONTINUOUS: frozenset[type[nn.Module]] = frozenset(
    {
        *SMOOTH.values(),
        *(nn.CELU, nn.ELU, nn.GELU, nn.Hardshrink, nn.Hardsigmoid, nn.Hardswish, nn.LeakyReLU),
        *(nn.LogSigmoid, nn.Mish, nn.RReLU, nn.SELU, nn.SiLU, nn.Softplus, nn.Softshrink),
        *(nn.Softsign, nn.Tanhshrink, nn.Threshold),
    }
)
"""PyTorch's activation modules of one tensor that have no parameters."""


def activation(name: str | Staircase) -> nn.Module:
    """A new activation module by name: discrete or continuous.

    Parameters
    ----------
    name
        ``tanh``, ``relu``, ``sigmoid``, ``hardtanh``, ``relu6``, or a discrete unit:
        ``[r-]sudo-LEVELS[-UNDERLYING][-full]``. Case does not matter.

    Examples
    --------
    >>> activation("sudo-32"), activation("R-SUDO-16-full"), activation("tanh")
    (SUDO(sudo-32), RSUDO(r-sudo-16-full), Tanh())
    """
    if isinstance(name, str) and name.strip().lower() in SMOOTH:
        return SMOOTH[name.strip().lower()]()
    try:
        unit = name if isinstance(name, Staircase) else Staircase.parse(name)
    except ValueError as error:
        if isinstance(name, str) and "sudo" in name.lower():
            raise
        raise ValueError(f"{error}; or one of {', '.join(SMOOTH)}") from None
    if unit.rectified:
        return RSUDO(unit.levels, unit.underlying, unit.placement)
    return SUDO(unit.levels, unit.underlying)


def activation_name(module: nn.Module) -> str:
    """The name of an activation module; :func:`activation` reads it back.

    Examples
    --------
    >>> activation_name(SUDO(16, "sigmoid")), activation_name(nn.ReLU())
    ('sudo-16-sigmoid', 'relu')
    """
    if isinstance(module, StaircaseUnit):
        return module.name
    for name, kind in SMOOTH.items():
        if type(module) is kind:
            return name
    raise ValueError(
        f"{type(module).__name__} is not an activation with a name: "
        f"expected a SUDO unit or one of {', '.join(SMOOTH)}"
    )
