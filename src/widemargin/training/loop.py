"""The loop of `fit`, as every process runs it."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from widemargin._autograd.preserve_rng import preserve_rng
from widemargin._cuda.graphs import CapturedStep
from widemargin._cuda.runtime import is_capturing
from widemargin._io.progress import track
from widemargin.checks import check_scores_and_labels
from widemargin.data import batches, load
from widemargin.losses.margin import MarginLoss, margin_backward
from widemargin.modules import evaluating, floating_parameter
from widemargin.training import checkpoint, distributed
from widemargin.training.batches import Batch, InMemory, Place, source
from widemargin.training.config import Outcome, Position, Task
from widemargin.training.cuda_graph import last_scores, why_no_graph
from widemargin.training.fingerprint import describe
from widemargin.training.history import Gauge, Row, call
from widemargin.training.rng import seed_all
from widemargin.training.stopping import Context, bad_row, stop_at_sample
from widemargin.training.tensorboard import Board


def train(fabric: Any, task: Task) -> Outcome:
    """Train, from the beginning or from a checkpoint, as one of `fabric.world_size` processes."""
    with preserve_rng(fabric.device):
        # Processes that were spawned share the memory of the network they were given.
        model = fabric.to_device(task.model if fabric.world_size == 1 else copy.deepcopy(task.model))
        run = _Run(fabric, task, model)
        with _training(model):
            run.resume()
            steps = run.steps()
            left = None if run.source.steps is None else run.source.steps * task.epochs - run.at.step
            shown = steps if left is None else _Sized(steps, left)
            for batch in track(shown, "Training", progress=task.progress if fabric.is_global_zero else False):
                run.step(batch)
            run.save()
        run.close()
    if fabric.world_size == 1:
        return Outcome(weights=None, rows=run.at.rows, settings=run.settings | run.ways())
    from safetensors.torch import save

    weights = {name: t.detach().to("cpu", copy=True) for name, t in model.state_dict().items()}
    return Outcome(weights=save(weights), rows=run.at.rows, settings=run.settings | run.ways())


class _Run:
    def __init__(self, fabric: Any, task: Task, model: nn.Module) -> None:
        if fabric.world_size > 1:
            distributed.broadcast(model)
        weight = floating_parameter(model)
        assert weight is not None
        self.place = Place(
            device=fabric.device,
            dtype=None if task.precision else weight.dtype,
            rank=fabric.global_rank,
            processes=fabric.world_size,
        )
        self.fabric, self.task, self.model, self.at = fabric, task, model, Position()
        self.source = source(task.data, batch_size=task.batch_size, seed=task.seed, place=self.place)
        if getattr(task.loss, "needs_index", False) and not self.source.knows_positions:
            raise ValueError(
                "loss needs the positions of the samples, which a DataLoader does not tell: pass its Dataset"
            )
        self.optimizer = task.optimizer([p for p in model.parameters() if p.requires_grad])
        self.rates = [group["lr"] for group in self.optimizer.param_groups]
        self.gauge = Gauge(loss=task.loss, at=task.at, p=task.p, place=self.place, batch_size=task.batch_size)
        self.parts = self._parts()
        self.board = Board(task.tensorboard if fabric.is_global_zero else None)
        self.settings = self._settings()
        self.why_no_graph = why_no_graph(task, self.source, self.place)
        self.static: CapturedStep | None = None
        if self.why_no_graph is None:
            trained = [p for p in model.parameters() if p.requires_grad]
            self.static = CapturedStep(self._unlooked, trained, before_capture=self._look_at_labels)

    def steps(self) -> Iterator[Batch]:
        """The batches that are left, with what is due between them."""
        batch = None
        if self.at.step == 0:
            self._measure()
        while self.at.epoch < self.task.epochs:
            for batch in self.source.epoch(self.at.epoch, start=self.at.batch):
                yield batch
                self.at.batch += 1
                self.at.step += 1
            if batch is None:
                raise ValueError("data has no samples, expected at least one batch")
            self._end_epoch(batch)
            batch = None

    def step(self, batch: Batch) -> None:
        """One step of the optimizer."""
        at, task = self.at, self.task
        if at.step % task.checkpoint_every == 0 and at.step:
            self.save()
        seed_all(self.place.device, task.seed, "step", at.step, self.place.rank)
        for group, rate in zip(self.optimizer.param_groups, self.rates):
            group["lr"] = rate * self._factor()
        totals = self._passes(batch)
        if self.place.processes > 1:
            totals = distributed.add_up(self.model, totals)
        at.alive = at.alive or any(bool(p.grad.any()) for p in self.model.parameters() if p.grad is not None)
        self.optimizer.step()
        minimised, loss_of_batch = totals.tolist()
        at.objective, at.seen = at.objective + minimised * batch.joint, at.seen + batch.joint
        at.epoch_loss, at.epoch_seen = at.epoch_loss + loss_of_batch * batch.joint, at.epoch_seen + batch.joint

    def close(self) -> None:
        """End the curves, and give the memory of a CUDA graph back, which it and this would hold for each other."""
        self.board.close()
        if self.static is not None:
            self.why_no_graph, self.static = self.static.why_not, None
            self.optimizer.zero_grad()

    def ways(self) -> dict[str, str]:
        """In words, how the gradients of a margin loss were taken, and whether as a CUDA graph."""
        ways = {"backward": "; ".join(self.at.backward.values())} if self.at.backward else {}
        if self.place.device.type != "cuda":
            return ways
        return ways | {"CUDA graph": f"no, since {self.why_no_graph}" if self.why_no_graph else "yes"}

    def save(self) -> None:
        """Write a checkpoint, if there is a folder for it."""
        if self.task.checkpoint is not None and self.fabric.is_global_zero:
            state = {"at": vars(self.at), "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
            checkpoint.save(self.task.checkpoint, state, self.settings)

    def resume(self) -> None:
        """Go on where the checkpoint left off, if there is one."""
        if self.task.checkpoint is None:
            return
        if self.fabric.is_global_zero:
            checkpoint.sweep(self.task.checkpoint)
        state = checkpoint.load(self.task.checkpoint, self.settings)
        if state is not None:
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.at = Position(**state["at"])

    def _passes(self, batch: Batch) -> Tensor:
        """Both numbers of `_backward`, which a CUDA graph repeats where there can be one."""
        if self.static is not None and not self.static.why_not:
            self.batch = batch
            found = self.static(batch.x, batch.y)
            assert isinstance(found, Tensor)
            if not self.static.is_recorded or bool(found[2]):
                return found[:2]
            seed_all(self.place.device, self.task.seed, "step", self.at.step, self.place.rank)  # and say what is wrong
        self.optimizer.zero_grad()
        return torch.stack(self._backward(batch))

    def _unlooked(self, x: Tensor, y: Tensor) -> Tensor:
        """Both numbers of `_backward`, and whether all is finite, for who can look at that later only."""
        self.optimizer.zero_grad()
        with last_scores(self.model) as scores:
            objective, loss = self._backward(dataclasses.replace(self.batch, x=x, y=y))
        self.scores = scores[-1]
        fine = torch.isfinite(self.scores).all() & torch.isfinite(objective) & torch.isfinite(loss)
        return torch.stack([objective, loss, fine])

    def _look_at_labels(self) -> None:
        """At all of them, once: in a graph nobody does."""
        assert isinstance(self.source, InMemory)
        scores = self.scores.new_zeros(()).expand(len(self.source.y), *self.scores.shape[1:])
        check_scores_and_labels(scores, self.source.y)

    def _backward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """This process's part of the objective and of the mean loss: both, and the gradients, add up over processes."""
        task, context = self.task, self._context()
        with self.fabric.autocast():
            try:
                values, is_behind = self._loss(batch)
                penalties = [regularizer(self.model, batch.x, batch.y) for regularizer in task.regularizers]
            except ValueError:  # losses refuse scores that are not finite: say more, if that is the reason
                row = None if task.watch is None else bad_row(self.model, batch.x)
                if row is None:
                    raise
                stop_at_sample(row, torch.nan, batch, context)
        _check_shape(values, batch, "loss", task.loss)
        loss = objective = values.sum() / batch.joint
        for regularizer, penalty in zip(task.regularizers, penalties):
            if penalty.ndim:
                _check_shape(penalty, batch, "a regularizer", regularizer)
            objective = objective + (penalty.sum() / batch.joint if penalty.ndim else penalty / self.place.processes)
        if task.watch is not None and not is_capturing(self.place.device):
            for part in (values, *penalties):
                task.watch.loss(part, batch, context)
        if not is_behind or objective.requires_grad:
            objective.backward()
        return objective.detach(), loss.detach()

    def _loss(self, batch: Batch) -> tuple[Tensor, bool]:
        """The loss of every sample, and whether its gradients have been taken already, as a margin loss's are."""
        if type(self.task.loss) is not MarginLoss:
            return call(self.task.loss, self.model, batch.x, batch.y, batch.index), False
        share = len(batch.y) / batch.joint
        done = margin_backward(
            self.model,
            self.task.loss,
            batch.x,
            batch.y,
            scale=share,
            memory=self.task.memory,
            is_replayed=self.static is not None and not self.static.why_not,
        )
        self.at.backward.setdefault(done.method, repr(done))
        return done.values, True

    def _end_epoch(self, batch: Batch) -> None:
        at, task, steps = self.at, self.task, self.at.batch
        at.epoch, at.batch = at.epoch + 1, 0
        at.means.append(at.epoch_loss / at.epoch_seen)
        if task.watch is not None:
            at.means = task.watch.epoch(at.means, steps, at.alive, batch, self._context())
        at.epoch_loss, at.epoch_seen, at.alive = 0.0, 0, False
        if task.measure_every is not None and (at.epoch % task.measure_every == 0 or at.epoch == task.epochs):
            self._measure()

    def _measure(self) -> None:
        at = self.at
        seed_all(self.place.device, self.task.seed, "measure", at.step)  # a data set may have random transforms
        for split, part in self.parts.items():
            row: Row = {"epoch": at.epoch, "step": at.step, "split": split}
            if split == "train" and at.seen:
                row |= {"objective": at.objective / at.seen, "lr": self.optimizer.param_groups[0]["lr"]}
                at.objective, at.seen = 0.0, 0
            if part is not None:
                row |= self._read(split, *part)
            at.rows.append(row)
            self.board.write(row)

    def _read(self, split: str, data: Any, index: Tensor | None) -> dict[str, float]:
        try:
            return self.gauge.read(self.model, data, index)
        except ValueError:  # of scores that are not finite, perhaps: then say which sample has them
            seen = 0
            for x, y in batches(data, batch_size=self.task.batch_size) if self.task.watch is not None else ():
                positions = torch.arange(seen, seen + len(y)) if index is None else index[seen : seen + len(y)]
                x, y = self.place.move(x, y)
                with evaluating(self.model):
                    row = bad_row(self.model, x)
                if row is not None:
                    batch = Batch(x=x, y=y, index=positions, joint=len(y))
                    stop_at_sample(row, torch.nan, batch, self._context(), of="" if split == "train" else f"{split} ")
                seen += len(y)
            raise

    def _parts(self) -> dict[str, tuple[Any, Tensor | None] | None]:
        """What is measured: the same every time, all of it by every process, since losses may talk to each other."""
        if self.task.measure_every is None:
            return {}
        parts: dict[str, tuple[Any, Tensor | None] | None] = {"train": self.source.some(self.task.measure_on)}
        if (other := self.task.validation) is not None:
            parts["validation"] = load(other) if isinstance(other, str) else other, None
        return parts

    def _settings(self) -> dict[str, str]:
        apart = {"checkpoint", "checkpoint_every", "tensorboard", "progress", "graph"}  # where and how, not what
        names = [f.name for f in dataclasses.fields(self.task) if f.name not in apart]
        words = {name: describe(getattr(self.task, name)) for name in names}
        words["initial weights"] = describe(tuple(self.model.state_dict().values()))
        return words | {"processes": str(self.place.processes), "device": self.place.device.type}

    def _factor(self) -> float:
        epoch = self.at.epoch + (self.at.batch / self.source.steps if self.source.steps else 0.0)
        return self.task.schedule(epoch, self.task.epochs)

    def _context(self) -> Context:
        lr = self.optimizer.param_groups[0]["lr"]
        when = f"step {self.at.step} (epoch {self.at.epoch})"
        return Context(model=self.model, loss=self.task.loss, lr=lr, when=when)


@dataclass(frozen=True)
class _Sized:
    """Batches whose number is known, so that a bar can say how much time is left."""

    batches: Iterator[Batch]
    count: int

    def __iter__(self) -> Iterator[Batch]:
        return self.batches

    def __len__(self) -> int:
        return self.count


@contextmanager
def _training(model: nn.Module) -> Iterator[None]:
    """`model` in training mode inside the `with` block, then every module of it back in the mode it had."""
    modes = [(module, module.training) for module in model.modules()]
    model.train()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def _check_shape(values: Tensor, batch: Batch, what: str, of: Any) -> None:
    if values.shape != batch.y.shape:
        raise ValueError(
            f"{what}, {describe(of)}, returned the shape {list(values.shape)} for {len(batch.y)} samples, "
            "expected one number per sample"
        )
