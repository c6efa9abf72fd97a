"""Explanations of decisions: closed forms of affine networks, images, tables, tokens, and the page."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import widemargin as wm
from widemargin.diagnostics.explanation_page import signed_image


def affine(inputs: int = 4, classes: int = 3) -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(inputs, classes).double()


@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
def test_an_affine_network_has_a_closed_form(p: float) -> None:
    model, x = affine(), torch.randn(5, 4, dtype=torch.float64)
    scores, weight = model(x).detach(), model.weight.detach()
    q = {1.0: math.inf, 2.0: 2.0, math.inf: 1.0}[p]
    found = wm.explain(model, x, scores.argmax(dim=1), p=p, search="own")
    assert len(found) == 5
    for i, one in enumerate(found):
        own = int(scores[i].argmax())
        gaps = {other: scores[i, own] - scores[i, other] for other in range(3) if other != own}
        distances = {other: float(gap / (weight[own] - weight[other]).norm(q)) for other, gap in gaps.items()}
        nearest = min(distances, key=distances.__getitem__)
        assert (one.decision, one.other, one.label) == (own, nearest, own)
        assert one.distance == pytest.approx(distances[nearest], rel=1e-3)
        assert one.certified == pytest.approx(distances[nearest], rel=1e-3)
        assert one.linearized == pytest.approx(distances[nearest], rel=1e-6)
        assert float(one.change.norm(p)) == pytest.approx(one.distance)
        assert int(model(one.changed[None]).argmax()) == nearest
        torch.testing.assert_close(one.changed_scores, model(one.changed).detach())
        assert "which is right" in repr(one)


def test_a_wrong_decision_is_explained_as_it_is() -> None:
    model, x = affine(), torch.randn(3, 4, dtype=torch.float64)
    decision = model(x).argmax(dim=1)
    found = wm.explain(model, x, (decision + 1) % 3, classes=("ant", "bee", "cat"), search="own", steps=4)
    assert [one.decision for one in found] == decision.tolist()
    assert all(one.distance > 0 for one in found)
    named = ("ant", "bee", "cat")
    assert f"answers {int(decision[0])} {named[int(decision[0])]}, but the label is" in repr(found[0])
    assert wm.explain(model, x, search="own")[0].label is None


def test_the_largest_changes_of_a_table_have_names_and_are_sorted() -> None:
    model = affine()
    (one,) = wm.explain(
        model, torch.randn(1, 4, dtype=torch.float64), names=("age", "size", "mass", "heat"), search="own"
    )
    rows = one.largest(3)
    by_name = dict(zip(("age", "size", "mass", "heat"), one.change.tolist()))
    assert [abs(row["change"]) for row in rows] == sorted(map(abs, by_name.values()), reverse=True)[:3]
    for row in rows:
        assert row["change"] == pytest.approx(by_name[row["name"]])
        assert row["before"] is not None
        assert row["after"] == pytest.approx(row["before"] + row["change"])


def test_hidden_units_have_no_names_of_features() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).double()
    (one,) = wm.explain(model, torch.randn(1, 3).double(), at="0", names=("age", "size", "mass"), search="own")
    assert {row["name"] for row in one.largest(4)} == {"0", "1", "2", "3"}


@pytest.mark.parametrize("y", [torch.tensor([0, 1, 1]), torch.tensor([0, 7])])
def test_labels_that_do_not_fit_are_refused(y: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"\by\b|label"):
        wm.explain(affine(), torch.randn(2, 4, dtype=torch.float64), y, search="own")


def test_a_binary_network_and_bounds() -> None:
    model = affine(2, 1)
    x = torch.rand(4, 2, dtype=torch.float64)
    found = wm.explain(model, x, bounds=(0.0, 1.0), search="own")
    for one in found:
        assert one.decision in (-1, 1)
        assert one.other in (None, -one.decision)
        assert 0 <= float(one.changed.min()) <= float(one.changed.max()) <= 1
        assert math.isinf(one.distance) == (one.other is None)


def test_a_constant_network_has_no_other_answer(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    nn.init.zeros_(model.weight)
    with torch.no_grad():
        model.bias.copy_(torch.tensor([2.0, 0.0]))
    found = wm.explain(model, torch.rand(2, 3), search="own", steps=3)
    assert not found[0].is_found
    assert "The search found no other answer" in repr(found)
    assert "found no other answer" in found.page(tmp_path / "page.html").read_text(encoding="utf-8")


class Text(nn.Module):
    """A classifier of tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 6)
        self.out = nn.Linear(6, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        scores: Tensor = self.out(self.embedding(tokens).mean(dim=1))
        return scores


def test_tokens_are_changed_at_their_embedding(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, tokens = Text(), torch.randint(10, (2, 5))
    words = [f"word{i}" for i in range(10)]
    found = wm.explain(model, tokens, names=words, search="own")
    for one, given in zip(found, tokens):
        assert (one.place, one.certified) == ("embedding", 0.0)
        assert one.x.shape == (5, 6)
        # The mean over tokens: every embedding moves by the same step.
        weight = model.out.weight.detach()
        difference = weight[one.decision] - weight[one.other]
        gap = one.scores[one.decision] - one.scores[one.other]
        assert one.distance == pytest.approx(float(gap / (difference.norm() / 5**0.5)), rel=1e-2)
        assert sorted(row["name"] for row in one.largest(5)) == sorted(
            f"{i}: word{int(t)}" for i, t in enumerate(given)
        )
    text = found.page(tmp_path / "page.html").read_text(encoding="utf-8")
    assert f"0: word{int(tokens[0, 0])}" in text
    assert "no certificate at &#39;embedding&#39;" in text


def test_the_page_of_images_escapes_everything(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    hostile = '"><script>alert(1)</script>'
    found = wm.explain(
        model, torch.rand(2, 1, 4, 4), torch.tensor([0, 1]), classes=(hostile,) * 3, bounds=(0.0, 1.0), search="own"
    )
    path = found.page(tmp_path / "page.html", title=hostile)
    text = path.read_text(encoding="utf-8")
    assert "<script" not in text
    assert text.count("data:image/png;base64,") == 6
    rows = wm.explain(nn.Linear(2, 2), torch.rand(1, 2), names=(hostile, "b")).page(tmp_path / "rows.html").read_text()
    assert "<script" not in rows
    assert "&lt;script&gt;" in rows


def test_features_of_a_frame_have_its_names_and_samples_their_positions(tmp_path: Path) -> None:
    torch.manual_seed(0)
    frame = pd.DataFrame(torch.rand(2, 3).numpy(), columns=["age", "height", "weight"])
    for y in (None, torch.tensor([0, 1])):
        found = wm.explain(nn.Linear(3, 2), frame, y, search="own")
        assert sorted(change["name"] for change in found[0].largest()) == ["age", "height", "weight"]
    named = wm.explain(nn.Linear(3, 2), frame, names=("a", "b", "c"), search="own")
    assert sorted(change["name"] for change in named[0].largest()) == ["a", "b", "c"]
    text = found.page(tmp_path / "page.html", positions=[14, 15], settings={"model": "<i>"}).read_text(encoding="utf-8")
    assert ">Sample 15<" in text
    assert "<dt>model</dt><dd>&lt;i&gt;</dd>" in text
    with pytest.raises(ValueError, match="positions"):
        found.page(tmp_path / "page.html", positions=[14])


def test_a_change_is_drawn_in_two_colours() -> None:
    assert signed_image(torch.tensor([[[0.0, 1.0], [-0.5, 0.0]]])) != signed_image(
        torch.tensor([[[0.0, 1.0], [0.5, 0.0]]])
    )
    assert signed_image(torch.zeros(3, 2, 2)).startswith("data:image/png;base64,")


def test_probabilities_are_read_or_refused() -> None:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    x = torch.rand(2, 4)
    with pytest.raises(ValueError, match="read_as='probabilities'"):
        wm.explain(nn.Sequential(*layers, nn.Softmax(dim=1)), x)
    one = wm.explain(nn.Sequential(*layers, nn.Softmax(dim=1)), x, read_as="probabilities", search="own", steps=4)
    two = wm.explain(layers, x, search="own", steps=4)
    assert [a.distance for a in one] == pytest.approx([b.distance for b in two], rel=1e-3)
    assert one[0].certified > 0


def test_a_constant_network_is_told_without_an_astronomical_number() -> None:
    model = nn.Linear(3, 2)
    nn.init.zeros_(model.weight)
    (one,) = wm.explain(model, torch.randn(1, 3))
    assert "No change of any practical size changes the answer" in str(one)
