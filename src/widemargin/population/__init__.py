"""Many networks of one architecture, trained as one program.

    nets = population.build(lambda: models.build("sokolic-mlp"), seeds=range(64))
    trained = population.fit(nets, data, loss=losses.CrossEntropy(), optimizer=training.SGD(lr=0.1), steps=500)

Parameters are stacked, one forward and one backward pass serve all networks, and every network has its own seed, data,
labels, loss settings and learning rate. The weights are those that training one by one would give.
"""

from widemargin.population.fit import Population, build, fit
from widemargin.population.stack import Stack

__all__ = ["Population", "Stack", "build", "fit"]
