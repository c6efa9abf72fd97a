"""Hugging Face data sets and dict batches, with `datasets` and `transformers` themselves."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from bert import tiny_bert
from widemargin import losses, training
from widemargin.data import batches, read
from widemargin.margins import measure
from widemargin.modules import NamedInputs
from widemargin.places import watch

datasets = pytest.importorskip("datasets")
transformers = pytest.importorskip("transformers")

WORDS = "bert.embeddings.word_embeddings"
ROWS, LENGTH = 9, 6
IDS = torch.randint(1, 20, (ROWS, LENGTH), generator=torch.Generator().manual_seed(0))
MASK = (torch.arange(LENGTH) < 2 + torch.arange(ROWS)[:, None] % 5).long()
LABELS = torch.arange(ROWS) % 3


@pytest.fixture(autouse=True)
def _with_hub(_alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", datasets)


@pytest.fixture(scope="module")
def bert() -> nn.Module:
    return tiny_bert(3, dropout=0.1).eval()


def columns(**more: Any) -> dict[str, Any]:
    texts = {"sentence": ["a text"] * ROWS, "idx": list(range(ROWS))}
    return {**texts, "input_ids": IDS.tolist(), "attention_mask": MASK.tolist(), **more}


def rows(**more: Any) -> Any:
    return datasets.Dataset.from_dict(columns(**more))


def by_hand(model: Any) -> list[float]:
    """(f_y − max f_i)/‖∇‖ of one sentence after the other, from its embedded words."""
    found = []
    for ids, mask, label in zip(IDS, MASK, LABELS.tolist()):
        embedded = model.get_input_embeddings()(ids[None]).detach().requires_grad_()
        scores = model(inputs_embeds=embedded, attention_mask=mask[None]).logits[0]
        difference = scores[label] - max(scores[i] for i in range(3) if i != label)
        (slope,) = torch.autograd.grad(difference, embedded)
        found.append(float(difference.detach() / slope.norm()))
    return found


class Logits(nn.Module):
    """A network that returns a plain dict."""

    def __init__(self, bert: nn.Module) -> None:
        super().__init__()
        self.bert = bert

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        return {"logits": self.bert(input_ids=input_ids, attention_mask=attention_mask).logits}


def test_a_data_set_and_dict_batches_give_the_margins_of_every_sentence(bert: nn.Module) -> None:
    encoded = rows(label=LABELS.tolist())
    formatted = rows(labels=LABELS.tolist()).with_format("torch")
    items: Any = [{"attention_mask": MASK[i], "input_ids": IDS[i], "labels": LABELS[i]} for i in range(ROWS)]
    for data in (encoded, formatted, DataLoader(formatted, 4), DataLoader(items, 4, shuffle=True)):
        measured = measure(bert, data, batch_size=4)
        assert list(measured.margins) == [WORDS]
        torch.testing.assert_close(measured.margins[WORDS].tolist(), by_hand(bert), rtol=1e-4, atol=1e-6)
        assert measured.labels.tolist() == LABELS.tolist()
        assert measured.knows_positions
    # A DataCollatorWithPadding gives these.
    batch = transformers.BatchEncoding({"input_ids": IDS, "attention_mask": MASK, "labels": LABELS})
    one: Any = [0]
    encodings = DataLoader(one, collate_fn=lambda _: batch)
    torch.testing.assert_close(measure(bert, encodings).margins[WORDS].tolist(), by_hand(bert), rtol=1e-4, atol=1e-6)


def test_a_network_that_returns_a_dict(bert: nn.Module) -> None:
    encoded = rows(label=LABELS.tolist())
    measured = measure(Logits(bert), encoded, at=(f"bert.{WORDS}", "output"))
    torch.testing.assert_close(measured.margins[f"bert.{WORDS}"].tolist(), by_hand(bert), rtol=1e-4, atol=1e-6)
    assert measured.margins["output"].isfinite().all()


def test_places_inside_the_embedding_are_named(bert: nn.Module) -> None:
    encoded = rows(label=LABELS.tolist())
    with pytest.raises(TypeError, match=rf"at has 'input'.*{WORDS}.*position_embeddings.*'bert\.embeddings'"):
        measure(bert, encoded, at=("input",))
    measured = measure(bert, encoded, at=("bert.embeddings",))
    assert measured.margins["bert.embeddings"].isfinite().all()


@pytest.mark.parametrize("loss", [losses.WideMargin(), losses.WideMargin(share=0.5), losses.CrossEntropy(), None])
def test_losses_and_fit_take_them(bert: nn.Module, loss: Any) -> None:
    loss = loss or losses.MarginLoss(penalty=losses.Hinge(gamma=1.0), at=(WORDS,))
    x = NamedInputs({"input_ids": IDS, "attention_mask": MASK})
    expected = loss(bert, x, LABELS)
    assert expected.shape == (ROWS,)
    if isinstance(loss, losses.CrossEntropy):
        scores = bert(input_ids=IDS, attention_mask=MASK).logits
        torch.testing.assert_close(expected, nn.functional.cross_entropy(scores, LABELS, reduction="none"))
    encoded, before = rows(label=LABELS.tolist()), bert.state_dict()["classifier.weight"].clone()
    result = training.fit(bert, encoded, loss=loss, epochs=1, batch_size=4, validation=encoded, seed=1)
    assert not torch.equal(before, bert.state_dict()["classifier.weight"])
    assert {row["split"] for row in result.history.rows} == {"train", "validation"}


def test_names_of_classes_are_kept(bert: nn.Module) -> None:
    texts = [["good", "bad", "odd"][i] for i in LABELS]
    measured = measure(bert, rows(label=texts))
    assert measured.classes == ("bad", "good", "odd")
    features = datasets.Features(
        input_ids=datasets.List(datasets.Value("int64")), label=datasets.ClassLabel(names=["good", "bad", "odd"])
    )
    labelled = datasets.Dataset.from_dict({"input_ids": IDS.tolist(), "label": LABELS.tolist()}, features=features)
    found = measure(bert, labelled)
    assert found.classes == ("good", "bad", "odd")
    assert list(found.by_class(WORDS)) == ["good", "bad", "odd"]


def test_images_are_scaled_and_one_column_needs_no_name() -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (4, 5, 5, 3), dtype=np.uint8)
    pillow = pytest.importorskip("PIL.Image")
    features = datasets.Features(image=datasets.Image(), label=datasets.Value("int64"))
    made = datasets.Dataset.from_dict(
        {"image": [pillow.fromarray(p) for p in pictures], "label": [0, 1, 0, 1]}, features=features
    )
    network = nn.Sequential(nn.Flatten(), nn.Linear(75, 2))
    expected = torch.tensor(pictures).permute(0, 3, 1, 2).float() / 255
    samples = read(made)
    assert torch.equal(samples.x, expected)
    torch.testing.assert_close(measure(network, made).output, measure(network, (expected, samples.y)).output)


def test_streams(bert: nn.Module) -> None:
    stream = rows(label=LABELS.tolist()).to_iterable_dataset()
    measured = measure(bert, stream, batch_size=4)
    torch.testing.assert_close(measured.margins[WORDS].tolist(), by_hand(bert), rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match="stream"):
        measured.hardest(2)
    assert len(measured.hardest_rows(2)) == 2


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (lambda: rows(), "column 'labels' or 'label'"),
        (lambda: datasets.Dataset.from_dict({"text": ["a"], "label": [0]}), "tokenize"),
        (lambda: rows(label=["a", "b", "c"] * (ROWS // 3)).to_iterable_dataset(), "names in 'label'.* stream"),
        (lambda: datasets.DatasetDict(train=rows(label=[0] * ROWS)), r"data\['train'\]"),
    ],
)
def test_what_is_missing_is_one_sentence(data: Any, sentence: str) -> None:
    with pytest.raises(TypeError, match=sentence):
        batches(data())


def test_rows_of_several_lengths_need_padding() -> None:
    ragged = datasets.Dataset.from_dict({"input_ids": [[1, 2, 3], [1, 2]], "label": [0, 1]})
    with pytest.raises(ValueError, match=r"'input_ids' of shapes \[2\] and \[3\].*DataCollatorWithPadding"):
        list(batches(ragged))


def test_arguments_that_a_network_has_not_are_named(bert: nn.Module) -> None:
    named: Any = NamedInputs({"ids": IDS, "mask": MASK})
    with watch(bert, (WORDS,)), pytest.raises(TypeError, match=r"inputs ids, mask.*input_ids"):
        losses.CrossEntropy()(bert, named, LABELS)
