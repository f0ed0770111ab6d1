"""Integer networks as C for microcontrollers: the same network, in a few kilobytes.

``write`` makes a source and a header, ``check`` runs them here against the reference, and
``size`` says what they take of a microcontroller.
"""

from sudonet.deploy.c.source import Sizes as Sizes
from sudonet.deploy.c.tools import Check as Check
from sudonet.deploy.c.tools import Footprint as Footprint
from sudonet.deploy.c.tools import Section as Section
from sudonet.deploy.c.tools import check as check
from sudonet.deploy.c.tools import size as size
from sudonet.deploy.c.write import Written as Written
from sudonet.deploy.c.write import write as write
