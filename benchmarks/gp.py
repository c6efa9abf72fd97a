"""The NN-GP posterior against scikit-learn's and GPyTorch's exact Gaussian processes with the same kernel, in one run.

    python benchmarks/gp.py                      # 5000 training and 2000 test points, depth 5
    python benchmarks/gp.py --device cuda        # without scikit-learn, which has no GPU
    python benchmarks/gp.py --train 20000 --only widemargin

Kernel, posterior mean and variances in float64. Every contender runs in processes of its own, in turns; the smallest
time counts, and the peak memory is what the process (or the GPU) needed above its imports and inputs. Goal: at most 1.0
times the faster of the others. GPyTorch is left out where it is not installed (`pip install gpytorch`).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

JITTER, DIMENSIONS, PEERS = 1e-6, 784, ("scikit-learn", "GPyTorch")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=int, default=5000)
    parser.add_argument("--test", type=int, default=2000)
    parser.add_argument("--depth", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", choices=("widemargin", *PEERS), help="run this contender alone, and write no result")
    parser.add_argument("--out", type=Path, default=Path("results/bench-gp.json"))
    parser.add_argument("--contend", choices=("widemargin", *PEERS), help=argparse.SUPPRESS)
    parser.add_argument("--save", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contend:
        print(json.dumps(contend(options)))
        return
    names, skipped = contenders(options)
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    with TemporaryDirectory() as folder:
        for _ in range(options.rounds):
            for name in names:
                runs[name].append(process(name, options, Path(folder)))
        differences = {name: difference(Path(folder), name) for name in names}
    rows = [
        {
            "name": name,
            "seconds": min(run["seconds"] for run in found),
            "all_seconds": [run["seconds"] for run in found],
            "peak_mib": max(run["peak_mib"] for run in found),
            "threads": found[0]["threads"],
            **differences[name],
        }
        for name, found in runs.items()
    ]
    report(rows, skipped, options)


def contenders(options: argparse.Namespace) -> tuple[list[str], dict[str, str]]:
    """Who runs, and why the others do not."""
    if options.only:
        return [options.only], {}
    skipped = {}
    if options.device != "cpu":
        skipped["scikit-learn"] = "it has no GPU"
    if importlib.util.find_spec("gpytorch") is None:
        skipped["GPyTorch"] = "not installed: pip install gpytorch"
    return ["widemargin", *(peer for peer in PEERS if peer not in skipped)], skipped


def process(name: str, options: argparse.Namespace, folder: Path) -> dict[str, float]:
    """One contender once, in a fresh process."""
    sizes = ["--train", options.train, "--test", options.test, "--depth", options.depth, "--device", options.device]
    command = [sys.executable, __file__, "--contend", name, "--save", folder / f"{name}.npz", *sizes]
    done = subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(done.stdout))


def contend(options: argparse.Namespace) -> dict[str, float]:
    import numpy as np
    import torch

    run = {"widemargin": widemargin, "scikit-learn": scikit_learn, "GPyTorch": gpytorch}[options.contend]
    small = points(150, 0, options.device), points(50, 1, options.device)
    run(small[0], torch.ones(150, device=options.device).double(), small[1], options.depth)  # libraries start up
    train_x, test_x = points(options.train, 0, options.device), points(options.test, 1, options.device)
    train_y = torch.where(train_x[:, 0] > 0, 1.0, -1.0).double()
    before = peak(options.device)
    started = time.perf_counter()
    mean, variance = run(train_x, train_y, test_x, options.depth)
    mean, variance = mean.cpu(), variance.cpu()  # which also waits for a GPU
    seconds = time.perf_counter() - started
    np.savez(options.save, mean=mean.numpy(), variance=variance.numpy())
    used = (peak(options.device) - before) / 2**20
    return {"seconds": seconds, "peak_mib": used, "threads": torch.get_num_threads()}


def widemargin(train_x: Any, train_y: Any, test_x: Any, depth: int) -> tuple[Any, Any]:
    from widemargin import gp

    found = gp.posterior(train_x, train_y, test_x, depth, jitter=JITTER, covariance=False)
    return found.mean, found.variance


def scikit_learn(train_x: Any, train_y: Any, test_x: Any, depth: int) -> tuple[Any, Any]:
    import numpy as np
    import torch
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import Kernel, StationaryKernelMixin

    from widemargin import gp

    class Arccosine(StationaryKernelMixin, Kernel):  # type: ignore[misc]
        def __init__(self) -> None:  # scikit-learn reads its signature
            pass

        def __call__(self, X: Any, Y: Any = None, eval_gradient: bool = False) -> Any:  # noqa: ARG002
            x = torch.from_numpy(X)
            return gp.kernel(x, x if Y is None else torch.from_numpy(Y), depth).numpy()

        def diag(self, X: Any) -> Any:
            return np.ones(len(X))

    model = GaussianProcessRegressor(kernel=Arccosine(), alpha=JITTER, optimizer=None, copy_X_train=False)
    model.fit(train_x.numpy(), train_y.numpy())
    mean, deviation = model.predict(test_x.numpy(), return_std=True)
    return torch.from_numpy(mean), torch.from_numpy(deviation).square()


def gpytorch(train_x: Any, train_y: Any, test_x: Any, depth: int) -> tuple[Any, Any]:
    import gpytorch  # type: ignore[import-not-found, unused-ignore]
    import torch

    from widemargin import gp

    class Arccosine(gpytorch.kernels.Kernel):  # type: ignore[misc]
        def forward(self, x1: Any, x2: Any, diag: bool = False, **_: Any) -> Any:
            return torch.ones_like(x1[..., 0]) if diag else gp.kernel(x1, x2, depth)

    class Model(gpytorch.models.ExactGP):  # type: ignore[misc]
        def __init__(self, likelihood: Any) -> None:
            super().__init__(train_x, train_y, likelihood)
            self.mean, self.kernel = gpytorch.means.ZeroMean(), Arccosine()

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    noise = torch.full_like(train_y, JITTER)
    model = Model(gpytorch.likelihoods.FixedNoiseGaussianLikelihood(noise=noise)).to(train_x).eval()
    # Cholesky at every size: above 800 points it would else stop conjugate gradients early, another posterior.
    with torch.no_grad(), gpytorch.settings.max_cholesky_size(10**9):
        found = model(test_x)
        return found.mean, found.variance


def points(n: int, seed: int, device: str) -> Any:
    """Random points of the sphere of radius √784."""
    import torch

    x = torch.randn(n, DIMENSIONS, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return (x * (DIMENSIONS**0.5 / x.norm(dim=1, keepdim=True))).to(device)


def peak(device: str) -> int:
    """Peak memory in bytes, of the GPU or of this process since it began (Linux)."""
    if device != "cpu":
        import torch

        return int(torch.cuda.max_memory_allocated(device))
    return 1024 * int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])


def difference(folder: Path, name: str) -> dict[str, float]:
    """The largest differences from widemargin's mean and variances: do they compute the same?"""
    import numpy as np

    if not (folder / "widemargin.npz").exists():
        return {}
    ours, theirs = (np.load(folder / f"{which}.npz") for which in ("widemargin", name))
    return {f"{key}_difference": float(abs(ours[key] - theirs[key]).max()) for key in ("mean", "variance")}


def report(rows: list[dict[str, Any]], skipped: dict[str, str], options: argparse.Namespace) -> None:
    from widemargin._io.files import write_json
    from widemargin._io.provenance import provenance

    settings = {key: getattr(options, key) for key in ("train", "test", "depth", "rounds", "device")}
    print(settings | {"jitter": JITTER, "d_0": DIMENSIONS})
    for row in rows:
        print(f"{row['name']:13} {row['seconds']:8.2f} s {row['peak_mib']:9.0f} MiB", row.get("mean_difference"))
    for name, why in skipped.items():
        print(f"{name:13} left out: {why}")
    peers = [row["seconds"] for row in rows if row["name"] != "widemargin"]
    ratio = rows[0]["seconds"] / min(peers) if peers else None
    if ratio is not None:
        print(f"widemargin takes {ratio:.2f} times the faster of the others (goal: at most 1.0)")
    if not options.only:
        result = {"settings": settings | {"jitter": JITTER, "d_0": DIMENSIONS}, "ratio_to_fastest_peer": ratio}
        found = provenance(options.device)
        if "GPyTorch" not in skipped:
            found["versions"]["gpytorch"] = metadata.version("gpytorch")
        load = round(os.getloadavg()[0], 1)  # above the number of cores, others were using them
        write_json(options.out, {**result, "rows": rows, "skipped": skipped, "load_average": load, **found})


if __name__ == "__main__":
    main()
