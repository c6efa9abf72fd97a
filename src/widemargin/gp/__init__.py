"""The NN-GP model of normalized margin (farhang §6): wide networks as a Gaussian process, posterior and ensembles."""

from widemargin.gp.ensembles import Ensemble, ensemble, expected_accuracy, finite_ensemble
from widemargin.gp.kernel import kernel
from widemargin.gp.posterior import Posterior, posterior

__all__ = ["Ensemble", "Posterior", "ensemble", "expected_accuracy", "finite_ensemble", "kernel", "posterior"]
