from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate

import widemargin as wm
from training.cases import network, samples
from widemargin.training import SGD
from widemargin.training.augmentation import for_data, is_augmented

Change = Callable[[Tensor], Any]


class Changed(Dataset[Any]):
    """Samples whose inputs are changed whenever they are read."""

    def __init__(self, change: Change) -> None:
        self.samples, self.change = samples(), change

    def __len__(self) -> int:
        return len(self.samples.y)

    def __getitem__(self, i: int) -> Any:
        return self.change(self.samples.x[i].clone()), self.samples.y[i]


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(Changed(torch.rand_like))


def noisy(x: Tensor) -> Tensor:
    return x + 1e-3 * torch.randn_like(x)


RANDOM: dict[str, Change] = {
    "torch": noisy,
    "numpy": lambda x: x.numpy() + np.random.rand(),  # noqa: NPY002
    "python": lambda x: x * random.random(),
    "one in two": lambda x: x if torch.rand(()) < 0.5 else -x,
    "by name": lambda x: {"mask": torch.ones(3), "image": noisy(x)},
    "a list": lambda x: [x, random.random()],
    "another length": lambda x: x[: random.randint(1, 9)],
    "a list of another length": lambda x: [0] * random.randint(1, 9),
    "an image of Pillow": lambda x: Image.fromarray(np.random.randint(256, size=(2, 2), dtype=np.uint8)),  # noqa: NPY002
    "a text": lambda x: random.choice(["word", "words"]),
}
THE_SAME: dict[str, Change] = {
    "as they are": lambda x: x,
    "changed alike": lambda x: 2 * x,
    "not a number": lambda x: torch.full_like(x, torch.nan),
    "a text": lambda x: {"text": "word", "image": x.numpy(), "number": float("nan")},
    "an object": lambda x: object(),
}


@pytest.mark.parametrize("change", RANDOM.values(), ids=list(RANDOM))
def test_random_changes_are_noticed(change: Change) -> None:
    assert is_augmented(Changed(change))


@pytest.mark.parametrize("change", THE_SAME.values(), ids=list(THE_SAME))
def test_samples_that_stay_are_not_augmented(change: Change) -> None:
    assert not is_augmented(Changed(change))


def test_what_cant_be_read_by_position_is_not_augmented() -> None:
    empty = TensorDataset(torch.rand(0, 2), torch.rand(0))
    without: list[object] = [None, Stream(), empty, [], 3]
    assert not any(is_augmented(data) for data in without)


@pytest.mark.parametrize("count", [1, 7, 8, 15, 16, 47])
def test_at_most_eight_samples_are_read(count: int) -> None:
    class Counted(TensorDataset):
        reads = 0

        def __getitem__(self, i: Any) -> Any:
            self.reads += 1
            return super().__getitem__(i)

    data = Counted(torch.rand(count, 2), torch.zeros(count))
    assert not is_augmented(data)
    assert 2 * min(count, 5) <= data.reads <= 16


@pytest.mark.usefixtures("untyped")  # beartype draws from the generator of Python
def test_the_global_generators_are_restored() -> None:
    def states() -> list[str]:
        numpy_state = np.random.get_state(legacy=False)  # noqa: NPY002
        return [str(torch.get_rng_state().tolist()), str(random.getstate()), repr(numpy_state["state"])]

    before = states()
    for change in ("torch", "numpy", "python"):
        assert is_augmented(Changed(RANDOM[change]))
    assert states() == before


def test_a_transform_in_the_collate_function_is_noticed() -> None:
    def collate(rows: list[Any]) -> Any:
        return torch.stack([noisy(x) for x, _ in rows]), torch.stack([y for _, y in rows])

    data = Changed(lambda x: x)
    assert is_augmented(data, collate=collate)
    assert not is_augmented(data, collate=default_collate)


def test_only_the_positions_of_the_training_are_read() -> None:
    def change(x: Tensor) -> Tensor:
        raise OSError("a damaged file")

    class Damaged(Changed):
        def __getitem__(self, i: int) -> Any:
            return super().__getitem__(i) if i < 8 else (noisy(self.samples.x[i]), self.samples.y[i])

    assert is_augmented(Damaged(change), range(8, 40))
    assert not is_augmented(Damaged(change), range(8))  # the training raises the error, where it reads them


def test_only_a_loss_that_depends_on_it_reads_samples() -> None:
    def fails() -> bool:
        raise AssertionError("samples were read")

    plain, known = wm.losses.CrossEntropy(), wm.WideMargin(samples=9, augmented=False)
    assert for_data(plain, 9, fails) is plain
    assert for_data(known, None, fails) is known
    with pytest.raises(AssertionError, match="were read"):
        for_data(wm.WideMargin(), 9, fails)
    weighted = wm.losses.Weighted(loss=wm.WideMargin(), classes=(1.0, 1.0, 1.0))
    wrapped = for_data(weighted, 9, lambda: True)
    assert getattr(wrapped, "loss", None) == wm.WideMargin(samples=9, augmented=True)


def test_an_unknown_number_of_samples_is_a_warning_where_it_matters() -> None:
    with pytest.warns(UserWarning, match="samples"):
        assert for_data(wm.WideMargin(), None, lambda: False) == wm.WideMargin()


@pytest.mark.parametrize("form", [lambda data: data, lambda data: DataLoader(data, batch_size=20)])
@pytest.mark.parametrize(("change", "augmented"), [(noisy, True), (lambda x: x, False)])
def test_fit_notices_augmented_data(form: Any, change: Change, augmented: bool) -> None:
    def weights(loss: wm.WideMargin) -> Tensor:
        model = network()
        wm.fit(model, form(Changed(change)), loss=loss, epochs=2, batch_size=20, optimizer=SGD(lr=0.1), callbacks=())
        return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])

    found = weights(wm.WideMargin(strength=50.0))
    alike, other = (weights(wm.WideMargin(strength=50.0, augmented=value)) for value in (augmented, not augmented))
    assert torch.equal(found, alike)
    assert not torch.allclose(found, other, rtol=1e-3)
