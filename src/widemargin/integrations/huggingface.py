"""The loss of a Hugging Face `Trainer`."""

from __future__ import annotations

from collections.abc import Callable, Sized
from functools import partial
from typing import Any, TypeAlias

from torch import Tensor, nn

from widemargin.checks import check_callable
from widemargin.losses.protocol import Loss, needs_index
from widemargin.losses.wide_margin import WideMargin
from widemargin.modules import NamedInputs
from widemargin.training.augmentation import for_data, is_augmented

HuggingFaceTrainer: TypeAlias = Any
"""`transformers.Trainer`, which is never imported here."""

ComputeLoss: TypeAlias = Callable[..., Tensor | tuple[Tensor, Any]]


def compute_loss(loss: Loss = WideMargin()) -> ComputeLoss:  # noqa: B008 (a frozen value)
    """The method `compute_loss` of a subclass of `transformers.Trainer` that trains with `loss`.

        class MarginTrainer(Trainer):
            compute_loss = wm.integrations.huggingface.compute_loss(wm.WideMargin())

    A loss that needs gradients at a place of the network can't be a `compute_loss_func`, which is called after the
    forward pass and has neither the network nor its inputs. Margins are taken at the first embedding where the inputs
    are tokens, and otherwise at the input, unless the loss has `at`. A loss that depends on the number of training
    samples (`WideMargin`) takes the length of the `train_dataset`, if that has one, and whether its transforms change
    samples at random.

    Args:
        loss: `loss(model, x, y)` → one number per sample, whose mean is minimised; x are the tensors of a batch by
            name, and y its `labels`.
    """
    check_callable("loss", loss, "WideMargin()")
    if needs_index(loss):
        raise ValueError("loss needs the positions of the samples, which a Trainer does not tell: train with wm.fit")

    def method(
        trainer: HuggingFaceTrainer,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,  # noqa: ARG001 (the mean is over the samples of this batch)
    ) -> Tensor | tuple[Tensor, Any]:
        """The mean loss of a batch, and with `return_outputs` the output of the network."""
        trainer.model_accepts_loss_kwargs = False  # so that a mean is divided by the accumulated batches
        if not isinstance(inputs.get("labels"), Tensor):
            raise ValueError(f"the batch has the keys {', '.join(inputs)}, expected 'labels' among them")
        others = {name: value for name, value in inputs.items() if name != "labels"}
        x = NamedInputs({name: value for name, value in others.items() if isinstance(value, Tensor)})
        mean = _of_trainer(loss, trainer)(model, x, inputs["labels"]).mean()  # type: ignore[arg-type]
        return (mean, model(**others)) if return_outputs else mean

    return method


def _of_trainer(loss: Loss, trainer: HuggingFaceTrainer) -> Loss:
    """`loss` adapted to `train_dataset`, cached per data set; unchanged if it has no length."""
    data = getattr(trainer, "train_dataset", None)
    if not isinstance(data, Sized) or len(data) == 0:
        return loss
    seen = vars(trainer).get("_loss_of_data")
    if seen is None or seen[0] is not data or seen[1] is not loss:
        trainer._loss_of_data = seen = data, loss, for_data(loss, len(data), partial(is_augmented, data))
    found: Loss = seen[2]
    return found
