"""Label issues: flipped labels are found, and the result says the same in all its forms."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import widemargin as wm
from widemargin.data import Samples
from widemargin.diagnostics import LabelIssues, label_issues

CLASSES = ("left", "<b>right</b>", "top")


def clusters(count: int = 240, flips: float = 0.1) -> tuple[Tensor, Tensor, Tensor]:
    """Three clusters in the plane: inputs, labels of which some are wrong, and which."""
    rng = torch.Generator().manual_seed(0)
    y = torch.arange(count) % 3
    centres = 3.0 * torch.tensor([[-1.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    x = centres[y] + torch.randn(count, 2, generator=rng)
    given = wm.data.flip_labels(Samples(x, y), flips, seed=0, classes=3).y
    return x, given, given != y


@pytest.fixture(scope="module")
def found() -> LabelIssues:
    x, y, _ = clusters()
    return label_issues(build, (x, y), epochs=9, optimizer=wm.training.AdamW(lr=0.01), classes=CLASSES, device="cpu")


def build() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 3))


def auc(margin: Tensor, wrong: Tensor) -> float:
    """The share of pairs of a wrong and a right label that are in the right order."""
    pairs = (margin[wrong][:, None] < margin[~wrong][None]).double()
    return float(pairs.mean())


def test_flipped_labels_come_first(found: LabelIssues) -> None:
    x, y, wrong = clusters()
    assert auc(found.margin, wrong) > 0.97
    suspects = found.suspects
    assert float(wrong[suspects].double().mean()) > 0.8
    assert int(wrong[suspects].sum()) >= 18  # of 24
    right = (torch.arange(240) % 3)[suspects]
    assert float((found.suggested[suspects] == right).double().mean()) > 0.8
    low, high = found.expected_precision
    assert 0 < low <= high <= 1
    assert torch.equal(found.margin[found.ranking], found.margin.sort().values)
    assert len(found) == len(y) == len(x)


def test_one_training_without_folds() -> None:
    x, y, wrong = clusters()
    one = wm.label_issues(build, (x, y), folds=1, epochs=9, optimizer=wm.training.AdamW(lr=0.01), device="cpu")
    assert auc(one.margin, wrong) > 0.95


def test_the_expected_precision_of_the_first_ones(found: LabelIssues) -> None:
    order = found.margin.argsort(stable=True)
    for count in (1, 7, 100):
        low, high = found.precision_of(count)
        assert high == pytest.approx(sum(found.wrong[order[:count]].tolist()) / count)
        assert low == pytest.approx(sum(found.least_wrong[order[:count]].tolist()) / count)
    chosen = len(found.at_precision(0.8))
    assert found.precision_of(chosen)[1] >= 0.8
    assert all(found.precision_of(count)[1] < 0.8 for count in range(chosen + 1, len(found) + 1))
    assert len(found.at_precision(0.8, cautious=True)) <= chosen
    assert math.isnan(found.precision_of(0)[0])


def test_rows_pairs_and_files(found: LabelIssues, tmp_path: Path) -> None:
    rows = found.rows(3)
    assert [row["index"] for row in rows] == found.ranking[:3].tolist()
    assert rows[0]["given"] == CLASSES[int(found.labels[rows[0]["index"]])]
    assert sum(count for _, _, count in found.pairs()) == len(found.suspects)
    table, summary = found.write(tmp_path)
    with table.open(newline="") as file:
        written = list(csv.DictReader(file))
    assert len(written) == len(found)
    assert float(written[0]["margin"]) == rows[0]["margin"]
    assert written[0]["suggested"] == rows[0]["suggested"]
    assert json.loads(summary.read_text())["suspects"] == len(found.suspects)
    assert f"{len(found.suspects):,} suspects" in repr(found)
    assert CLASSES[0] in repr(found)


def test_the_page_of_a_table_and_of_images(found: LabelIssues, tmp_path: Path) -> None:
    text = found.page(tmp_path / "table.html", count=5).read_text()
    assert "&lt;b&gt;right&lt;/b&gt;" in text
    assert "<b>right</b>" not in text
    assert f"{float(found.samples.x[found.ranking[0], 0]):.4g}" in text
    images = Samples(torch.rand(8, 1, 4, 4), torch.arange(8) % 2)
    pictures = label_issues(None, images, folds=2, epochs=1, device="cpu").page(tmp_path / "images.html").read_text()
    assert pictures.count("data:image/png;base64,") == 8


def test_labels_of_a_binary_network_are_signs() -> None:
    x, y, _ = clusters(90)
    signs = torch.where(y == 0, 1.0, -1.0)
    found = label_issues(lambda: nn.Linear(2, 1), (x, signs), folds=2, epochs=3, device="cpu")
    assert found.classes == ("-1", "1")
    assert torch.equal(found.labels, (signs > 0).long())


def test_frames_with_names_as_labels(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    x, y, _ = clusters(60)
    frame = pandas.DataFrame(x.numpy(), columns=["height", "weight"])
    names = pandas.Series([("ape", "bat", "cat")[k] for k in y.tolist()])
    found = label_issues(None, (frame, names), folds=2, epochs=2, device="cpu")
    assert found.classes == ("ape", "bat", "cat")
    assert found.rows(1)[0]["given"] == names[int(found.ranking[0])]
    assert "height" in found.page(tmp_path / "page.html").read_text()


def test_the_result_depends_on_the_seed_alone() -> None:
    x, y, _ = clusters(60)
    first, again, other = (
        label_issues(build, (x, y), folds=2, epochs=2, seed=seed, device="cpu").margin for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


class Small(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 3))


def test_a_class_of_networks_builds_them() -> None:
    x, y, _ = clusters(60)
    one, two = (label_issues(make, (x, y), folds=2, epochs=2, device="cpu").margin for make in (build, Small))
    assert torch.equal(one, two)


def test_a_sample_that_is_not_finite_is_named_by_its_position_in_the_data() -> None:
    x, y, _ = clusters(60)
    x[17, 1] = torch.nan
    with pytest.raises(ValueError, match="data has nan at index 17"):
        label_issues(build, (x, y), folds=2, epochs=2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"folds": 0}, "folds"),
        ({"folds": 100}, "label '0' has 80 samples"),
        ({"epochs": 0}, "epochs"),
        ({"build": 3}, "build"),
        ({"build": Samples}, "build"),
        ({"data": (torch.zeros(4, 2), torch.zeros(4, dtype=torch.long))}, "one label"),
        ({"data": (torch.zeros(4, 2), torch.tensor([0, 1, -1, 1]))}, "label -1"),
        ({"data": (torch.zeros(4, 2), torch.tensor([0.0, 1.0, 2.0, 1.0]))}, "float labels"),
    ],
)
def test_bad_input_is_one_sentence(untyped: None, change: dict[str, object], message: str) -> None:
    x, y, _ = clusters(flips=0.0)
    arguments: dict[str, object] = {"build": build, "data": (x, y), **change}
    with pytest.raises((ValueError, TypeError), match=message):
        label_issues(arguments.pop("build"), arguments.pop("data"), **arguments)  # type: ignore[arg-type]
