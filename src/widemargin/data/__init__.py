"""Data sets by name, as tensors in memory, and seeded transforms of the papers' experiments.

data = wm.data.load("mnist-5k")                         # Data(train=Samples, test=Samples, classes, bounds)
train, validation = wm.data.holdout(data.train, 500, seed=0)
noisy = wm.data.flip_labels(train, 0.2, seed=0, classes=10)
for x, y in wm.data.batches(validation, batch_size=256): ...
own = wm.data.load_files("mine.npz", seed=0)             # also .csv, .parquet, a folder of images by class
samples = wm.data.read((frame, series))                 # arrays, frames, data sets and loaders as Samples
"""

from __future__ import annotations

from widemargin.data.batching import Batches, batches, read
from widemargin.data.files import default_root
from widemargin.data.own_files import load_files
from widemargin.data.registry import load, names
from widemargin.data.samples import Data, Samples
from widemargin.data.sampling import holdout, subset
from widemargin.data.transforms import Pca, add_noise, flip_labels, to_sphere, to_unit_range

__all__ = [
    "Batches",
    "Data",
    "Pca",
    "Samples",
    "add_noise",
    "batches",
    "default_root",
    "flip_labels",
    "holdout",
    "load",
    "load_files",
    "names",
    "read",
    "subset",
    "to_sphere",
    "to_unit_range",
]
