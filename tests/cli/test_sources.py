"""Own data on the command line: files, folders and functions, from `--data` to the table, the files and the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from sklearn.datasets import load_digits, load_wine

from cli.conftest import Run
from widemargin import margins, models
from widemargin.cli import arms
from widemargin.data import load_files

MLP = ("--model", "toy-mlp", "--set", "hidden=(6,)")


@pytest.fixture
def wine(tmp_path: Path) -> Path:
    """The wines of scikit-learn, standardised, with the names of their classes."""
    bunch = load_wine(as_frame=True)
    x = (bunch.data - bunch.data.mean()) / bunch.data.std()
    x.assign(target=np.array(bunch.target_names)[bunch.target]).to_csv(tmp_path / "wine.csv", index=False)
    return tmp_path / "wine.csv"


def test_a_column_of_labels_is_for_tables_alone(wine: Path, run: Run) -> None:
    assert "class_0, class_1" in " ".join(run("data", str(wine), "--label", "target").out.split())
    np.savez(wine.with_suffix(".npz"), x=np.ones((4, 2), np.float32), y=np.arange(4) % 2)
    answer = run("data", str(wine.with_suffix(".npz")), "--label", "y")
    assert answer.code == 2
    assert "label is 'y', a column of a table" in answer.err
    assert "--label is 'y', a column of a table, but there is no FILE" in run("data", "--label", "y").err


def test_label_issues_takes_the_part_that_is_asked_for(wine: Path, run: Run) -> None:
    small = ("label-issues", "--data", str(wine), "--epochs", "1", "--folds", "2", "--show", "0")
    for split, count in ((), 178), (("--split", "train"), 142), (("--split", "test"), 36):
        assert f"of {count} labels" in " ".join(run(*small, *split).out.split())


@pytest.fixture
def _no_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages take seconds; one test writes one."""
    monkeypatch.setattr(arms, "write_page", lambda *_, **__: [])


def summary(folder: str) -> Any:
    return json.loads(Path(folder, "summary.json").read_text())


@pytest.mark.usefixtures("_no_pages")
def test_a_table_is_trained_on_and_measured(run: Run, wine: Path) -> None:
    trained = run("train", *MLP, "--data", "wine.csv", "--epochs", "2", "--seed", "3")
    assert trained.code == 0, trained.err
    weights = load_file("runs/train/weights.safetensors")
    assert weights["fc1.weight"].shape == (6, 13)  # inputs and classes are those of the table
    assert weights["output.weight"].shape == (3, 6)
    data = load_files(wine, seed=3)
    assert f"{len(data.test)} test samples" in trained.out

    answer = run(
        *("measure", *MLP, "--weights", "runs/train/weights.safetensors", "--data", "wine.csv", "--seed", "3"),
        *("--hardest", "2", "--per-class"),
    )
    assert answer.code == 0, answer.err
    assert answer.err == ""
    network = models.build("toy-mlp", inputs=13, classes=3, hidden=(6,))
    network.load_state_dict(weights)
    expected = margins.measure(network, data.test)
    found = pq.read_table("runs/measure/margins.parquet").to_pydict()
    measured = torch.tensor(found["distance at input"])
    torch.testing.assert_close(measured, expected.margins["input"], atol=1e-5, rtol=1e-4, equal_nan=True)
    frame = pd.read_csv(wine)
    assert found["label name"] == frame.target[found["index"]].tolist()  # rows of the table
    hardest = int(np.nanargmin(found["distance at input"]))
    listed = answer.out.split("Smallest l_2 distance at input")[1].splitlines()[4].split()
    assert listed[:3] == [str(found["index"][hardest]), str(found["label"][hardest]), found["label name"][hardest]]
    assert summary("runs/measure")["classes"] == ["class_0", "class_1", "class_2"]
    assert summary("runs/train")["accuracy"] == summary("runs/measure")["accuracy"]


@pytest.mark.usefixtures("_no_pages")
def test_all_samples_a_test_file_and_bounds(run: Run, wine: Path) -> None:
    every = run("measure", *MLP, "--data", "wine.csv", "--split", "all")
    assert "178 samples" in every.out, every.err
    assert pq.read_table("runs/measure/margins.parquet").to_pydict()["index"] == list(range(178))
    pd.read_csv(wine).iloc[:50].to_parquet("test.parquet")
    tested = run("measure", *MLP, "--data", "wine.csv", "--test", "test.parquet")
    assert "50 samples" in tested.out, tested.err
    bounded = run("bounds", *MLP, "--data", "wine.csv", "--samples", "20")
    assert bounded.code == 0, bounded.err
    assert json.loads(Path("runs/bounds/bounds.json").read_text())["settings"]["network"]["inputs"] == 13


def test_arrays_and_folders_of_images(run: Run, tmp_path: Path) -> None:
    bunch = load_digits()
    images = (bunch.images[:60] * 15).astype(np.uint8)
    np.savez(tmp_path / "mine.npz", x=images, y=bunch.target[:60])
    cnn = ("--model", "elsayed-mnist-cnn", "--set", "widths=(2, 2)", "--set", "hidden=(4,)")
    answer = run("measure", *cnn, "--data", "mine.npz", "--split", "all")
    assert "60 samples" in answer.out, answer.err
    assert summary("runs/measure")["settings"]["network"] == {
        **{"in_channels": 1, "size": 8, "classes": 10},
        **{"widths": [2, 2], "hidden": [4]},
    }
    for number, (image, label) in enumerate(zip(images, bunch.target)):
        folder = tmp_path / "photos" / ("odd" if label % 2 else "even")
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / f"{number:02d}.png")
    described = run("data", "photos/").out
    assert "1 × 8 × 8" in described
    assert "2: even, odd" in described
    answer = run("measure", *cnn, "--data", "photos/", "--hardest", "1")
    assert "mine" not in answer.out
    assert " even" in answer.out or " odd" in answer.out, answer.err
    assert summary("runs/measure")["classes"] == ["even", "odd"]
    page = Path("runs/measure/page.html").read_text()
    assert "data:image/png" in page
    assert "0 even" in page


def test_test_labels_of_a_function_are_those_of_its_training_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the test part has not all classes."""
    from widemargin.cli.sources import DataSource

    (tmp_path / "parts_by_name.py").write_text(
        "import numpy as np\n"
        "from widemargin.data import read\n"
        "x = np.zeros((3, 2))\n"
        "def parts():\n"
        "    return read((x, ['a', 'b', 'c'])), read((x[:2], ['a', 'c']))\n"
    )
    monkeypatch.chdir(tmp_path)
    data = DataSource(data="parts_by_name:parts").load()
    assert data.classes == ("a", "b", "c")
    assert data.test.y.tolist() == [0, 2]


@pytest.mark.usefixtures("_no_pages")
def test_functions(run: Run, tmp_path: Path) -> None:
    (tmp_path / "my_data.py").write_text(
        "import numpy as np\n"
        "import pandas as pd\n"
        "import torch\n"
        "from torch.utils.data import TensorDataset\n"
        "x = np.random.default_rng(0).normal(size=(40, 3))\n"
        "names = np.array(['no', 'yes'])[(x[:, 0] > 0).astype(int)]\n"
        "def frame():\n"
        "    return pd.DataFrame(x), pd.Series(names)\n"
        "def parts():\n"
        "    return (x[:30], names[:30]), (x[30:], names[30:])\n"
        "def sets():\n"
        "    one = TensorDataset(torch.tensor(x), torch.zeros(40).long())\n"
        "    return one, one\n"
        "def nothing():\n"
        "    return 3\n"
    )
    for function, count in (("frame", 8), ("parts", 10), ("sets", 40)):
        answer = run("measure", *MLP, "--data", f"my_data:{function}", "--set", "classes=2")
        assert f"{count} samples" in answer.out, answer.err
    assert run("measure", *MLP, "--data", "my_data:nothing").err.startswith("Error: --data: data is a int")
    assert run("measure", *MLP, "--data", "my_data:none").err.startswith("Error: --data: --data is 'my_data:none'")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--data", "wine.csv", "--label", "colour"), "--data: wine.csv has no column 'colour'"),
        (("--data", "wine.csv", "--test", "none.csv"), "--data: none.csv does not exist"),
        (("--data", "none.npz"), "--data: none.npz does not exist"),
        (("--data", "toy", "--test", "wine.csv"), "--test is for files"),
        (("--data", "toy", "--label", "y"), "--label is for files"),
        (("--data", "wine.csv", "--set", "inputs=4"), "--model toy-mlp can't take the inputs of --data wine.csv"),
        (
            ("--data", "wine.csv", "--set", "classes=4"),
            "--model toy-mlp has 4 scores, but --data wine.csv has 3 classes (class_0, class_1, class_2)",
        ),
        (("--data", "wine.csv", "--set", "classes=2"), "--model toy-mlp has 2 scores, but --data wine.csv has 3"),
    ],
)
@pytest.mark.parametrize("command", ["measure", "train", "bounds"])
def test_a_mismatch_is_one_sentence_before_anything_runs(
    run: Run, wine: Path, command: str, arguments: tuple[str, ...], said: str
) -> None:
    answer = run(command, *MLP, *arguments)
    assert answer.code == 2
    assert answer.exception is None
    assert answer.err.splitlines()[-1].startswith(f"Error: {said}")
    assert answer.out == ""
    assert wine.exists()
    assert not Path("runs").exists()


def test_changed_files_are_read_where_that_is_asked_for(run: Run, tmp_path: Path) -> None:
    names = {"train": 20, "t10k": 10}
    (tmp_path / "mnist").mkdir()
    for name, count in names.items():
        header = bytes([0, 0, 8, 3]) + b"".join(n.to_bytes(4, "big") for n in (count, 28, 28))
        (tmp_path / "mnist" / f"{name}-images-idx3-ubyte").write_bytes(header + bytes(count * 784))
        labels = bytes([0, 0, 8, 1]) + count.to_bytes(4, "big") + bytes(i % 10 for i in range(count))
        (tmp_path / "mnist" / f"{name}-labels-idx1-ubyte").write_bytes(labels)
    refused = run("--data-root", str(tmp_path), "data", "mnist")
    assert refused.code == 2
    assert "--no-verify" in refused.err
    taken = run("--data-root", str(tmp_path), "--no-verify", "data", "mnist")
    assert taken.code == 0, taken.err
    assert "20 samples" in taken.out
