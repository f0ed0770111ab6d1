"""Many small networks trained at once."""

from sudonet.train.data import Data as Data
from sudonet.train.result import Result as Result
from sudonet.train.runner import ENGINES as ENGINES
from sudonet.train.runner import engine_name as engine_name
from sudonet.train.runner import stream as stream
from sudonet.train.runner import train as train
from sudonet.train.spec import AnySpec as AnySpec
from sudonet.train.spec import Convolution as Convolution
from sudonet.train.spec import ConvolutionalSpec as ConvolutionalSpec
from sudonet.train.spec import Spec as Spec
