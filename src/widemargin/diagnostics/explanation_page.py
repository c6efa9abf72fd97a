"""Explanations as the plain values that the report reads (`report.explanation`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from widemargin._io.provenance import provenance
from widemargin.margins.page import image, plain
from widemargin.report.explanation import Explained, ExplanationPage, Pictured
from widemargin.report.names import norm_label, norm_name
from widemargin.report.png import data_uri

if TYPE_CHECKING:
    from widemargin.diagnostics.explanation import Explanation, Explanations

SHOWN_CHANGES, SHOWN_CLASSES = 12, 6
MORE, LESS = (0.03, 0.35, 0.71), (0.75, 0.28, 0.16)
"""Red, green and blue of a pixel that becomes brighter, and of one that becomes darker."""


def page_values(
    found: Explanations, positions: Sequence[int], settings: Mapping[str, Any], *, title: str
) -> ExplanationPage:
    """The values of a page; `positions` are those of the samples in their data set, `settings` come first."""
    origin = provenance()
    shown: dict[str, Any] = {key: value for key, value in settings.items() if value not in (None, [])}
    shown["samples"] = list(positions)
    if len(found):
        shown |= {"norm": norm_name(norm_label(found[0].p)), "place": found[0].place, "range": found[0].bounds}
    return {
        "title": title,
        "items": [_item(one, position) for one, position in zip(found, positions, strict=True)],
        "notes": list(found.notes),
        "settings": shown,
        "versions": {**origin["versions"], "commit": origin["commit"] or "unknown"},
        "hardware": origin["hardware"],
    }


def _item(one: Explanation, position: int) -> Explained:
    pictures = _pictures(one)
    return {
        "position": position,
        "decision": one.class_name(one.decision),
        "other": None if one.other is None else one.class_name(one.other),
        "sentences": one.sentences(),
        "pictures": pictures,
        "changes": [] if pictures or not one.is_found else [dict(change) for change in one.largest(SHOWN_CHANGES)],
        "tokens": one.tokens is not None,
        "certified": plain(one.certified),
        "linearized": plain(one.linearized),
        "distance": plain(one.distance),
        "scores": _scores(one),
    }


def _pictures(one: Explanation) -> list[Pictured]:
    """The image, its change and the changed image; none where the sample is no image."""
    if one.tokens is not None or one.place != "input" or "image" not in image(one.x, one.bounds):
        return []
    low, high = one.bounds or (float(min(one.x.min(), one.changed.min())), float(max(one.x.max(), one.changed.max())))
    shown: list[Pictured] = [{"name": one.class_name(one.decision), "image": image(one.x, (low, high))["image"]}]
    if one.other is None:
        return shown
    largest = float(one.change.abs().max())
    shown.append({"name": f"the change, at most {largest:.3g}", "image": signed_image(one.change)})
    return [*shown, {"name": one.class_name(one.other), "image": image(one.changed, (low, high))["image"]}]


def signed_image(change: Tensor) -> str:
    """A PNG of a change: white where there is none, blue where a gray pixel becomes brighter, red where darker.

    Of an image in colour gray where there is none, and brighter or darker in each colour.
    """
    change = change.detach().cpu().double()
    change = change / (float(change.abs().max()) or 1.0)
    if len(change) == 3:
        return data_uri((0.5 + 0.5 * change).numpy())
    size = change.abs()
    colors = torch.where(
        change > 0, torch.tensor(MORE, dtype=change.dtype)[:, None, None], torch.tensor(LESS)[:, None, None].double()
    )
    return data_uri((1 - size * (1 - colors)).clamp(0, 1).numpy())


def _scores(one: Explanation) -> list[dict[str, Any]]:
    """The scores of the strongest classes before and after the change; a binary network has one."""
    before, after = one.scores.flatten().double(), one.changed_scores.flatten().double()
    if len(before) == 1:
        return [{"name": "score", "before": plain(float(before)), "after": plain(float(after))}]
    order = torch.maximum(before, after).argsort(descending=True, stable=True)[:SHOWN_CLASSES].tolist()
    return [
        {"name": one.class_name(i), "before": plain(float(before[i])), "after": plain(float(after[i]))} for i in order
    ]
