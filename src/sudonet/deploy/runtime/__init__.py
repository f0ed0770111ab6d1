"""Integer networks in the C core: the same numbers as the reference, faster.

:func:`program` packs a network as a :class:`Program`. A program never changes, so any number of
threads may run it at the same time.
"""

from sudonet.deploy.runtime.program import Program as Program
from sudonet.deploy.runtime.program import program as program
