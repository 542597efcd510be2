"""Trained models that ship with the package.

For d = 10 and n = 20, the best of five seeds for every cell of the paper's Table 1 are a `Zoo`. Every further model is
a file of its own, whose path is its name: deeper ones, `zoo:full/10/uniform(0,5)`; Diag with two heads,
`zoo:heads=2/diag/9/uniform(0,5)`; Full with four scratch coordinates, `zoo:scratch=4/full/8/uniform(0,5)`; small ones
for teaching, `zoo:d=1/diag/3/uniform(0,2)`; five that a search with less caution found, for cells where not exploding
costs more than the paper's number allows, `zoo:caution=0.01/diag/3/uniform(0,1)`; and channels with nine and ten
layers, `zoo:channels(1,6)/10/uniform(0,5)`. `python -m benchmarks.further` trains these. `python -m
benchmarks.discover` trains those with eight, `zoo:channels(1,6)/8/uniform(0,5)`; those for every dimension,
`zoo:universal/8`; and one for d = 10 and every n from 10 to 40, `zoo:lengths/8`.

>>> from ridgeformer import load, zoo
>>> load("zoo:full/7/categorical(1,3)")
LinearTransformer(full, dim=10, layers=7, heads=1)
>>> load("zoo:d=1/diag/3/uniform(0,2)")
LinearTransformer(diag, dim=1, layers=3, heads=1)
>>> zoo.record("zoo:full/7/categorical(1,3)").status
'converged'
"""

from ridgeformer.zoo.shipped_models import (
    PREFIX as PREFIX,
    TrainingRecord as TrainingRecord,
    Zoo as Zoo,
    cells as cells,
    explosions as explosions,
    file_of as file_of,
    further_models as further_models,
    gather as gather,
    name_of as name_of,
    nearest as nearest,
    place_of as place_of,
    prices as prices,
    read as read,
    read_model as read_model,
    record as record,
    shipped as shipped,
    universal_layers as universal_layers,
)
