"""Neural networks whose hidden units emit only a few values."""

from sudonet import functional as functional
from sudonet.convert import Conversion as Conversion
from sudonet.convert import convert as convert
from sudonet.lean import CodedLinear as CodedLinear
from sudonet.lean import SUDOLinear as SUDOLinear
from sudonet.staircase import Staircase as Staircase
from sudonet.summary import Summary as Summary
from sudonet.summary import summary as summary
from sudonet.units import RSUDO as RSUDO
from sudonet.units import SUDO as SUDO
from sudonet.units import StaircaseUnit as StaircaseUnit
from sudonet.units import activation as activation
from sudonet.units import activation_name as activation_name

__version__ = "0.1.0"
