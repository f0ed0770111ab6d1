"""The data sets of the experiments: where they are, how they are fetched, how they are read."""

from sudonet.experiments.data.fetching import Fetched as Fetched
from sudonet.experiments.data.fetching import fetch as fetch
from sudonet.experiments.data.fetching import wanted as wanted
from sudonet.experiments.data.files import data_root as data_root
from sudonet.experiments.data.inventory import Listed as Listed
from sudonet.experiments.data.inventory import listing as listing
from sudonet.experiments.data.mnist import Digits as Digits
from sudonet.experiments.data.mnist import digits as digits
from sudonet.experiments.data.natural import Images as Images
from sudonet.experiments.data.natural import natural_images as natural_images
from sudonet.experiments.data.photograph import Picture as Picture
from sudonet.experiments.data.photograph import picture as picture
from sudonet.experiments.data.source import DataError as DataError
from sudonet.experiments.data.source import Source as Source
