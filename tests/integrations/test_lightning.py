"""The callback in a real `Trainer`: its values are those of `wm.measure`, and the training is the one without it."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.loggers import CSVLogger

import widemargin as wm
from integrations.lightning_cases import Classifier, loader, samples, trainer
from subprocesses import run_two
from widemargin.integrations.lightning import Margins

pytestmark = [
    pytest.mark.filterwarnings("ignore:GPU available but not used"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*log_every_n_steps"),
    pytest.mark.filterwarnings("ignore:.*have no `val_dataloader`"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),
]
HERE = Path(__file__).parent
STATISTICS = ("mean", "median", "minimum", "share negative")


def expected(model: torch.nn.Module, data: Any, stage: str, at: tuple[str, ...]) -> dict[str, float]:
    """What should be logged, by `wm.measure`."""
    found = wm.measure(model, data, at=at)
    values = {f"margins/{stage}/accuracy": found.accuracy}
    for place, d in found.statistics.items():
        numbers = (d.mean, d.quantile(0.5), d.minimum, d.share_negative)
        values |= {f"margins/{stage}/{place}/{name}": v for name, v in zip(STATISTICS, numbers, strict=True)}
    return values


def test_the_values_of_an_epoch_are_those_of_measure(tmp_path: Path) -> None:
    callback, model = Margins(at=("input", "net.0")), Classifier()
    run = trainer(callbacks=[callback], logger=CSVLogger(tmp_path, name="", version=""))
    run.fit(model, loader(48, 0), loader(40, 1))
    logged = {name: float(value) for name, value in run.callback_metrics.items()}
    assert "val/loss" in logged
    for stage, data in {"train": samples(48, 0), "val": samples(40, 1)}.items():
        for name, value in expected(model, data, stage, ("input", "net.0")).items():
            assert logged[name] == pytest.approx(value, rel=1e-4, abs=1e-6), name
    rows = list(csv.DictReader((tmp_path / "metrics.csv").read_text().splitlines()))
    assert len([row for row in rows if row["margins/val/input/mean"]]) == 2
    assert [(row["epoch"], row["split"]) for row in callback.rows] == [
        (1, "validation"),
        (1, "train"),
        (2, "validation"),
        (2, "train"),
    ]
    html = (tmp_path / "margins.html").read_text()
    assert "Margins of Classifier" in html
    assert "40 validation samples after epoch 2" in html


def test_the_training_is_the_one_without_the_callback() -> None:
    weights = []
    for callbacks in ([], [Margins(page=None)]):
        model = Classifier()
        torch.manual_seed(1)
        trainer(callbacks=callbacks).fit(model, loader(48, 0, shuffle=True), loader(40, 1))
        weights.append(dict(model.state_dict()))
    torch.testing.assert_close(weights[1], weights[0], rtol=0, atol=0)


def test_a_training_in_bf16_without_validation_samples(tmp_path: Path) -> None:
    callback, model = Margins(samples=20, network="net", page="pages/own.html"), Classifier()
    run = trainer(callbacks=[callback], precision="bf16-mixed", default_root_dir=tmp_path)
    run.fit(model, loader(48, 0))
    kept = tuple(part[:32] for part in samples(48, 0))  # the first batches of 16 that have 20 samples
    for name, value in expected(model.net, kept, "train", ("input",)).items():
        assert float(run.callback_metrics[name]) == pytest.approx(value, rel=1e-4), name
    assert "32 training samples" in (tmp_path / "pages" / "own.html").read_text()


def test_test_samples_and_batches_of_another_form() -> None:
    model, x, y = Classifier(), *samples(40, 2)
    rows: Any = [{"row": a, "label": b} for a, b in zip(x, y)]
    data: Any = torch.utils.data.DataLoader(rows, batch_size=16)
    run = trainer(callbacks=[Margins(samples=None, batch=lambda batch: (batch["row"], batch["label"]))])
    run.test(model, data, verbose=False)
    for name, value in expected(model, (x, y), "test", ("input",)).items():
        assert float(run.callback_metrics[name]) == pytest.approx(value, rel=1e-4), name
    with pytest.raises(TypeError, match=r"pair \(x, y\).* Margins\(batch="):
        trainer(callbacks=[Margins()]).test(model, data, verbose=False)


def test_a_missing_extra_is_said_at_the_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("widemargin.integrations.lightning.is_installed", lambda *_: False)
    with pytest.warns(UserWarning, match=r"widemargin\[report\]"):
        trainer(callbacks=[Margins()], max_epochs=1, default_root_dir=tmp_path).fit(Classifier(), loader(16, 0))
    assert not (tmp_path / "margins.html").exists()


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what two processes found."""
    folder = tmp_path_factory.mktemp("two")
    run_two("-m", "integrations.ddp_lightning", str(folder))
    return folder


def test_two_processes_log_the_values_of_all_samples(two: Path) -> None:
    found = [json.loads((two / f"{rank}.json").read_text()) for rank in range(2)]
    assert found[0] == found[1]
    model = Classifier()
    model.load_state_dict(torch.load(two / "weights.pt", weights_only=True))
    values = expected(model, samples(40, 1), "val", ("input", "net.0"))
    values |= expected(model, samples(48, 0), "train", ("input", "net.0"))
    for name, value in values.items():
        assert found[0]["logged"][name] == pytest.approx(value, rel=1e-4, abs=1e-6), name
    assert (two / "margins.html").is_file()


def test_a_metric_with_no_samples_in_one_process(two: Path) -> None:
    model = Classifier()
    model.load_state_dict(torch.load(two / "weights.pt", weights_only=True))
    x, y = samples(40, 1)
    median = wm.measure(model, (x[:7], y[:7])).statistics["input"].quantile(0.5)
    for rank in range(2):
        assert json.loads((two / f"{rank}.json").read_text())["median"] == pytest.approx(median, rel=1e-5)
