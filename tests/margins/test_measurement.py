from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import oracles
import widemargin as wm
import zoo
from widemargin import places
from widemargin.margins import Measurement, distance, measure, output
from widemargin.modules import scores_of
from widemargin.report.names import class_label

EVERY = [*zoo.ZOO, *zoo.TOKENS, *zoo.RECURRENT, *zoo.LOGITS]


def case(samples: int = 11) -> tuple[nn.Sequential, Tensor, Tensor]:
    """A network with batch norm and dropout, in training mode, and its data."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)
    ).double()
    x = torch.randn(samples, 4, dtype=torch.float64)
    network(x)  # running statistics that are not 0 and 1
    return network, x, torch.arange(samples) % 3


@pytest.mark.parametrize("entry", EVERY, ids=str)
def test_the_margins_of_every_network(entry: zoo.Entry) -> None:
    """The definition, sample by sample, at the default place and a hidden one, whatever the batches are."""
    network, x, y = entry.network(dtype=torch.float64), entry.inputs(dtype=torch.float64), entry.labels()
    measured = measure(network, (x, y), batch_size=2)
    place = entry.place if entry.vocabulary else "input"
    assert list(measured.margins) == [place]
    expected = [row[0] for row in oracles.distances(network, x, y, place=place, p=2)]
    torch.testing.assert_close(measured.margins[place].tolist(), expected, rtol=1e-8, atol=1e-12, equal_nan=True)
    with torch.no_grad():
        scores = scores_of(network(x))
    torch.testing.assert_close(measured.output.tolist(), oracles.output(scores, y), rtol=1e-9, atol=1e-12)
    right = sum(margin > 0 for margin in oracles.output(scores, y))
    assert measured.accuracy == pytest.approx(right / len(y))
    assert torch.equal(measured.labels, y)
    hidden = measure(network, (x, y), at=(entry.place,), p=math.inf, batch_size=3).margins[entry.place]
    expected = [row[0] for row in oracles.distances(network, x, y, place=entry.place, p=math.inf)]
    torch.testing.assert_close(hidden.tolist(), expected, rtol=1e-8, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("classes", [2, "all"])
@pytest.mark.parametrize("reading", ["logits", "softmax"])
def test_all_that_distance_can_do(classes: Any, reading: Any) -> None:
    network, x, y = case()
    measured = measure(network, (x, y), at=("4", "input"), p=1.25, classes=classes, read_as=reading, batch_size=4)
    network.eval()
    with places.watch(network, ("4", "input")) as at:
        scores = network(x)
    expected = distance(scores, y, at=at, p=1.25, classes=classes, read_as=reading)
    assert list(measured.margins) == ["4", "input"]
    for place, values in measured.margins.items():
        torch.testing.assert_close(values, expected[place].detach(), rtol=1e-10, atol=0)
    assert measured.settings == {"at": ["4", "input"], "p": 1.25, "classes": classes, "read_as": reading}


class Listed(Dataset[tuple[Tensor, Tensor]]):
    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.x[index], self.y[index]


class Streamed(IterableDataset[tuple[Tensor, Tensor]]):
    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        yield from zip(self.x, self.y)


@pytest.mark.parametrize("progress", [None, True, False])
def test_every_kind_of_data(progress: bool | None) -> None:
    network, x, y = case()
    expected = measure(network, (x, y)).margins["input"]
    for data in (
        wm.data.Samples(x, y),
        TensorDataset(x, y),
        Listed(x, y),
        Streamed(x, y),
        DataLoader(Listed(x, y), batch_size=3),
        DataLoader(Streamed(x, y), batch_size=5),
    ):
        measured = measure(network, data, batch_size=4, progress=progress)
        torch.testing.assert_close(measured.margins["input"], expected, rtol=1e-10, atol=0)


def test_a_shuffled_loader_is_measured_in_the_order_of_its_data_set(tmp_path: Path) -> None:
    network, x, y = case()
    expected = measure(network, (x, y))
    loader = DataLoader(Listed(x, y), batch_size=3, shuffle=True, generator=torch.Generator().manual_seed(1))
    measured = measure(network, loader)
    assert measured.index is None
    assert torch.equal(measured.labels, y)
    torch.testing.assert_close(measured.margins["input"], expected.margins["input"], rtol=1e-10, atol=0)
    assert measured.hardest(11).tolist() == expected.hardest(11).tolist()
    table, _ = measured.write(tmp_path)
    assert "index" not in pq.read_table(table).column_names


def test_hardest_are_positions_in_the_data_set_where_a_sampler_leaves_samples_out(tmp_path: Path) -> None:
    network, x, y = case()
    expected = measure(network, (x, y))
    kept = [9, 2, 7, 4]
    measured = measure(network, DataLoader(Listed(x, y), batch_size=3, sampler=kept))
    assert measured.index is not None
    assert measured.index.tolist() == sorted(kept)
    margins = expected.margins["input"]
    assert measured.hardest(4).tolist() == sorted(kept, key=lambda i: float(margins[i]))
    rows = measured.hardest_rows(4)
    torch.testing.assert_close(measured.margins["input"][rows], margins[measured.hardest(4)], rtol=1e-10, atol=0)
    assert pq.read_table(measured.write(tmp_path)[0]).to_pydict()["index"] == sorted(kept)


def test_a_stream_has_no_positions() -> None:
    network, x, y = case()
    measured = measure(network, Streamed(x, y), batch_size=4)
    assert measured.hardest_rows(11).tolist() == measure(network, (x, y)).hardest(11).tolist()
    with pytest.raises(ValueError, match=r"stream.*hardest_rows"):
        measured.hardest(1)


def test_a_binary_network_has_the_names_of_both_signs() -> None:
    network = nn.Sequential(nn.Linear(3, 1))
    x, y = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([-1.0, 1.0] * 4)
    measured = wm.measure(network, wm.data.Samples(x, y, classes=("no", "yes")))
    assert list(measured.by_class("input")) == ["no", "yes"]
    assert [class_label(label, measured.classes) for label in (-1.0, 1.0)] == ["-1 no", "1 yes"]
    with pytest.raises(ValueError, match=r"it takes labels -1\.0 and 1\.0"):
        wm.measure(network, wm.data.Samples(x, (y > 0).long(), classes=("no", "yes")))


def test_names_of_classes_are_kept(tmp_path: Path) -> None:
    network, x, y = case()
    names = np.array(["cat", "dog", "emu"])[y]
    measured = wm.measure(network, (pd.DataFrame(x.numpy()), pd.Series(names)))
    expected = measure(network, (x, y))
    assert torch.equal(measured.labels, y)
    assert measured.classes == ("cat", "dog", "emu")
    assert {name: d.mean for name, d in measured.by_class("input").items()} == {
        ("cat", "dog", "emu")[label]: d.mean
        for label, d in expected.by_class("input").items()
        if isinstance(label, int)
    }
    table, text = measured.write(tmp_path)
    assert pq.read_table(table).to_pydict()["label name"] == names.tolist()
    assert json.loads(text.read_text())["classes"] == ["cat", "dog", "emu"]


def test_float64_goes_to_the_dtype_of_the_network_and_bytes_are_refused() -> None:
    network, x, y = case()
    network = network.float()
    torch.testing.assert_close(measure(network, (x.numpy(), y.numpy())).output, measure(network, (x.float(), y)).output)
    for at in (None, ("input",)):
        with pytest.raises(TypeError, match=r"dtype torch\.uint8.*x\.float\(\) / 255"):
            measure(network, ((100 * x).byte().numpy(), y.numpy()), at=at)


def test_data_by_name() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    measured = wm.measure(network, "digits")
    assert len(measured) == len(wm.data.load("digits").test)
    assert measured.labels.unique().tolist() == list(range(10))


@pytest.mark.parametrize("column", [False, True])
def test_a_binary_network(column: bool) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1), *([] if column else [nn.Flatten(0)]))
    x, y = torch.randn(6, 3), torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])
    measured = measure(network, (x, y), batch_size=4)
    f = network(x).detach().flatten()
    torch.testing.assert_close(measured.output, f * y)
    assert measured.predictions.tolist() == f.sign().tolist()
    assert sorted(measured.by_class("input")) == [-1, 1]
    assert measured.accuracy == (f * y > 0).double().mean()


def test_inputs_go_to_the_dtype_of_the_network() -> None:
    network, x, y = case()
    expected = measure(network, (x, y)).margins["input"]
    torch.testing.assert_close(measure(network, (x.float(), y)).margins["input"], expected, rtol=1e-4, atol=1e-6)
    single = measure(network.float(), (x, y)).margins["input"]
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), expected, rtol=1e-3, atol=1e-5)


def test_a_network_without_parameters() -> None:
    x, y = torch.tensor([[3.0, 1.0], [0.0, 2.0]]), torch.tensor([0, 0])
    margins = measure(nn.Identity(), (x, y)).margins["input"]
    torch.testing.assert_close(margins, torch.tensor([2.0, -2.0]) / math.sqrt(2))


def test_under_autocast(tmp_path: Path) -> None:
    network, x, y = case()
    network, x = network.float(), x.float()
    expected = measure(network, (x, y))
    with torch.autocast("cpu", torch.bfloat16):
        measured = measure(network, (x, y))
    assert measured.output.dtype == torch.float32
    error = (measured.margins["input"] / expected.margins["input"] - 1).abs()
    assert error.median() < 0.02  # where no ReLU changes sides
    measured.write(tmp_path)


@pytest.mark.parametrize("off", [torch.no_grad, torch.enable_grad])
def test_also_inside_no_grad(off: Any) -> None:
    network, x, y = case()
    with off():
        measured = measure(network, (x, y))
    assert measured.valid["input"].all()


def test_the_network_is_left_as_it_was() -> None:
    network, x, y = case()
    network[1].eval()
    network[4].weight.requires_grad_(False)
    before = [module.training for module in network.modules()]
    state = {key: value.clone() for key, value in network.state_dict().items()}
    first = measure(network, (x, y))
    assert [module.training for module in network.modules()] == before
    assert all(torch.equal(value, state[key]) for key, value in network.state_dict().items())
    assert [p.requires_grad for p in network.parameters()] == [True, True, True, True, False, True, True, True]
    assert all(p.grad is None for p in network.parameters())
    assert torch.equal(measure(network, (x, y)).margins["input"], first.margins["input"])  # no dropout, no batch in it


def test_the_network_is_left_as_it_was_after_an_error() -> None:
    network, x, y = case()
    with pytest.raises(ValueError, match="y has 9 at index 1"):
        measure(network, (x, torch.where(torch.arange(len(y)) == 5, 9, y)), batch_size=4)
    assert all(module.training for module in network.modules())
    assert all(p.requires_grad for p in network.parameters())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in network.modules())


class Mixing(nn.Module):
    """A network with a home-made layer that mixes samples, in evaluation mode too."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.first, self.last, self.how = nn.Linear(4, 5), nn.Linear(5, 3), how

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.first(x))
        if self.how in ("centred", "probabilities"):
            h = h - h.mean(dim=0, keepdim=True)
        elif self.how == "causal":
            h = h.cumsum(dim=0)
        elif self.how == "anticausal":
            h = h.flip(0).cumsum(dim=0).flip(0)
        elif self.how == "pairs":
            pairs = h[: len(h) // 2 * 2].view(-1, 2, 5)
            h = torch.cat([pairs.flip(1).reshape(-1, 5), h[len(h) // 2 * 2 :]]) + h
        elif self.how == "rolled":
            h = h.roll(1, dims=0)
        scores: Tensor = self.last(h)
        return scores.softmax(dim=1) if self.how == "probabilities" else scores


@pytest.mark.parametrize(
    ("how", "samples"),
    [
        *((how, samples) for how in ("centred", "probabilities", "causal", "pairs", "rolled") for samples in (2, 3, 8)),
        ("anticausal", 8),
    ],
)
def test_a_layer_that_mixes_samples_is_refused(how: str, samples: int) -> None:
    torch.manual_seed(0)
    network, x, y = Mixing(how), torch.randn(samples, 4), torch.arange(samples) % 3
    with pytest.raises(ValueError, match=r"the scores of one sample depend on the other samples .* at 'input'"):
        measure(network, (x, y))
    if how != "centred" and how != "probabilities":  # one sample alone, less its mean, is nothing
        assert measure(network, (x, y), batch_size=1).valid["input"].all()
    assert measure(Mixing("not at all"), (x, y)).valid["input"].all()


def test_a_batch_norm_without_running_statistics_is_refused() -> None:
    network = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5, track_running_stats=False), nn.Linear(5, 3))
    with pytest.raises(ValueError, match=r"'1' \(BatchNorm1d\) mixes .*: it keeps no running statistics; choose"):
        measure(network, (torch.randn(4, 4), torch.arange(4) % 3))


def dead_for_negative_inputs() -> Measurement:
    network = nn.Sequential(nn.Linear(1, 2, bias=False), nn.ReLU(), nn.Linear(2, 2, bias=False))
    first, last = network.parameters()
    with torch.no_grad():
        first.copy_(torch.tensor([[1.0], [2.0]]))
        last.copy_(torch.tensor([[1.0, 0.0], [0.0, -1.0]]))
    x = torch.tensor([[1.0], [-1.0], [3.0], [2.0], [-2.0]])
    return measure(network, (x, torch.tensor([0, 0, 1, 0, 1])))


def test_samples_without_a_margin_are_left_out_and_counted() -> None:
    measured = dead_for_negative_inputs()
    assert measured.valid["input"].tolist() == [True, False, True, True, False]
    torch.testing.assert_close(measured.margins["input"].nan_to_num(99), torch.tensor([1.0, 99, -3, 2, 99]))
    statistics = measured.statistics["input"]
    assert (len(statistics), statistics.invalid) == (3, 2)
    assert statistics.mean == 0.0
    assert statistics.share_negative == pytest.approx(1 / 3)
    assert {label: (len(d), d.invalid) for label, d in measured.by_class("input").items()} == {0: (2, 1), 1: (1, 1)}
    assert measured.hardest(4).tolist() == [2, 0, 3, 1]
    assert measured.hardest(0).tolist() == []
    assert measured.hardest(99, "input").tolist() == [2, 0, 3, 1, 4]
    assert "without a margin: 2" in str(measured)


class Dead(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.tensor([1.0, 2.0]).repeat(len(x), 1)


def test_a_dead_network_has_no_margins() -> None:
    measured = measure(Dead(), (torch.randn(3, 2), torch.tensor([0, 1, 1])))
    assert not measured.valid["input"].any()
    assert measured.statistics["input"].invalid == 3
    assert measured.accuracy == pytest.approx(2 / 3)
    assert measured.output.tolist() == [-1.0, 1.0, 1.0]


def test_what_is_printed() -> None:
    network, x, y = case()
    measured = measure(network, (x, y), at=("input", "output"), p=math.inf)
    text = str(measured)
    assert repr(measured) == text  # the table, also where a notebook or an interpreter shows the result
    assert text.startswith("11 samples, accuracy 0.")
    assert "l_inf distance" in text
    assert len(text.splitlines()) == 3
    assert "without a margin" not in text


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda m: m.hardest(-1), r"^count is -1\b"),
        (lambda m: m.hardest(1.5), r"^count is 1\.5\b"),
        (lambda m: m.hardest(1, "conv"), r"^place is 'conv'.*'input'"),
        (lambda m: m.by_class("conv"), r"^place is 'conv'.*'input'"),
    ],
)
def test_bad_questions(call: Any, sentence: str) -> None:
    with pytest.raises((TypeError, ValueError), match=sentence):
        call(dead_for_negative_inputs())


def test_write_and_read(tmp_path: Path) -> None:
    network, x, y = case()
    measured = measure(network, (x, y), at=("input", "4"), p=math.inf)
    table_path, summary_path = measured.write(tmp_path / "new" / "results")
    assert sorted(path.name for path in table_path.parent.iterdir()) == ["margins.parquet", "summary.json"]
    table = pq.read_table(table_path)
    columns = {
        "label": measured.labels,
        "prediction": measured.predictions,
        "output margin": measured.output,
        "distance at input": measured.margins["input"],
        "distance at 4": measured.margins["4"],
    }
    assert table.column_names == list(columns)
    for name, column in columns.items():
        np.testing.assert_array_equal(table[name].to_numpy(), column.numpy())
    summary = json.loads(summary_path.read_text())
    assert summary == measured.summary()
    assert summary["settings"] == {"at": ["input", "4"], "p": "inf", "classes": 1, "read_as": "logits"}
    assert summary["samples"] == 11
    assert summary["distance"]["4"] == measured.statistics["4"].summary()
    assert float(summary["settings"]["p"]) == math.inf


def test_no_margin_is_null_in_json_and_nan_in_parquet(tmp_path: Path) -> None:
    table, summary = measure(Dead(), (torch.randn(3, 2), torch.tensor([0, 1, 1]))).write(tmp_path)
    statistics = json.loads(summary.read_text(), parse_constant=pytest.fail)["distance"]["input"]
    assert [statistics[key] for key in ("count", "invalid", "mean", "quantile 0.5")] == [3, 3, None, None]
    assert np.isnan(pq.read_table(table)["distance at input"].to_numpy()).all()


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError("disk full")

    measured = dead_for_negative_inputs()
    for module, function in ((pq, "write_table"), (os, "fsync")):
        with monkeypatch.context() as patched:
            patched.setattr(module, function, fail)
            with pytest.raises(OSError, match="disk full"):
                measured.write(tmp_path)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize(
    ("how", "error", "sentence"),
    [
        ({"model": "mnist"}, TypeError, r"^model is a str"),
        ({"p": 0.5}, ValueError, r"^p is 0\.5"),
        ({"at": "input"}, TypeError, r"^at is 'input'"),
        ({"at": ()}, ValueError, r"^at is empty"),
        ({"at": ("inptu",)}, ValueError, r"did you mean 'input'\?$"),
        ({"classes": 5}, ValueError, r"^classes is 5"),
        ({"read_as": "x"}, ValueError, r"^read_as is 'x'"),
        ({"batch_size": 0}, ValueError, r"^batch_size is 0"),
        ({"data": (torch.zeros(3, 4), torch.tensor([0, 1]))}, ValueError, r"^x has 3 samples"),
        ({"data": 3}, TypeError, r"^data is a int"),
    ],
)
def test_a_bad_argument(how: dict[str, Any], error: type[Exception], sentence: str) -> None:
    network, x, y = case()
    arguments = {"model": network, "data": (x, y), **how}
    with pytest.raises(error, match=sentence):
        measure(arguments.pop("model"), arguments.pop("data"), **arguments)


@pytest.mark.usefixtures("untyped")
def test_bad_arguments_come_before_any_work() -> None:
    ran: list[object] = []
    network = nn.Identity()
    network.register_forward_hook(lambda *_: ran.append(1))
    for how in ({"p": math.nan}, {"at": ("nowhere",)}, {"batch_size": -1}):
        with pytest.raises(ValueError, match=r"p is nan|'nowhere'|batch_size is -1"):
            measure(network, (torch.zeros(2, 2), torch.tensor([0, 1])), **how)
    assert ran == []


def test_tokens_at_the_input() -> None:
    entry = zoo.TOKENS[0]
    with pytest.raises(TypeError, match=r"at has 'input'.*torch\.int64.*'embedding'"):
        measure(entry.network(), (entry.inputs(), entry.labels()), at=("input",))


def test_scores_that_are_not_finite() -> None:
    network = nn.Linear(2, 2)
    nn.init.constant_(network.weight, math.inf)
    with pytest.raises(ValueError, match=r"^model has weights 'weight' that are not finite"):
        measure(network, (torch.ones(3, 2), torch.tensor([0, 1, 0])))


def test_an_empty_stream() -> None:
    network, x, y = case()
    with pytest.raises(ValueError, match=r"^data has no samples"):
        measure(network, Streamed(x[:0], y[:0]))


def test_output_is_what_margins_output_says() -> None:
    network, x, y = case()
    measured = measure(network, (x, y), at=("output",))
    network.eval()
    torch.testing.assert_close(measured.output, output(network(x), y).detach())
    torch.testing.assert_close(measured.margins["output"], measured.output / math.sqrt(2))
