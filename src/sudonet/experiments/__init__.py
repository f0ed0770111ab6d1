"""The paper's experiments, a file each."""

from sudonet.experiments.autoencoder import Autoencoder
from sudonet.experiments.checkerboard import Checkerboard
from sudonet.experiments.experiment import BASELINES as BASELINES
from sudonet.experiments.experiment import LEVELS as LEVELS
from sudonet.experiments.experiment import Experiment as Experiment
from sudonet.experiments.experiment import Protocol as Protocol
from sudonet.experiments.experiment import TableGrid as TableGrid
from sudonet.experiments.experiment import Task as Task
from sudonet.experiments.experiment import Trial as Trial
from sudonet.experiments.memorization import Memorization
from sudonet.experiments.mnist import Mnist
from sudonet.experiments.regression import Regression

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (Checkerboard(), Regression(), Memorization(), Autoencoder(), Mnist())
}
"""All experiments that have tables, in the order of the paper."""

GRIDS: dict[str, TableGrid] = {
    grid.id: grid
    for rectified in (False, True)
    for experiment in EXPERIMENTS.values()
    for grid in experiment.grids
    if grid.id.startswith("r-") == rectified
}
"""Every table, in the order of the paper: first the main text's, then the appendix's."""
