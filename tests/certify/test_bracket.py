"""The bracket: lower ≤ true ≤ upper wherever the truth is known, and honest where it is not."""

from __future__ import annotations

import math
import sys

import pytest
import torch
from torch import Tensor, nn

import widemargin as wm
from certify.test_radius import in_ball
from geometry.networks import CASES
from widemargin import certify, geometry, models
from widemargin.attacks.minimal import Minimal
from widemargin.certify.bracket import Bracket, bracket
from widemargin.layers.network import read
from widemargin.models.elsayed import Norm


def answers(model: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        scores = model.eval()(x)
    return scores.argmax(dim=1) if scores.shape[1] > 1 else scores.sign().flatten()


def test_the_public_name_is_the_function() -> None:
    assert wm.bracket is bracket
    assert "widemargin.bracket" not in sys.modules


@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
def test_a_linear_network_is_closed_from_both_sides(p: float) -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Flatten(), nn.Linear(12, 4)).double(), torch.randn(20, 3, 4).double()
    found = bracket(model, x, answers(model, x), p)
    assert (found.lower <= found.upper).all()
    assert torch.allclose(found.lower, found.upper, rtol=1e-6)
    assert torch.allclose(found.linearized, found.upper, rtol=1e-6)
    assert found.found.all()
    assert not found.notes


@pytest.mark.parametrize("seed", [0, 1, 4])
def test_the_exact_margin_in_two_dimensions_lies_inside(seed: int) -> None:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(2, 12), nn.ReLU(), nn.Linear(12, 12), nn.LeakyReLU(0.1), nn.Linear(12, 3)).double()
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.6)
    x = 2 * torch.rand(40, 2).double() - 1
    y = answers(model, x)
    y[:5] = (y[:5] + 1) % 3
    zero, one, two = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]).double()
    piece = geometry.slice2d(model, zero, one, two, box=(-8.0, 8.0, -8.0, 8.0))
    assert isinstance(piece, geometry.Slice)
    true = geometry.exact_margin(piece, x, y, outside="edge")
    found = bracket(model, x, y)
    assert (found.lower <= true * (1 + 1e-9)).all()
    inside = true < 4  # the box of the slice is no boundary
    assert (found.upper >= true * (1 - 1e-9))[inside].all()
    assert torch.equal(found.upper[:5], torch.zeros(5).double())
    assert set(found.lower_by[:5]) == {"misclassified"}
    right = inside & (true > 0)
    assert int(right.sum()) > 20
    assert float((found.lower / true)[right].median()) > 0.5
    assert float((found.upper / true)[right].median()) < 1.05


@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
@pytest.mark.parametrize("name", ["mlp", "cnn", "signals", "own", "scaled"])
def test_no_step_within_the_lower_bound_changes_the_answer(name: str, p: float) -> None:
    make, shape = CASES[name]
    torch.manual_seed(1)
    model, x = make(), torch.randn(3, *shape)
    y = answers(model, x)
    found = bracket(model, x, y, p, attack_steps=3, steps=6)
    assert (found.lower > 0).all()
    assert (found.lower <= found.upper).all()
    for i, radius in enumerate(found.lower.tolist()):
        near = (x[i].double() + radius * in_ball(torch.Size(shape), p, 1000)).float()
        assert (answers(model, near) == y[i]).all()


def test_a_network_without_a_relaxation_falls_back_on_its_lipschitz_constant() -> None:
    torch.manual_seed(2)

    class Squash(nn.Module):
        lipschitz = 1.0

        def forward(self, x: Tensor) -> Tensor:
            return x.tanh()

    model = nn.Sequential(nn.Linear(5, 8), Squash(), nn.Linear(8, 3))
    x = torch.randn(6, 5)
    y = answers(model, x)
    found = bracket(model, x, y)
    assert (found.lower > 0).all()
    assert set(found.lower_by) == {"Lipschitz"}
    assert any("no linear relaxation: layer '1' is Squash()" in note for note in found.notes)
    none = bracket(nn.Sequential(nn.Linear(5, 8), nn.GELU(), nn.Linear(8, 3)), x, y)
    assert (none.lower == 0).all()
    assert len(none.notes) == 2
    assert "GELU" in none.notes[0]
    assert set(none.lower_by) <= {"none", "misclassified"}
    assert "no Lipschitz certificate" in str(none)


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_residual_networks_are_bracketed_and_no_attack_beats_the_certificate(norm: Norm) -> None:
    data = wm.data.load("digits")
    torch.manual_seed(0)
    model = nn.Sequential(nn.AvgPool2d(2), models.resnet(widths=(4, 8), blocks=(1, 1), in_channels=1, norm=norm))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for index in torch.randperm(1400).repeat(2).split(70):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(data.train.x[index]), data.train.y[index]).backward()
        optimizer.step()
    x, y = data.test.x[:16], data.test.y[:16]
    right = answers(model, x) == y
    assert int(right.sum()) >= 6
    found = bracket(model, x, y, method="crown-ibp", search="own", attack_steps=3, steps=6)
    assert torch.equal(found.lower > 0, right)
    assert not found.notes
    lower = certify.radius(model, x, y, method="crown-ibp", start=found.lower.clamp(min=1e-3), steps=2).values
    assert (lower <= found.upper).all()  # the bracket itself would cut it there
    exact = model.double()
    near = x[:, None].double() + lower.view(-1, 1, 1, 1, 1) * in_ball(x.shape[1:], 2.0, 50)
    assert (answers(exact, near.flatten(0, 1)).view(16, 50) == y[:, None])[right].all()


def test_attention_is_the_reason_without_a_certificate() -> None:
    torch.manual_seed(5)
    model, x = models.vit(size=8, width=8, heads=2, layers=1), torch.randn(2, 3, 8, 8)
    found = bracket(model, x, answers(model, x), search="own", attack_steps=2)
    assert (found.lower == 0).all()
    assert len(found.notes) == 2
    assert "(attention)" in found.notes[1]


class LastState(nn.Module):
    """An LSTM, whose scores are those of the last step."""

    def __init__(self) -> None:
        super().__init__()
        self.states, self.scores = nn.LSTM(3, 8, batch_first=True), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.scores(self.states(x)[0][:, -1])
        return scores


@pytest.mark.parametrize(
    ("model", "shape"), [(LastState(), (7, 3)), (nn.Sequential(nn.Linear(4, 8), nn.PReLU(8), nn.Linear(8, 3)), (4,))]
)
def test_float32_layers_that_no_certificate_reads_are_noted(model: nn.Module, shape: tuple[int, ...]) -> None:
    x = torch.randn(2, *shape)
    found = bracket(model, x, answers(model, x), search="own", attack_steps=2)
    assert (found.lower == 0).all()
    assert [note.split(":")[0] for note in found.notes] == ["no Lipschitz certificate", "no linear relaxation"]


@pytest.mark.parametrize("kind", [nn.LayerNorm(8, eps=0.0), nn.GroupNorm(2, 8, eps=0.0)], ids=str)
def test_a_norm_layer_without_eps_has_no_lipschitz_certificate(kind: nn.Module) -> None:
    torch.manual_seed(6)
    model, x = nn.Sequential(nn.Linear(6, 8), kind, nn.ReLU(), nn.Linear(8, 3)), torch.randn(4, 6)
    found = bracket(model, x, answers(model, x), search="own", attack_steps=2, steps=4)
    assert set(found.lower_by) == {"linear relaxation"}
    assert len(found.notes) == 1
    assert "no Lipschitz certificate: layer '1'" in found.notes[0]
    assert "eps = 0" in found.notes[0]


class Certified:
    """A certificate of `part` times the distance of the attack, which it gets as the first radius to try."""

    def __init__(self, part: float) -> None:
        self.part = part

    def __call__(self, *arguments: object) -> Tensor:
        upper = arguments[6]
        assert isinstance(upper, Tensor)
        return upper * self.part


def test_a_certificate_above_the_attack_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(7)
    model, x = nn.Linear(4, 3), torch.randn(3, 4)
    y = answers(model, x)
    y[0] = (y[0] + 1) % 3  # at distance 0
    module = sys.modules["widemargin.certify.bracket"]
    monkeypatch.setattr(module, "radii", Certified(1 + 1e-7))
    found = bracket(model, x, y, search="own", attack_steps=3)
    assert torch.equal(found.lower, found.upper)
    monkeypatch.setattr(module, "radii", Certified(1.01))
    with pytest.raises(RuntimeError, match="sample 1 has a certified distance of"):
        bracket(model, x, y, search="own", attack_steps=3)
    with pytest.raises(RuntimeError, match="sample 0 has a certified distance of"):
        wm.explain(model, x, search="own", steps=3)


def test_a_point_that_only_float32_scores_misclassify_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(8)
    model, x = nn.Linear(4, 3), torch.randn(3, 4)
    y = answers(model, x)
    right = Minimal(points=x, distances=torch.full((3,), 1e-3).double(), found=torch.ones(3, dtype=torch.bool))
    monkeypatch.setattr(sys.modules["widemargin.certify.bracket"], "minimal", lambda *_, **__: right)
    found = bracket(model, x, y)
    assert torch.equal(found.lower, right.distances)


def test_the_lipschitz_bound_of_the_l_infinity_norm_is_smaller() -> None:
    torch.manual_seed(3)
    model, x = CASES["mlp"][0](), torch.randn(4, 5)
    y = answers(model, x)
    from widemargin.certify.bracket import _lipschitz

    network = read(model, x)
    two = _lipschitz(network, x, y, 2.0)
    assert torch.allclose(_lipschitz(network, x, y, math.inf), two / math.sqrt(5))
    assert torch.equal(_lipschitz(network, x, y, 1.0), two)


def test_the_network_is_left_as_it_was_and_batches_do_not_matter() -> None:
    torch.manual_seed(4)
    make, shape = CASES["cnn"]
    model, x = make().double(), torch.randn(5, *shape).double()
    y = answers(model, x)
    model.train()
    model.get_submodule("1").eval()
    found = bracket(model, x, y, method="crown-ibp", search="own", attack_steps=3, steps=4)
    assert model.training
    assert model.get_submodule("0").training
    assert not model.get_submodule("1").training
    small = bracket(model, x, y, method="crown-ibp", search="own", attack_steps=3, steps=4, batch_size=2)
    for name in ("lower", "upper", "linearized"):
        assert torch.allclose(getattr(found, name), getattr(small, name), rtol=1e-5)


def test_robust_accuracy_is_a_band() -> None:
    lower = torch.tensor([0.0, 0.1, 0.3, 0.0], dtype=torch.float64)
    upper = torch.tensor([0.0, 0.2, math.inf, 0.5], dtype=torch.float64)
    found = Bracket(
        lower=lower,
        upper=upper,
        linearized=torch.tensor([-0.1, 0.15, math.nan, 0.7], dtype=torch.float64),
        found=upper.isfinite(),
        lower_by=("misclassified", "Lipschitz", "linear relaxation", "none"),
        p=2.0,
        notes=(),
    )
    band = found.robust_accuracy([0, 0.1, 0.2, 0.4])
    assert band.certified == (0.75, 0.5, 0.25, 0.0)
    assert band.attacked == (0.75, 0.75, 0.5, 0.5)
    told = found.summary()
    assert told["bracketed"] == 2
    assert told["between"] == 0.5
    assert told["medians"]["upper"] == pytest.approx(0.35)
    assert told["medians"]["error"] == pytest.approx((0.25 + 0.4) / 2)
    with pytest.raises(ValueError, match="epsilons is"):
        found.robust_accuracy([-1.0])


def test_bad_arguments_are_told() -> None:
    model, x, y = CASES["mlp"][0](), torch.randn(2, 5), torch.tensor([0, 1])
    with pytest.raises(ValueError, match="x has nan at index 1"):
        bracket(model, torch.cat((x[:1], x[1:] * math.nan)), y)
    with pytest.raises(TypeError, match=r"x has dtype torch\.int64"):
        bracket(model, x.long(), y)
    with pytest.raises(ValueError, match="y has 9 at index 1"):
        bracket(model, x, torch.tensor([0, 9]))
    with pytest.raises(ValueError, match="batch_size is 0"):
        bracket(model, x, y, batch_size=0)
    with pytest.raises(ValueError, match=r"p is 0\.5"):
        bracket(model, x, y, 0.5)


def test_results_show_tables_and_not_tensors() -> None:
    torch.manual_seed(0)
    model, x = nn.Linear(3, 2), torch.randn(4, 3)
    y = model(x).argmax(dim=1)
    found = bracket(model, x, y, search="own", steps=2, attack_steps=2)
    near = wm.attacks.minimal(model, x, y, search="own", steps=2)
    for shown in (found, near, wm.certify.radius(model, x, y), wm.bounds.input_margin(model, x, y, directions=0)):
        assert "tensor" not in repr(shown)
        assert repr(shown) == str(shown)
    assert "4 of 4 samples" in repr(near)
    wrong = bracket(model, x, 1 - y, search="own", steps=2, attack_steps=2)
    assert "0 of 4 samples bracketed" in repr(wrong)
    assert "nan" not in repr(wrong)


def test_bars_are_shown_where_they_are_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    model, x = nn.Linear(3, 2), torch.randn(4, 3)
    y = model(x).argmax(dim=1)
    for progress in (None, False, True):
        bracket(model, x, y, search="own", steps=2, attack_steps=2, progress=progress)
        said = capsys.readouterr().err
        assert ("Attacking" in said) == ("Certifying samples 1 to 4" in said) == (progress is True)
