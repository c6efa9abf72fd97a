"""The training loop of `fit`, as every process runs it."""

from __future__ import annotations

import copy
import dataclasses
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from widemargin._autograd.preserve_rng import preserve_rng, with_rng_lock
from widemargin._cuda import graphs
from widemargin.checks import is_capturing
from widemargin.data import batches
from widemargin.losses.protocol import fast_backward, innermost, needs_index, values_of
from widemargin.losses.shared_pass import values_and_penalties
from widemargin.margins.measurement import measure
from widemargin.modules import evaluating, fewest_samples, floating_parameter, in_training_mode, scores_of
from widemargin.probabilities import read_model
from widemargin.training import checkpoint, distributed
from widemargin.training.augmentation import for_data, is_augmented
from widemargin.training.batches import Batch, InMemory, Replica, seed_all, source
from widemargin.training.callbacks import Callback, FitState, load_states, states_of
from widemargin.training.config import Fabric, FitConfig, Outcome, Position
from widemargin.training.fingerprint import describe
from widemargin.training.history import Row
from widemargin.training.interrupts import Interrupts
from widemargin.training.optimizers import optimizer_of
from widemargin.training.schedules import factor_of
from widemargin.training.stopping import bad_row, check_one_each, stop_at_sample
from widemargin.training.turns import Turns, why_no_cuda_graph


def train(fabric: Fabric, config: FitConfig, caller: int) -> Outcome:
    """Train, from the beginning or a checkpoint, as one of `fabric.world_size` processes, for the process `caller`."""
    with preserve_rng(fabric.device):
        # Processes that were spawned share the memory of the network they were given.
        model = fabric.to_device(config.model if fabric.world_size == 1 else copy.deepcopy(config.model))
        loop = FitLoop(fabric, config, model)
        with in_training_mode(model), loop.kept():
            loop.resume()
            loop.run()
            loop.save()
            loop.leave_if_asked()
        loop.close()
    settings = loop.settings | loop.passes_in_words()
    if fabric.world_size == 1:
        return Outcome(weights=None, rows=loop.at.rows, settings=settings)
    from safetensors.torch import save

    weights = {name: t.detach().to("cpu", copy=True) for name, t in model.state_dict().items()}
    distributed.leave_group(caller)
    return Outcome(weights=save(weights), rows=loop.at.rows, settings=settings)


class FitLoop:
    """A training at its position `at`: steps, measurements and checkpoints."""

    def __init__(self, fabric: Fabric, config: FitConfig, model: nn.Module) -> None:
        if fabric.world_size > 1:
            distributed.broadcast(model)
        weight = floating_parameter(model)
        assert weight is not None
        self.replica = Replica(
            device=fabric.device,
            dtype=None if config.devices.precision else weight.dtype,
            rank=fabric.global_rank,
            processes=fabric.world_size,
        )
        fewest = fewest_samples(model)
        self.source = found = source(config.data, config.batch_size, config.seed, self.replica, fewest)
        if found.steps is None and not factor_of(config.schedule, 0.0, config.epochs):
            raise ValueError(
                f"schedule is {config.schedule!r}, whose factor is 0 in the whole first epoch, because data has no "
                "length: expected data with a length, or a schedule that does not begin at 0"
            )
        augmented = partial(is_augmented, found.dataset, found.positions, found.collate)
        config = dataclasses.replace(config, loss=for_data(config.loss, found.count, augmented))
        self.fabric, self.config, self.model, self.at = fabric, config, model, Position()
        self.turns = Turns(config.loss)
        takes_outputs = getattr(innermost(config.loss), "takes_outputs", False)
        self.read = read_model(model, config.read_as)
        self.for_loss = model if takes_outputs else self.read
        if needs_index(config.loss) and not self.source.knows_positions:
            raise ValueError(
                "loss needs the positions of the samples, which a DataLoader does not tell: pass its Dataset"
            )
        self.trained = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = optimizer_of(config.optimizer, model)
        self.rates = [group["lr"] for group in self.optimizer.param_groups]
        self.splits = self._splits()
        self.settings = config.describe() | {
            "initial weights": describe(tuple(model.state_dict().values())),
            "processes": str(self.replica.processes),
            "device": self.replica.device.type,
        }
        self.checks_values = config.stop_failed.epochs is not None
        self.batch: Batch | None = None
        self.objective: float | None = None
        self.interrupts, self.asked, self.saved_at = Interrupts(), False, time.monotonic()
        self.no_cuda_graph = why_no_cuda_graph(config, self.source, self.replica)
        if self.no_cuda_graph is None:
            self.turns.capture(self._static_passes, fabric.device, self.trained, self._check_labels)

    def run(self) -> None:
        """All steps that are left, with the hooks of the callbacks."""
        at = self.at
        with ExitStack() as stack:
            for callback in self.config.callbacks:
                at.stopped = bool(callback.on_fit_start(self.state())) or at.stopped
                stack.callback(self._end, callback)
            self._epochs()
            if self.config.measure.every is not None and (not at.rows or at.rows[-1]["step"] != at.step):
                self.measure()  # a callback has ended the training

    def _epochs(self) -> None:
        """The epochs that are left, until a callback ends the training."""
        at = self.at
        while at.epoch < self.config.epochs and not at.stopped:
            self.batch = None
            for batch in self.source.epoch(at.epoch, start=at.batch):
                self.batch = batch
                self.step(batch)
                at.batch, at.step = at.batch + 1, at.step + 1
                self._call("on_step_end")
                if at.stopped:
                    return
            if self.batch is None:
                raise ValueError("data has no samples, expected at least one batch")
            at.epoch, at.batch = at.epoch + 1, 0
            at.epoch_losses.append(at.epoch_loss / at.epoch_seen)
            self._call("on_epoch_end")
            at.epoch_loss, at.epoch_seen, at.had_gradient = 0.0, 0, False

    @with_rng_lock
    def step(self, batch: Batch) -> None:
        """One step of the optimizer."""
        at, config = self.at, self.config
        self._keep()
        seed_all(self.replica.device, config.seed, "step", at.step, self.replica.rank)
        for group, rate in zip(self.optimizer.param_groups, self.rates):
            group["lr"] = rate * self._factor()
        totals = self._passes(batch)
        if self.replica.processes > 1:
            asked = totals.new_tensor([self.interrupts.signal is not None])  # then all stop at the same step
            totals = distributed.sum_gradients(self.model, torch.cat([totals, asked]))
            totals, self.asked = totals[:2], bool(totals[2])
        at.had_gradient = at.had_gradient or any(bool(p.grad.any()) for p in self.trained if p.grad is not None)
        if config.gradient_clip is not None:
            nn.utils.clip_grad_norm_(self.trained, config.gradient_clip)
        self.objective, loss = totals.tolist()  # before the optimizer, whose kernels a GPU runs during the next lines
        self.optimizer.step()
        at.objective, at.seen = at.objective + self.objective * batch.joint, at.seen + batch.joint
        at.epoch_loss, at.epoch_seen = at.epoch_loss + loss * batch.joint, at.epoch_seen + batch.joint

    @with_rng_lock
    def measure(self) -> None:
        """Add a row of every split to the history."""
        at = self.at
        seed_all(self.replica.device, self.config.seed, "measure", at.step)  # a data set may have random transforms
        for split, part in self.splits.items():
            row: Row = {"epoch": at.epoch, "step": at.step, "split": split}
            if split == "train" and at.seen:
                row |= {"objective": at.objective / at.seen, "lr": self.optimizer.param_groups[0]["lr"]}
                at.objective, at.seen = 0.0, 0
            if part is not None:
                row |= self._measured(split, *part)
            at.rows.append(row)

    def state(self) -> FitState:
        """The state that callbacks see."""
        at, steps = self.at, self.source.steps
        return FitState(
            model=self.model,
            loss=self.config.loss,
            epochs=self.config.epochs,
            epoch=at.epoch,
            step=at.step,
            steps=None if steps is None else steps * self.config.epochs,
            lr=self.optimizer.param_groups[0]["lr"],
            objective=self.objective,
            epoch_losses=at.epoch_losses,
            had_gradient=at.had_gradient,
            batch=self.batch,
            rows=at.rows,
            is_main=self.fabric.is_global_zero,
            measure=self.measure,
        )

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Hold the folder of checkpoints against other trainings; signals wait until a checkpoint is written."""
        with ExitStack() as stack:
            if self.config.checkpoint is not None:
                if self.fabric.is_global_zero:
                    stack.enter_context(checkpoint.held(Path(self.config.checkpoint.folder)))
                stack.enter_context(self.interrupts.watched())
            yield

    def save(self) -> None:
        """Write a checkpoint, if there is a folder for it."""
        self.saved_at = time.monotonic()
        if self.config.checkpoint is not None and self.fabric.is_global_zero:
            state = {"at": vars(self.at), "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
            state["callbacks"] = states_of(self.config.callbacks)
            checkpoint.save(Path(self.config.checkpoint.folder), state, self.settings)

    def resume(self) -> None:
        """Continue from the checkpoint, if there is one."""
        if self.config.checkpoint is None:
            return
        state = checkpoint.load(Path(self.config.checkpoint.folder), self.settings)
        if state is not None:
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.at = Position(**state["at"])
            load_states(self.config.callbacks, state["callbacks"])

    def leave_if_asked(self) -> None:
        """End the training where a signal asked for it, and say where it goes on."""
        if self.config.checkpoint is None or not (self.asked or self.interrupts.signal is not None):
            return
        if self.fabric.is_global_zero:
            where = f"step {self.at.step} (checkpoint in {self.config.checkpoint.folder})"
            print(f"Interrupted: the same command goes on from {where}", file=sys.stderr, flush=True)
        self.interrupts.act()
        if self.asked:  # the signal was another process's
            raise KeyboardInterrupt

    def close(self) -> None:
        """Free the memory of a CUDA graph, which would keep this object alive."""
        if self.turns.is_captured:
            self.no_cuda_graph = self.turns.close()
            self.optimizer.zero_grad()

    def passes_in_words(self) -> dict[str, str]:
        """The backward passes of a margin loss, and whether they were replayed as a CUDA graph."""
        words = {"backward": "; ".join(self.at.backward.values())} if self.at.backward else {}
        if self.replica.device.type != "cuda":
            return words
        return words | {"CUDA graph": f"no, since {self.no_cuda_graph}" if self.no_cuda_graph else "yes"}

    def _end(self, callback: Callback) -> None:
        callback.on_fit_end(self.state())

    def _call(self, hook: Literal["on_step_end", "on_epoch_end"]) -> None:
        state = self.state()
        for callback in self.config.callbacks:
            self.at.stopped = bool(getattr(callback, hook)(state)) or self.at.stopped

    def _keep(self) -> None:
        """Write a checkpoint where it is time to, or before the training ends because a signal asked for it."""
        where, step = self.config.checkpoint, self.at.step
        if where is None or not step:
            return
        asked = self.asked if self.replica.processes > 1 else self.interrupts.signal is not None
        if asked or step % where.every == 0 or time.monotonic() - self.saved_at >= where.seconds:
            self.save()
        if asked:
            self.leave_if_asked()

    def _factor(self) -> float:
        passed = min(1.0, self.at.batch / self.source.steps) if self.source.steps else 0.0  # a stream may be longer
        return factor_of(self.config.schedule, self.at.epoch + passed, self.config.epochs)

    def _passes(self, batch: Batch) -> Tensor:
        """Both numbers of `_backward`, replayed by a CUDA graph where there can be one."""
        static = self.turns.captured(self.at.step)
        if static is not None:
            values = static(batch.x, batch.y)
            assert isinstance(values, Tensor)
            if not static.is_replayed or bool(values[2]):
                return values[:2]
            # Something is not finite: run the passes again without the graph, which checks every value.
            seed_all(self.replica.device, self.config.seed, "step", self.at.step, self.replica.rank)
        self.optimizer.zero_grad()
        return torch.stack(self._backward(batch))

    def _static_passes(self, x: Tensor, y: Tensor) -> Tensor:
        """Both numbers of `_backward`, and whether all values are finite."""
        assert self.batch is not None
        self.optimizer.zero_grad()
        hook = self.model.register_forward_hook(self._keep_scores)
        try:
            objective, loss = self._backward(dataclasses.replace(self.batch, x=x, y=y))
        finally:
            hook.remove()
        finite = torch.isfinite(self.scores).all() & torch.isfinite(objective) & torch.isfinite(loss)
        return torch.stack([objective, loss, finite])

    def _keep_scores(self, _: nn.Module, __: object, output: object) -> None:
        self.scores = scores_of(output).detach()

    def _check_labels(self) -> None:
        assert isinstance(self.source, InMemory)
        graphs.check_all_labels(self.scores, self.source.y)

    def _backward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """This process's part of the objective and of the mean loss; both, and the gradients, sum over processes."""
        config = self.config
        with self.fabric.autocast():
            try:
                values, penalties, is_done = self._values_and_penalties(batch)
            except ValueError as error:  # losses refuse scores that are not finite: say why, if that is the reason
                if len(batch.y) == 1 and "more than 1 value per channel" in str(error):
                    raise ValueError(
                        "data has a batch of one sample, for which BatchNorm in training mode has no statistics: "
                        "expected two samples or more, by drop_last=True or another batch_size"
                    ) from error
                row = bad_row(self.model, batch.x) if self.checks_values else None
                if row is None:
                    raise
                stop_at_sample(row, torch.nan, batch, self.state())
        check_one_each(values, batch, "loss", config.loss)
        loss = objective = values.sum() / batch.joint
        for regularizer, penalty in zip(config.regularizers, penalties):
            if penalty.ndim:
                check_one_each(penalty, batch, "a regularizer", regularizer)
            objective = objective + (penalty.sum() / batch.joint if penalty.ndim else penalty / self.replica.processes)
        if self.checks_values and not is_capturing(self.replica.device):
            for part in (values.detach(), *(penalty.detach() for penalty in penalties)):
                if not bool((finite := torch.isfinite(part)).all()):
                    row = int((~finite).reshape(-1).nonzero()[0])
                    stop_at_sample(row, part.reshape(-1)[row].item(), batch, self.state())
        if not is_done or objective.requires_grad:
            objective.backward()
        return objective.detach(), loss.detach()

    def _values_and_penalties(self, batch: Batch) -> tuple[Tensor, list[Tensor], bool]:
        """The loss of every sample, the regularizers, and whether a fast backward took the loss's gradients already."""
        loss, regularizers = self.turns.loss(self.at.step), self.config.regularizers
        backward = fast_backward(loss)
        if backward is None:
            if self.for_loss is self.read:
                values, penalties = values_and_penalties(loss, regularizers, self.read, batch.x, batch.y, batch.index)
            else:
                values = values_of(loss, self.for_loss, batch.x, batch.y, batch.index)
                penalties = [one(self.read, batch.x, batch.y) for one in regularizers]
            return values, penalties, False
        done = backward(
            self.for_loss,
            batch.x,
            batch.y,
            scale=len(batch.y) / batch.joint,
            memory=self.config.devices.backward_memory,
            is_replayed=self.turns.captured(self.at.step) is not None,
        )
        self.at.backward.setdefault(done.method, repr(done))
        return done.values, [one(self.read, batch.x, batch.y) for one in regularizers], True

    def _measured(self, split: str, data: object, index: Tensor | None) -> dict[str, float]:
        try:
            return self._values(data, index)
        except ValueError:  # scores may not be finite: then name the sample
            start = 0
            for x, y in batches(data, batch_size=self.config.batch_size) if self.checks_values else ():
                positions = torch.arange(start, start + len(y)) if index is None else index[start : start + len(y)]
                x, y = self.replica.move(x, y)
                with evaluating(self.model):
                    row = bad_row(self.model, x)
                if row is not None:
                    batch = Batch(x=x, y=y, index=positions, joint=len(y))
                    stop_at_sample(row, torch.nan, batch, self.state(), of="" if split == "train" else f"{split} ")
                start += len(y)
            raise

    def _values(self, data: object, index: Tensor | None) -> dict[str, float]:
        """Mean loss, accuracy and mean distance at every place, in evaluation mode."""
        config = self.config
        found = measure(self.read, data, at=config.at, p=config.p, batch_size=config.batch_size, progress=False)
        known: dict[str, float] = {"accuracy": found.accuracy, "balanced accuracy": found.balanced_accuracy}
        known |= {f"distance at {name}": distribution.mean for name, distribution in found.statistics.items()}
        if index is None and needs_index(config.loss):
            return known  # such a loss is defined for training samples only
        total, count = 0.0, 0
        with evaluating(self.read), torch.enable_grad():
            for x, y in batches(data, batch_size=config.batch_size):
                rows = None if index is None else index[count : count + len(y)]
                values = values_of(config.loss, self.for_loss, *self.replica.move(x, y), rows)
                total, count = total + float(values.detach().double().sum()), count + len(y)
        return {"loss": total / count, **known}

    def _splits(self) -> dict[str, tuple[object, Tensor | None] | None]:
        """The data that are measured, and positions: all of them by every process, since losses may communicate."""
        if self.config.measure.every is None:
            return {}
        splits: dict[str, tuple[object, Tensor | None] | None] = {
            "train": self.source.some(self.config.measure.samples)
        }
        if (other := self.config.validation) is not None:
            splits["validation"] = other, None
        return splits
