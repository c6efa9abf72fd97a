"""Principal components, fitted on training data and applied to whatever comes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from widemargin.data.samples import Samples

_ROWS = 4096  # as many rows at a time become float64: CIFAR-10 as a whole would take 1.2 GB


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Pca:
    """z = C(x − m): the coordinates of x along the directions of largest variance of the training data.

    sokolic, section V, reduces CIFAR-10 to 784 dimensions so. m is the training mean and the rows of C are the unit
    eigenvectors of the training covariance, largest eigenvalue first, each with its largest entry positive (the sign
    of an eigenvector is arbitrary). Not whitened.

        pca = Pca.fit(data.train, 784);  data = data.map(pca)
    """

    mean: Float64[Tensor, " d"]
    components: Float64[Tensor, "dims d"]
    variance: Float64[Tensor, " dims"]

    @classmethod
    def fit(cls, train: Samples, dims: int = 784) -> Pca:
        """Fit on `train`, and on nothing else, in float64."""
        x = _rows(train)
        n, d = x.shape
        if not 1 <= dims <= min(n - 1, d):
            raise ValueError(
                f"dims is {dims}, expected 1..{min(n - 1, d)}: {n} samples of {d} numbers have no more directions"
            )
        mean = sum((part.double().sum(0) for part in x.split(_ROWS)), x.new_zeros(d, dtype=torch.float64)) / n
        covariance = torch.zeros(d, d, dtype=torch.float64, device=x.device)
        for part in x.split(_ROWS):
            centred = part.double() - mean
            covariance.addmm_(centred.T, centred)
        values, vectors = torch.linalg.eigh(covariance / (n - 1))
        components = vectors.T.flip(0)[:dims]
        largest = components.gather(1, components.abs().argmax(1, keepdim=True))
        return cls(mean=mean, components=components * largest.sign(), variance=values.flip(0)[:dims])

    def __call__(self, samples: Samples) -> Samples:
        """The samples in the new coordinates, x of shape [n, dims] and of the dtype it had."""
        x = _rows(samples)
        if x.shape[1] != len(self.mean):
            raise ValueError(f"x has {x.shape[1]} numbers a sample, but the components were fitted on {len(self.mean)}")
        mean, basis = self.mean.to(x.device), self.components.to(x.device).T
        parts = [((part.double() - mean) @ basis).to(x.dtype) for part in x.split(_ROWS)]
        return replace(samples, x=torch.cat(parts))

    def __repr__(self) -> str:
        return f"Pca({len(self.mean)} -> {len(self.components)})"


def _rows(samples: Samples) -> Float[Tensor, "n d"]:
    if not samples.x.is_floating_point():
        raise TypeError(f"x has dtype {samples.x.dtype}, expected a floating-point tensor")
    return samples.x.flatten(1)
