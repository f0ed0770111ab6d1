"""The data sets of the experiments: where they are, how they are fetched, how they are read."""

from sudonet.experiments.data._bundled import photograph as photograph
from sudonet.experiments.data._fetching import Fetched as Fetched
from sudonet.experiments.data._fetching import fetch as fetch
from sudonet.experiments.data._fetching import wanted as wanted
from sudonet.experiments.data._files import data_root as data_root
from sudonet.experiments.data._inventory import Listed as Listed
from sudonet.experiments.data._inventory import listing as listing
from sudonet.experiments.data._mnist import Digits as Digits
from sudonet.experiments.data._mnist import digits as digits
from sudonet.experiments.data._natural import Images as Images
from sudonet.experiments.data._natural import natural_images as natural_images
from sudonet.experiments.data._photograph import Picture as Picture
from sudonet.experiments.data._photograph import picture as picture
from sudonet.experiments.data._source import DataError as DataError
from sudonet.experiments.data._source import Source as Source
