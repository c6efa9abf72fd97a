"""Certified radii of residual networks on MNIST, against attacks on every test image.

    python benchmarks/certificates.py                # all 10,000 test images, batch norm and group norm

A residual network (`models.resnet` with 4 and 8 channels, on images averaged to 7×7 pixels) is trained briefly, once
with batch norm and once with group norm. Of every test image the l_2 distance to the boundary, of the 28×28 pixels, is
certified (CROWN-IBP) and attacked (`attacks.minimal`), and the margin in two balls is bounded and attacked (PGD).
Written are the numbers of images on which a certificate exceeds an attack, which must be 0, and the medians; the same
for a few images with `method="crown"`, and for a few with the network on all pixels.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from widemargin import attacks, certify, data, margins, models
from widemargin._io.files import write_json
from widemargin._io.provenance import provenance

WIDTHS, TRAIN, EPOCHS, BATCH, LR = (4, 8), 20_000, 2, 100, 5e-3
RADII = (0.02, 0.1)
STEPS, ATTACK_STEPS, CHUNK = 10, 15, 500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--few", type=int, default=100, help="images of the slower certificates")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("results/certificates.json"))
    options = parser.parse_args()
    settings = {
        "data": "mnist",
        "network": f"resnet, widths {WIDTHS}, one block each, after an average pool of 4×4 pixels",
        "training": f"{TRAIN} images, {EPOCHS} epochs, Adam, lr {LR:g}, cross-entropy",
        "norm": "l_2",
        "radii": RADII,
        "steps": STEPS,
        "attack steps": ATTACK_STEPS,
        "seed": options.seed,
    }
    rows: list[dict[str, Any]] = []
    for norm in ("batch", "group"):
        rows.append(campaign(norm, "crown-ibp", options.images, options.seed, pooled=True))
        rows.append(campaign(norm, "crown", options.few, options.seed, pooled=True))
        rows.append(campaign(norm, "crown-ibp", options.few, options.seed, pooled=False))
        write_json(options.out, {"settings": settings, "rows": rows, **provenance()})
    print("wrote", options.out)


def campaign(norm: Any, method: certify.Method, images: int, seed: int, *, pooled: bool) -> dict[str, Any]:
    """Certificates and attacks of the first test images."""
    found = data.load("mnist")
    model = trained(norm, found.train.x, found.train.y, seed, pooled=pooled)
    x, y = found.test.x[:images], found.test.y[:images]
    parts: list[dict[str, Tensor]] = []
    started = time.process_time()
    for number, (a, b) in enumerate(zip(x.split(CHUNK), y.split(CHUNK)), start=1):
        parts.append(bounds_and_attacks(model, a, b, method))
        print(f"{norm} {method}: {min(number * CHUNK, images)} of {images}", flush=True)
    seconds = time.process_time() - started
    whole = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    lower, upper = whole["lower"], whole["upper"]
    right = upper > 0
    attacked = right & upper.isfinite()
    return {
        "norm": norm,
        "pixels": "7×7" if pooled else "28×28",
        "method": method,
        "images": images,
        "accuracy": float(right.double().mean()),
        "certified": int((lower > 0).sum()),
        "certified but wrong": int((lower[~right] > 0).sum()),
        "attacked": int(attacked.sum()),
        "certificate above attack": int((lower > upper).sum()),
        **{f"bound above attack at {radius:g}": int(whole[f"above {radius:g}"].sum()) for radius in RADII},
        **{f"certified at {radius:g}": float((lower >= radius).double().mean()) for radius in RADII},
        "lower": float(lower[attacked].median()),
        "upper": float(upper[attacked].median()),
        "lower/upper": float((lower / upper)[attacked].median()),
        "largest lower/upper": float((lower / upper)[attacked].max()),
        "seconds": round(seconds, 1),
    }


def bounds_and_attacks(model: nn.Module, x: Tensor, y: Tensor, method: certify.Method) -> dict[str, Tensor]:
    """Certified and attacked distances, and whether a bound of the margin in a ball exceeds an attacked margin."""
    found = {"lower": certify.radius(model, x, y, method=method, steps=STEPS).values}
    found["upper"] = attacks.minimal(model, x, y, steps=ATTACK_STEPS, search="own").distances.cpu()
    for radius in RADII:
        points = attacks.pgd(model, x, y, radius, p=2.0, steps=10, bounds=None)
        with torch.no_grad():
            margin = margins.output(model(points), y)
        bound = certify.margin_bound(model, x, y, radius, method=method).amin(dim=1)
        found[f"above {radius:g}"] = bound > margin.double().cpu() + 1e-4  # scores are float32
    return found


def trained(norm: Any, x: Tensor, y: Tensor, seed: int, *, pooled: bool) -> nn.Module:
    """A residual network after a brief training."""
    torch.manual_seed(seed)
    network: nn.Module = models.resnet(widths=WIDTHS, blocks=(1, 1), in_channels=1, norm=norm)
    if pooled:
        network = nn.Sequential(nn.AvgPool2d(4), network)
    optimizer = torch.optim.Adam(network.parameters(), lr=LR)
    for _ in range(EPOCHS):
        for index in torch.randperm(len(x))[:TRAIN].split(BATCH):
            optimizer.zero_grad()
            F.cross_entropy(network(x[index]), y[index]).backward()
            optimizer.step()
    return network.eval()


if __name__ == "__main__":
    main()
