"""The loss in a real `transformers.Trainer`, with a small BERT of random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn
from torch.utils.data import DataLoader

import widemargin as wm
from bert import tiny_bert
from widemargin.integrations.huggingface import compute_loss
from widemargin.integrations.torchmetrics import MarginDistance

EMBEDDING = "bert.embeddings.word_embeddings"

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*pin_memory"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def rows(count: int = 32) -> list[dict[str, torch.Tensor]]:
    """Sentences of six tokens, of which the last are masked; the first token tells the label."""
    generator = torch.Generator().manual_seed(0)
    found = []
    for i in range(count):
        tokens = torch.randint(2, 20, (6,), generator=generator)
        tokens[0] = i % 2
        mask = torch.ones(6, dtype=torch.long)
        mask[6 - i % 3 :] = 0
        found.append({"input_ids": tokens, "attention_mask": mask, "labels": torch.tensor(i % 2)})
    return found


def loader(batch_size: int) -> DataLoader[Any]:
    return DataLoader(rows(), batch_size=batch_size)  # type: ignore[arg-type]


def trained(kind: Any, model: nn.Module, folder: Path, **options: Any) -> Any:
    settings = transformers.TrainingArguments(
        output_dir=str(folder),
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        save_strategy="no",
        logging_strategy="no",
        seed=0,
        **({"num_train_epochs": 6, "per_device_train_batch_size": 16, "learning_rate": 5e-3} | options),
    )
    trainer = kind(model=model, args=settings, train_dataset=rows(), eval_dataset=rows())
    trainer.train()
    return trainer


class MarginTrainer(transformers.Trainer):  # type: ignore[misc]
    compute_loss = compute_loss(wm.WideMargin())


class CrossEntropyTrainer(transformers.Trainer):  # type: ignore[misc]
    compute_loss = compute_loss(wm.losses.CrossEntropy())


def test_it_trains_and_evaluates_with_a_margin_loss(tmp_path: Path) -> None:
    model = tiny_bert(2)
    before = wm.measure(model, loader(32))
    trainer = trained(MarginTrainer, model, tmp_path)
    after = wm.measure(model, loader(32))
    assert list(after.margins) == [EMBEDDING]  # tokens can't move
    assert after.accuracy == 1.0
    assert after.statistics[EMBEDDING].mean > before.statistics[EMBEDDING].mean
    found = trainer.evaluate()["eval_loss"]
    with torch.no_grad():  # of batches of 8, the default of evaluation
        means = [float(wm.WideMargin()(model.eval(), x, y).mean()) for x, y in wm.data.batches(loader(8))]
    assert found == pytest.approx(sum(means) / 4, rel=1e-4)
    predictions = trainer.predict(rows()).predictions
    assert (predictions.argmax(axis=1) == after.predictions.numpy()).all()


@pytest.mark.parametrize("count", [None, 32, 6016])
def test_the_number_of_training_samples_is_that_of_the_data_set(count: int | None, tmp_path: Path) -> None:
    """As in `fit`: with many samples the second term has less weight."""
    model, batch = tiny_bert(2).eval(), next(iter(loader(16)))
    loss = wm.WideMargin(strength=1e6)  # the network is nearly flat

    class Strong(transformers.Trainer):  # type: ignore[misc]
        compute_loss = compute_loss(loss)

    settings = transformers.TrainingArguments(output_dir=str(tmp_path), report_to=[], use_cpu=True)
    trainer: Any = Strong(model=model, args=settings, train_dataset=None if count is None else rows() * (count // 32))
    x, y = next(iter(wm.data.batches(loader(16))))

    def value(loss: wm.WideMargin) -> float:
        return float(loss(model, x, y).mean().detach())

    found = float(trainer.compute_loss(model, dict(batch)).detach())
    assert found == pytest.approx(value(loss if count is None else loss.for_samples(count)), rel=1e-5)
    assert (found < 0.9 * value(loss)) == (count == 6016)


def test_transforms_that_change_samples_at_random_are_noticed(tmp_path: Path) -> None:
    model, loss = tiny_bert(2).eval(), wm.WideMargin(strength=1e6)
    x, y = next(iter(wm.data.batches(loader(16))))

    class Strong(transformers.Trainer):  # type: ignore[misc]
        compute_loss = compute_loss(loss)

    class Changed(list[Any]):
        reads = 0

        def __getitem__(self, i: Any) -> Any:
            Changed.reads += 1
            return {**super().__getitem__(i), "noise": torch.rand(3)}

    settings = transformers.TrainingArguments(output_dir=str(tmp_path), report_to=[], use_cpu=True)
    trainer: Any = Strong(model=model, args=settings, train_dataset=Changed(rows()))
    expected = float(wm.WideMargin(strength=1e6, augmented=True)(model, x, y).mean().detach())
    for _ in range(2):
        found = float(trainer.compute_loss(model, dict(next(iter(loader(16))))).detach())
        assert found == pytest.approx(expected, rel=1e-5)
        assert Changed.reads == 2  # in the first batch alone, until two differ
    trainer.train_dataset = rows()
    plain = float(trainer.compute_loss(model, dict(next(iter(loader(16))))).detach())
    assert plain == pytest.approx(float(loss(model, x, y).mean().detach()), rel=1e-5)
    assert plain > 1.1 * expected


def test_cross_entropy_is_the_trainer_s_own_also_with_accumulated_gradients(tmp_path: Path) -> None:
    common: dict[str, Any] = {"num_train_epochs": 2, "optim": "sgd", "learning_rate": 0.5, "max_grad_norm": 0.0}
    expected = tiny_bert(2)
    trained(transformers.Trainer, expected, tmp_path, per_device_train_batch_size=16, **common)
    for steps in (1, 2):  # SGD, since Adam would hide a factor
        model = tiny_bert(2)
        size = {"per_device_train_batch_size": 16 // steps, "gradient_accumulation_steps": steps}
        trained(CrossEntropyTrainer, model, tmp_path, **common, **size)
        for name, value in expected.state_dict().items():
            torch.testing.assert_close(model.state_dict()[name], value, rtol=1e-3, atol=1e-5)


def test_metrics_take_inputs_by_name() -> None:
    model, metric = tiny_bert(2), MarginDistance()
    for batch in loader(16):
        labels = batch.pop("labels")
        metric.update(model, batch, labels)
    expected = wm.measure(model, loader(32)).statistics[EMBEDDING].mean
    assert float(metric.compute()) == pytest.approx(expected, rel=1e-4)


def test_the_embedding_of_t5_is_the_one_that_its_encoder_runs() -> None:
    """Its first one, `transformer.shared`, has the same weight and does not run."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 20, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2, "num_labels": 3}
    model = transformers.T5ForSequenceClassification(transformers.T5Config(**sizes, decoder_start_token_id=0)).eval()
    tokens = torch.randint(2, 20, (30, 6))
    tokens[:, -1] = 1  # the end of the sentence, which it classifies
    y = model(tokens).logits.argmax(dim=1)
    embedding = "transformer.encoder.embed_tokens"
    assert list(wm.measure(model, (tokens, y)).margins) == [embedding]
    assert wm.explain(model, tokens[:1], steps=1, search="own")[0].place == embedding
    assert wm.diagnostics.margin_signature(model, (tokens, y), samples=30).places[0] == embedding


def test_bad_losses_and_batches_are_named() -> None:
    with pytest.raises(ValueError, match="loss needs the positions"):
        compute_loss(wm.losses.Weighted(samples=(1.0, 2.0)))
    with pytest.raises(TypeError, match="loss is"):
        compute_loss(wm.WideMargin)  # type: ignore[arg-type]
    method = compute_loss()
    with pytest.raises(ValueError, match="'labels'"):
        method(type("T", (), {})(), tiny_bert(2), {"input_ids": torch.ones(1, 2, dtype=torch.long)})
