"""Inputs moved so that a network errs: by the sign of a gradient, by projected gradient ascent, by noise.

Attacks are functions `(model, x, y, epsilon) -> x̂`. The network is attacked in evaluation mode and left exactly as it
was; x̂ stays within `epsilon` of x and inside the range `bounds` of the data. `curve` gives accuracy over ε, and the
loss `Adversarial` trains on attacked inputs. `minimal` takes no ε: it looks for the nearest input that errs.
"""

from widemargin.attacks.adversarial import Adversarial
from widemargin.attacks.curve import Attack, curve
from widemargin.attacks.fgsm import fgsm, ifgsm
from widemargin.attacks.gaussian import gaussian
from widemargin.attacks.minimal import Minimal, minimal
from widemargin.attacks.pgd import pgd

__all__ = ["Adversarial", "Attack", "Minimal", "curve", "fgsm", "gaussian", "ifgsm", "minimal", "pgd"]
