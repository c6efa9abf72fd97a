"""Bounds of networks against the reference bounds that auto_LiRPA's own tests hold.

    python benchmarks/published_bounds.py --auto-lirpa PATH

PATH is a checkout of github.com/Verified-Intelligence/auto_LiRPA at the commit `REVISION`. The program reads weights,
inputs and bounds under `tests` and `examples/vision/pretrained` (BSD 3-clause licence), which are not part of this
repository; auto_LiRPA itself is not installed. It rebuilds the networks, bounds every score from both sides on the
same ball, and writes the mean widths of both, the largest difference of an end, and checksums of the files.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from widemargin import certify
from widemargin._io.files import write_json
from widemargin._io.provenance import provenance

REVISION = "a050a3d61f4cb68b108fa7f07dcb3e4d7ef304df"
METHODS: dict[certify.Method, str] = {"ibp": "IBP", "crown-ibp": "CROWN-IBP", "crown": "CROWN"}
ALPHA_CROWN = 12.5080
"""Upper bound of the score of class 7 in tests/test_simple_verification.py."""
Ends = tuple[Tensor, Tensor]


class Reference:
    """Files of a checkout, and the SHA-256 of those that were read."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.sums: dict[str, str] = {}

    def path(self, name: str) -> Path:
        """The path of a file, which is noted."""
        path = self.root / name
        self.sums[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        return path

    def load(self, name: str) -> Any:
        """Tensors of a file of torch; nothing else is unpickled."""
        return torch.load(self.path(name), weights_only=True, map_location="cpu")

    def image(self, name: str) -> Tensor:
        """Pixels of a sample, from 0 to 1."""
        return (
            torch.from_numpy(np.load(self.path(f"tests/data/test_samples/{name}"), allow_pickle=False)).double() / 255
        )


class Residual(nn.Module):
    """A convolution of normalized inputs beside a strided shortcut, one more convolution and a linear layer."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 3, 4, stride=2, padding=1)
        self.bn = nn.BatchNorm2d(3)
        self.shortcut = nn.Conv2d(3, 3, 4, stride=2, padding=1)
        self.conv2 = nn.Conv2d(3, 3, 4, stride=2, padding=1)
        self.fc1 = nn.Linear(features, 10)

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.relu(self.conv1(self.bn(x))) + self.shortcut(x)
        return self.fc1(F.relu(self.conv2(hidden)).flatten(1))


class Scaled(nn.Module):
    """Two convolutions and two linear layers, with constant factors between them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 4, stride=2, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 4, stride=2, padding=1)
        self.fc1, self.fc2 = nn.Linear(784, 256), nn.Linear(256, 10)

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.relu(self.conv2(F.relu(self.conv1(x)))).flatten(1)
        return 0.5 * self.fc2(F.relu(self.fc1(2.0 * hidden)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--auto-lirpa", type=Path, required=True, help="folder of the checkout")
    parser.add_argument("--out", type=Path, default=Path("results/published-bounds.json"))
    options = parser.parse_args()
    reference = Reference(options.auto_lirpa)
    rows: list[dict[str, Any]] = []
    for part in (residual, drawn_residual, scaled, average_pools, adversarial):
        for row in part(reference):
            print(row, flush=True)
            rows.append(row)
    settings = {"repository": "Verified-Intelligence/auto_LiRPA", "revision": REVISION, "sha256": reference.sums}
    write_json(options.out, {"settings": settings, "rows": rows, **provenance()})
    print("wrote", options.out)


def residual(reference: Reference) -> Iterator[dict[str, Any]]:
    """A residual network with batch norm, 8 inputs, by every method in l_∞ and l_2."""
    stored = reference.load("tests/data_64/vision_test_data")
    model = Residual(192)
    model.load_state_dict(stored["model"])
    for norm, p in (("l_inf", math.inf), ("l_2", 2.0)):
        optimized = stored[f"{norm}_CROWN-Optimized_ub"] - stored[f"{norm}_CROWN-Optimized_lb"]
        for method, name in METHODS.items():
            theirs = (stored[f"{norm}_{name}_lb"], stored[f"{norm}_{name}_ub"])
            row = compared("residual, batch norm", model, stored["data"], 0.01, p, method, theirs)
            yield row | ({"alpha-CROWN": float(optimized.detach().mean())} if method == "crown" else {})


def drawn_residual(reference: Reference) -> Iterator[dict[str, Any]]:
    """The same on images that are not square, with weights from a seed, on a part of the first test image."""
    theirs = reference.load("tests/data_64/rectangle_patches_test_data")
    with Drawn(1234):
        model = Residual(168)
    # The reference reads the pixels in the order in which they are stored, as if channels came first.
    x = reference.image("cifar10_test_1.npy")[:1].reshape(1, 3, 32, 32)[:, :, :28]
    yield compared("residual, drawn weights", model, x, 0.03, math.inf, "crown", tuple(theirs))


def scaled(reference: Reference) -> Iterator[dict[str, Any]]:
    """A network for MNIST with constant factors, on drawn inputs."""
    theirs = reference.load("tests/data_64/constant_test_data")
    with Drawn(1):
        model = Scaled()
        x = torch.randn(2, 1, 28, 28) / 255
    model.load_state_dict(reference.load("examples/vision/pretrained/mnist_cnn_small.pth"))
    yield compared("convolutions, constant factors", model, x, 0.3, math.inf, "crown", theirs)


def average_pools(reference: Reference) -> Iterator[dict[str, Any]]:
    """Four convolutions with padded average pools, drawn weights and inputs."""
    theirs = reference.load("tests/data_64/avgpool_test_data")[:2]
    with Drawn(1234):
        layers: list[nn.Module] = []
        for ins, outs in ((1, 4), (4, 8), (8, 8), (8, 8)):
            layers += [nn.Conv2d(ins, outs, 3, padding=1), nn.ReLU(), nn.AvgPool2d(3, 1, 1)]
        model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(200, 8), nn.ReLU(), nn.Linear(8, 2))
        x = torch.randn(8, 1, 5, 5)
    yield compared("convolutions, average pools", model, x, 100.0, math.inf, "crown", tuple(theirs))


def adversarial(reference: Reference) -> Iterator[dict[str, Any]]:
    """One score of an adversarially trained network for MNIST, with and without the limit on the units."""
    model = nn.Sequential(
        *(nn.Conv2d(1, 16, 4, stride=2, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 4, stride=2, padding=1), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(1568, 100), nn.ReLU(), nn.Linear(100, 10)),
    )
    model.load_state_dict(reference.load("examples/vision/pretrained/mnist_a_adv.pth"))
    x = reference.image("mnist_test_2.npy")[:1].view(1, 1, 28, 28)
    module = importlib.import_module("widemargin.certify.radius")
    limit = module.FULL_UNITS
    for units in (limit, 10**6):
        module.FULL_UNITS = units
        started = time.process_time()
        _, upper = score_bounds(model.double().eval(), x, 0.3, math.inf, "crown")
        yield {
            "network": "adversarially trained, MNIST",
            "p": "inf",
            "epsilon": 0.3,
            "method": "crown",
            "units": units,
            "upper, class 7": float(upper[0, 7]),
            "alpha-CROWN": ALPHA_CROWN,
            "seconds": round(time.process_time() - started, 1),
        }
    module.FULL_UNITS = limit


class Drawn:
    """Weights and inputs in float64 from a seed, as the reference draws them."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def __enter__(self) -> None:
        torch.set_default_dtype(torch.float64)
        torch.manual_seed(self.seed)

    def __exit__(self, *_: object) -> None:
        torch.set_default_dtype(torch.float32)


def compared(
    network: str, model: nn.Module, x: Tensor, epsilon: float, p: float, method: certify.Method, theirs: Ends
) -> dict[str, Any]:
    """Mean widths, and differences of the ends."""
    model, x = model.double().eval(), x.double()
    lower, upper = score_bounds(model, x, epsilon, p, method)
    low, high = (end.detach().double() for end in theirs)
    with torch.no_grad():
        scores = model(x)
    return {
        "network": network,
        "p": f"{p:g}",
        "epsilon": epsilon,
        "method": method,
        "bounds": 2 * low.numel(),
        "width": float((upper - lower).mean()),
        "width, auto_LiRPA": float((high - low).mean()),
        "largest ratio of widths": float(((upper - lower) / (high - low)).max()),
        "largest difference of an end": float(torch.stack((lower - low, upper - high)).abs().max()),
        "scores outside": int(((scores < lower) | (scores > upper)).sum()),
    }


def score_bounds(model: nn.Module, x: Tensor, epsilon: float, p: float, method: certify.Method) -> Ends:
    """Bounds of every score: those of its difference to one more score, which is 0."""
    with torch.no_grad():
        classes = model(x).shape[1]
    ends = []
    for sign in (-1.0, 1.0):
        last = nn.Linear(classes, classes + 1, bias=False, dtype=torch.float64)
        with torch.no_grad():
            last.weight.copy_(torch.cat((sign * torch.eye(classes), torch.zeros(1, classes))))
        y = torch.full((len(x),), classes)
        found = certify.margin_bound(nn.Sequential(model, last).eval(), x, y, epsilon, p=p, method=method)
        ends.append(-sign * found)
    return ends[0], ends[1]


if __name__ == "__main__":
    main()
