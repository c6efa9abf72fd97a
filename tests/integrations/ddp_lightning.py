"""A process of two under Lightning's DDP: writes down what the callback logged, and what the metric computed."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import torch

from integrations.lightning_cases import Classifier, loader, samples, trainer
from two_processes import leave
from widemargin.integrations.lightning import Margins
from widemargin.integrations.torchmetrics import MarginDistance


def main(folder: Path) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    callback = Margins(at=("input", "net.0"))
    model = Classifier()
    run = trainer(strategy="ddp", devices=2, callbacks=[callback], default_root_dir=folder)
    run.fit(model, loader(48, 0), loader(40, 1))
    logged = {name: float(value) for name, value in run.callback_metrics.items() if name.startswith("margins/")}
    metric = MarginDistance(statistic="median")
    x, y = samples(40, 1)
    if run.global_rank == 0:  # one process has no samples at all
        metric.update(model, x[:7], y[:7])
    weights = torch.cat([p.detach().flatten() for p in model.parameters()]).double()
    found = {
        "logged": logged,
        "rows": callback.rows,
        "median": metric.compute().item(),
        "weights": float(weights.sum()),
    }
    (folder / f"{run.global_rank}.json").write_text(json.dumps(found))
    if run.global_rank == 0:
        torch.save(model.state_dict(), folder / "weights.pt")
    leave(folder, run.global_rank)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
