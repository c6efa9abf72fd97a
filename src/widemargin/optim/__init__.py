"""Constrained weights: projections, and optimizers that project after every step.

optimizer = wm.optim.Nero(wm.optim.param_groups(model), lr=0.01)
optimizer = wm.optim.Projected(torch.optim.SGD(model.parameters(), lr=0.1), wm.optim.to_frobenius_sphere)
"""

from __future__ import annotations

from widemargin.optim.nero import Nero
from widemargin.optim.projected import Projected
from widemargin.optim.projections import to_centred_unit_rows, to_frobenius_sphere, to_spectral_sphere
from widemargin.optim.rows import param_groups

__all__ = ["Nero", "Projected", "param_groups", "to_centred_unit_rows", "to_frobenius_sphere", "to_spectral_sphere"]
