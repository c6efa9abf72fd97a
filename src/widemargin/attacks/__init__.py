"""Adversarial attacks: gradient sign, projected gradient, noise, and the nearest misclassified input.

Attacks are functions `(model, x, y, epsilon, *, bounds) -> x̂`. The network is attacked in evaluation mode and left
unchanged; x̂ stays within `epsilon` of x and inside the range `bounds` of the data. `curve` measures accuracy over ε,
and the loss `Adversarial` trains on attacked inputs. `minimal` searches for the nearest misclassified input.
"""

from widemargin.attacks.adversarial import Adversarial
from widemargin.attacks.curve import Attack, curve
from widemargin.attacks.fgsm_pgd import fgsm, ifgsm, pgd
from widemargin.attacks.minimal import Minimal, minimal
from widemargin.attacks.noise import gaussian

__all__ = ["Adversarial", "Attack", "Minimal", "curve", "fgsm", "gaussian", "ifgsm", "minimal", "pgd"]
