from __future__ import annotations

import pytest
import torch
from torch import nn

from widemargin.optim import param_groups
from widemargin.optim.rows import as_rows, from_rows

CONVOLUTIONS = [
    (nn.ConvTranspose1d(4, 6, 3, bias=False), 1, 1, (1, 4, 5)),
    (nn.ConvTranspose2d(4, 6, 3, groups=2, bias=False), 1, 2, (1, 4, 5, 5)),
    (nn.ConvTranspose3d(6, 6, 2, groups=3, bias=False), 1, 3, (1, 6, 3, 3, 3)),
    (nn.Conv2d(4, 6, 3, groups=2, bias=False), 0, 1, (1, 4, 5, 5)),
    (nn.Linear(4, 6, bias=False), 0, 1, (1, 4)),
]


@pytest.mark.parametrize(("layer", "axis", "groups", "shape"), CONVOLUTIONS, ids=lambda value: type(value).__name__)
def test_a_row_is_what_one_output_unit_sees(layer: nn.Module, axis: int, groups: int, shape: tuple[int, ...]) -> None:
    weight = layer.weight
    assert isinstance(weight, nn.Parameter)
    rows = as_rows(weight.detach().clone(), axis=axis, groups=groups)
    assert len(rows) == 6
    for number in range(6):
        alone = torch.zeros_like(rows)
        alone[number] = rows[number]
        with torch.no_grad():
            weight.copy_(from_rows(alone, weight, axis=axis, groups=groups))
            seen = layer(torch.rand(shape) + 1).flatten(2 if len(shape) > 2 else 1)
        answered = seen[0].reshape(6, -1).abs().sum(dim=1) > 0
        assert answered.nonzero().flatten().tolist() == [number]


@pytest.mark.parametrize(("shape", "axis", "groups"), [((3,), 0, 1), ((3,), 1, 2), ((), 0, 1), ((4, 3, 2), 1, 2)])
def test_rows_go_back(shape: tuple[int, ...], axis: int, groups: int) -> None:
    weight = torch.rand(shape)
    rows = as_rows(weight, axis=axis, groups=groups)
    assert torch.equal(from_rows(rows, weight, axis=axis, groups=groups), weight)


def test_a_matrix_is_viewed_and_not_copied() -> None:
    weight = torch.rand(4, 3, 2)
    assert as_rows(weight).data_ptr() == weight.data_ptr()


def test_param_groups_know_transposed_convolutions_and_opt_outs() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ConvTranspose2d(4, 6, 3, groups=2), nn.ConvTranspose2d(6, 2, 3), nn.Linear(3, 2)
    )
    found = {}
    for group in param_groups(model, unprojected=("3.weight",)):
        for parameter in group["params"]:
            name = next(name for name, p in model.named_parameters() if p is parameter)
            found[name] = (group["project"], group["axis"], group["groups"])
    plain = (True, 0, 1)
    assert found == {
        "0.weight": plain, "0.bias": plain, "1.weight": (True, 1, 2), "1.bias": plain, "2.weight": (True, 1, 1),
        "2.bias": plain, "3.weight": (False, 0, 1), "3.bias": plain,
    }  # fmt: skip


def test_a_parameter_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match="unprojected has 'weigth'"):
        param_groups(nn.Linear(2, 2, bias=False), unprojected=("weigth",))


@pytest.mark.parametrize(
    ("axis", "groups", "sentence"),
    [
        (2, 1, "axis is 2"),
        (1, 0, "groups is 0"),
        (1, 3, "groups is 3"),
        (0, 2, "groups is 2"),
    ],
)
def test_layouts_that_can_not_be(axis: int, groups: int, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        as_rows(torch.rand(4, 3), axis=axis, groups=groups)
