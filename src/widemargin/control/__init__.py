"""Control of margins: networks trained to a given margin, and twins of one margin (farhang, §3.2, §4.2).

reached = wm.control.normalized_margin(model, data, target=1.0)
reached.margins, reached.share, reached.steps
"""

from __future__ import annotations

from widemargin.control.attacked import AttackedTwins, attacked_twins
from widemargin.control.recipe import Controlled, normalized_margin
from widemargin.control.twins import Twins, rejection_twins

__all__ = ["AttackedTwins", "Controlled", "Twins", "attacked_twins", "normalized_margin", "rejection_twins"]
