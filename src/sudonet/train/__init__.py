"""Many small networks trained at once."""

from sudonet.train._data import Data as Data
from sudonet.train._result import Result as Result
from sudonet.train._runner import ENGINES as ENGINES
from sudonet.train._runner import engine_name as engine_name
from sudonet.train._runner import stream as stream
from sudonet.train._runner import train as train
from sudonet.train._spec import AnySpec as AnySpec
from sudonet.train._spec import Convolution as Convolution
from sudonet.train._spec import ConvolutionalSpec as ConvolutionalSpec
from sudonet.train._spec import Spec as Spec
