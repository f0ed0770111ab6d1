"""Integer networks in the C core: the same numbers as the reference, sooner.

:func:`program` makes a :class:`Program` of a network. It is only read afterwards, so any
number of threads may run it at the same time.
"""

from sudonet.deploy.runtime.program import Program as Program
from sudonet.deploy.runtime.program import program as program
