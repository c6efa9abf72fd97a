"""Bounds of small networks against numbers that authors of other verifiers have published."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from widemargin import certify
from widemargin.certify.intervals import Box, Region, inputs, through
from widemargin.certify.radius import Method
from widemargin.certify.relaxation import linear_bound
from widemargin.layers.forms import Slopes
from widemargin.layers.network import Network, read
from widemargin.layers.trace import INPUT

Rows = Sequence[Sequence[float]]

DRAWN = -0.1787772186076907
AVERAGE_POOLS = (  # lower and upper bounds, of two samples and two outputs
    ((-5.253483232354858, -4.091935808083511), (-5.0577836875126385, -3.8881917690460073)),
    ((6.235108135142591, 4.874572978716427), (5.98573315130961, 4.678449790645901)),
)


def linear(weight: Rows, bias: Sequence[float] | None = None) -> nn.Linear:
    layer = nn.Linear(len(weight[0]), len(weight), dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(weight))
        layer.bias.copy_(torch.tensor(bias) if bias is not None else torch.zeros(len(weight)))
    return layer


def figure_3(layers: int, last: Sequence[float], bias: float = 0.0) -> nn.Sequential:
    """A linear function of the units of a layer of the running example of DeepPoly."""
    blocks = [part for _ in range(layers) for part in (linear([[1, 1], [1, -1]]), nn.ReLU())]
    return nn.Sequential(*blocks, linear([last], [bias]))


def largest(centre: Sequence[float], reach: Sequence[float]) -> nn.Sequential:
    """2·max(relu(x0 + x1), relu(x0 − x1)) on a box, whose sides are the unit interval here."""
    (a, b), (r, s) = centre, reach
    first = linear([[r, s], [r, -s]], [a + b, a - b])
    return nn.Sequential(first, nn.ReLU(), nn.Unflatten(1, (1, 2)), nn.MaxPool1d(2), nn.Flatten(), linear([[2]]))


class Branches(nn.Module):
    """1 + 3·relu(1 − x − relu(x)) + slope·x."""

    def __init__(self, slope: float) -> None:
        super().__init__()
        self.slope = slope

    def forward(self, x: Tensor) -> Tensor:
        return 1 + 3 * F.relu(1 - x - F.relu(x)) + self.slope * x


@dataclass(frozen=True, kw_only=True)
class Published:
    """Bounds of f on an l_∞ ball, by CROWN or DeepPoly, whose relaxations of a ReLU are the same."""

    model: Callable[[], nn.Module]
    centre: tuple[float, ...]
    radius: float
    bounds: tuple[float, float]


PUBLISHED = {
    # auto_LiRPA, examples/simple/toy.py (α-CROWN, which optimises the slopes, has [−3, 2]).
    "auto_LiRPA toy": Published(
        model=lambda: nn.Sequential(linear([[1, -1], [2, -1]]), nn.ReLU(), linear([[1, -1]])),
        centre=(0.5, -0.5),
        radius=1.5,
        bounds=(-3.0, 3.0),
    ),
    # Singh et al. 2019, An abstract domain for certifying neural networks, figure 3, as tests of Marabou and MN-BaB
    # have it.
    "DeepPoly x3": Published(model=lambda: figure_3(0, [1, 1]), centre=(0.0, 0.0), radius=1.0, bounds=(-2.0, 2.0)),
    "DeepPoly x7": Published(model=lambda: figure_3(1, [1, 1]), centre=(0.0, 0.0), radius=1.0, bounds=(0.0, 3.0)),
    "DeepPoly x8": Published(model=lambda: figure_3(1, [1, -1]), centre=(0.0, 0.0), radius=1.0, bounds=(-2.0, 2.0)),
    "DeepPoly x11": Published(model=lambda: figure_3(2, [1, 1], 1), centre=(0.0, 0.0), radius=1.0, bounds=(1.0, 5.5)),
    "DeepPoly x12": Published(model=lambda: figure_3(2, [0, 1]), centre=(0.0, 0.0), radius=1.0, bounds=(0.0, 2.0)),
    # x11 − x12 ≥ 1 is what the example proves; 4 is in tests/unit_tests/deeppoly_test.py of MN-BaB.
    "DeepPoly x11 − x12": Published(
        model=lambda: figure_3(2, [1, 0], 1), centre=(0.0, 0.0), radius=1.0, bounds=(1.0, 4.0)
    ),
    # Marabou, src/nlr/tests/Test_DeepPolyAnalysis.h.
    "Marabou residual 1": Published(model=lambda: Branches(3.0), centre=(0.0,), radius=1.0, bounds=(1.0, 6.0)),
    "Marabou residual 2": Published(model=lambda: Branches(1.0), centre=(0.0,), radius=1.0, bounds=(-1.0, 6.0)),
    "Marabou max": Published(
        model=lambda: largest((0.0, 0.5), (1.0, 1.5)), centre=(0.0, 0.0), radius=1.0, bounds=(0.0, 6.0)
    ),
    "Marabou max, settled": Published(
        model=lambda: largest((1.5, -2.5), (0.5, 0.5)), centre=(0.0, 0.0), radius=1.0, bounds=(6.0, 10.0)
    ),
}


def plain_crown(model: nn.Module, x: Tensor, radius: float) -> tuple[Tensor, Tensor]:
    """Bounds of the outputs over an l_∞ ball by linear bounds alone, as CROWN prints them.

    `certify` intersects them with intervals, which CROWN does not.
    """
    network, size = read(model, x), torch.full((len(x),), radius, dtype=torch.float64)
    regions = {INPUT: inputs(x, size, math.inf, 1.0, tubes=False)}
    for number, (step, sources) in enumerate(zip(network.steps, network.inputs)):
        source = sources[0]
        if isinstance(step, Slopes) and source != INPUT:
            low, high = linear_ends(network, regions, source, x, size)
            shape = regions[source].box.lower.shape
            regions[source] = replace(regions[source], box=Box(lower=low.view(shape), upper=high.view(shape)))
        regions[number] = through(step, [regions[part] for part in sources])
    return linear_ends(network, regions, len(network.steps) - 1, x, size)


def linear_ends(
    network: Network, regions: dict[int, Region], number: int, x: Tensor, radius: Tensor
) -> tuple[Tensor, Tensor]:
    shape = regions[number].box.lower.shape
    rows = torch.eye(shape[1:].numel(), dtype=torch.float64).view(-1, *shape[1:]).expand(len(x), -1, *shape[1:])
    low, high = (linear_bound(network, regions, sign * rows, number, x, math.inf).least(radius) for sign in (1, -1))
    return low, -high


def certified(model: nn.Module, x: Tensor, radius: float, method: Method) -> tuple[float, float]:
    """Bounds of one output: y·f for both y."""
    low, high = (
        certify.margin_bound(model, x, torch.tensor([sign]), radius, p=math.inf, method=method) for sign in (1.0, -1.0)
    )
    return float(low), -float(high)


# A max of entries that may both be 0 is bounded from below by the first of them here, by the second in Marabou.
@pytest.mark.parametrize("name", [name for name in PUBLISHED if name != "Marabou max"])
def test_linear_bounds_are_those_of_crown_and_deeppoly(name: str) -> None:
    case = PUBLISHED[name]
    model, x = case.model(), torch.tensor([case.centre], dtype=torch.float64)
    low, high = plain_crown(model, x, case.radius)
    assert (float(low), float(high)) == pytest.approx(case.bounds, abs=1e-8)


@pytest.mark.parametrize("name", PUBLISHED)
def test_certificates_are_no_looser_and_hold(name: str) -> None:
    case = PUBLISHED[name]
    model, x = case.model(), torch.tensor([case.centre], dtype=torch.float64)
    low, high = certified(model, x, case.radius, "crown")
    assert low >= case.bounds[0] - 1e-8
    assert high <= case.bounds[1] + 1e-8
    ends = torch.cartesian_prod(*[torch.linspace(-1, 1, 41, dtype=torch.float64)] * x.shape[1])
    with torch.no_grad():
        values = model(x + case.radius * ends.view(-1, x.shape[1]))
    assert low <= float(values.min())
    assert float(values.max()) <= high


def test_intervals_are_those_of_auto_lirpa() -> None:
    case = PUBLISHED["auto_LiRPA toy"]
    found = certified(case.model(), torch.tensor([case.centre], dtype=torch.float64), case.radius, "ibp")
    assert found == pytest.approx((-6.0, 4.0), abs=1e-8)


def test_average_pools_are_bounded_as_by_auto_lirpa() -> None:
    """tests/test_avgpool.py of auto_LiRPA draws its network; its bounds are in tests/data_64/avgpool_test_data."""
    torch.manual_seed(1234)
    wide = torch.float64
    layers: list[nn.Module] = []
    for ins, outs in ((1, 4), (4, 8), (8, 8), (8, 8)):
        layers += [nn.Conv2d(ins, outs, 3, padding=1, dtype=wide), nn.ReLU(), nn.AvgPool2d(3, 1, 1)]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(200, 8, dtype=wide), nn.ReLU(), nn.Linear(8, 2, dtype=wide))
    x = torch.randn(8, 1, 5, 5, dtype=wide)[:2]
    if float(next(model.parameters()).detach().flatten()[0]) != pytest.approx(DRAWN, rel=1e-12):
        pytest.skip("this version of torch draws other weights from the seed")
    low, high = plain_crown(model, x, 100.0)
    expected = torch.tensor(AVERAGE_POOLS, dtype=torch.float64)
    torch.testing.assert_close(torch.stack((low, high)), expected, rtol=1e-8, atol=0)
    # Intersected with intervals the slopes of some units change, for better or worse.
    y = torch.zeros(2, dtype=torch.int64)
    margin = certify.margin_bound(model, x, y, 100.0, p=math.inf)[:, 0]
    assert (margin > 1.01 * (low[:, 0] - high[:, 1])).all()
