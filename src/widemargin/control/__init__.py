"""What is CONTROLLED: networks trained to a margin that is asked for (farhang, §3.2).

reached = wm.control.normalized_margin(model, data, target=1.0)
reached.margins, reached.share, reached.steps
"""

from __future__ import annotations

from widemargin.control.recipe import Controlled, normalized_margin

__all__ = ["Controlled", "normalized_margin"]
