"""Methods of computing a step, by name: a forward pass and the gradients of the weights, without the optimizer.

The package's methods are compared with plain autograd, and with the method of public ports of the papers' losses
(rewritten from their description): a backward pass for every place and class, each through the autograd graph.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from step_cost.cases import Case
from widemargin import places
from widemargin._cuda.graphs import WARM, capture, side_stream
from widemargin.losses import MarginLoss, WideMargin, margin_backward
from widemargin.margins.distance import Linearization
from widemargin.margins.output import differences
from widemargin.modules import mixing_modules, scores_of
from widemargin.regularizers import Jacobian, JacobianFrobenius

Step = Callable[[], object]


class Methods:
    """Steps of `case` on one batch; `reports` holds what `margin_backward` returned."""

    def __init__(self, case: Case, network: nn.Module, x: Tensor, y: Tensor) -> None:
        self.case, self.network, self.x, self.y = case, network, x, y
        self.reports: dict[str, str] = {}
        self.mixes = bool(mixing_modules(network))

    def step(self, name: str) -> Step:
        """Return the step called `name`, which can be called repeatedly."""
        one, joined = self._loss(), self._loss(cross_entropy=1.0)
        every = self._loss(classes="all")
        steps: dict[str, Callable[[], Step]] = {
            "cross-entropy": lambda: self._cross_entropy,
            "margin_backward": lambda: self._margin(name, one),
            "plain autograd": lambda: self._autograd(lambda: one(self.network, self.x, self.y)),
            "a backward per place": lambda: self._autograd(lambda: self._per_place(one)),
            "with cross-entropy, margin_backward": lambda: self._margin(name, joined),
            "with cross-entropy, plain autograd": lambda: self._autograd(lambda: joined(self.network, self.x, self.y)),
            "all classes": lambda: self._margin(name, every),
            "all classes, one by one": lambda: self._autograd(lambda: self._one_by_one(every)),
            "a backward per place and class": lambda: self._autograd(lambda: self._per_place(every)),
            "all classes estimated, m = 3": lambda: self._margin(name, self._probed(aggregate="sum", probes=3)),
            "class chosen by a probe": lambda: self._margin(name, self._probed(probes=1)),
            "WideMargin": lambda: self._autograd(self._wide),
            "WideMargin, share 1/8": lambda: self._autograd(self._wide_share),
            "cross-entropy and Jacobian, double backward": lambda: self._autograd(self._frobenius),
            "WideMargin, CUDA graph": lambda: self._recorded(self._autograd(self._wide)),
            "WideMargin, share 1/8, CUDA graph": lambda: self._recorded(self._autograd(self._wide_share)),
            "Jacobian regularizer": lambda: self._autograd(self._jacobian),
            "Jacobian regularizer, a backward per class": lambda: self._autograd(self._jacobian_per_class),
            "cross-entropy, CUDA graph": lambda: self._recorded(self._cross_entropy),
            "margin_backward, CUDA graph": lambda: self._recorded(self._margin(name, one, is_replayed=True)),
            "with cross-entropy, CUDA graph": lambda: self._recorded(self._margin(name, joined, is_replayed=True)),
        }
        return steps[name]()

    def _loss(self, **settings: object) -> MarginLoss:
        return MarginLoss(at=self.case.places, **settings)  # type: ignore[arg-type]

    def _probed(self, **settings: object) -> MarginLoss:
        """A loss at the input only: every further place would need its own pass per probe direction."""
        statistics = "frozen" if self.mixes else "coupled"
        return MarginLoss(at=self.case.places[:1], classes="all", statistics=statistics, **settings)  # type: ignore[arg-type]

    def _cast(self) -> torch.autocast:
        return torch.autocast(self.x.device.type, torch.bfloat16, enabled=self.case.precision == "bf16")

    def _cross_entropy(self) -> None:
        with self._cast():
            value = nn.functional.cross_entropy(scores_of(self.network(self.x)), self.y)
        value.backward()

    def _margin(self, name: str, loss: MarginLoss, *, is_replayed: bool = False) -> Step:
        def step() -> None:
            with self._cast():
                done = margin_backward(self.network, loss, self.x, self.y, is_replayed=is_replayed)
            self.reports[name] = repr(done)

        return step

    def _autograd(self, values: Callable[[], Tensor]) -> Step:
        def step() -> None:
            with self._cast():
                value = values().mean()
            value.backward()

        return step

    def _per_place(self, loss: MarginLoss) -> Tensor:
        with places.watch(self.network, loss.at, statistics=loss.statistics) as at:
            scores = scores_of(self.network(self.x)).float()
        difference = differences(scores, self.y, classes=loss.classes)
        slopes = {}
        for name in loss.at:
            columns = [
                torch.autograd.grad(d.sum(), at[name], retain_graph=True)[0].float().flatten(1).norm(dim=1)
                for d in difference.unbind(dim=1)
            ]
            slopes[name] = torch.stack(columns, dim=1)
        return loss.penalize(Linearization(difference=difference, slopes=slopes))

    def _one_by_one(self, loss: MarginLoss) -> Tensor:
        """One backward pass per class for all places."""
        with places.watch(self.network, loss.at, statistics=loss.statistics) as at:
            scores = scores_of(self.network(self.x)).float()
        difference = differences(scores, self.y, classes=loss.classes)
        columns: dict[str, list[Tensor]] = {name: [] for name in at}
        for d in difference.unbind(dim=1):
            for name, gradient in at.gradients(d).items():
                columns[name].append(gradient.float().flatten(1).norm(dim=1))
        slopes = {name: torch.stack(column, dim=1) for name, column in columns.items()}
        return loss.penalize(Linearization(difference=difference, slopes=slopes))

    def _wide(self) -> Tensor:
        return WideMargin()(self.network, self.x, self.y)

    def _wide_share(self) -> Tensor:
        return WideMargin(share=1 / 8)(self.network, self.x, self.y)

    def _frobenius(self) -> Tensor:
        """With one forward pass for both."""
        loss = JacobianFrobenius(weight=0.03)
        with places.watch(self.network, (loss.at,), statistics=loss.statistics) as at:
            scores = scores_of(self.network(self.x))
        return nn.functional.cross_entropy(scores, self.y) + loss.of(scores, self.y, at=at)

    def _jacobian(self) -> Tensor:
        return Jacobian(weight=1.0, form="sum")(self.network, self.x, self.y)

    def _jacobian_per_class(self) -> Tensor:
        """The same values by one backward pass per class with `create_graph` (cf. Hoffman et al. 2019)."""
        x = self.x.clone().requires_grad_()
        scores = scores_of(self.network(x))
        (classifier,) = [module for name, module in self.network.named_modules() if name == "output"]
        total = scores.new_zeros(len(x))
        for c in range(scores.shape[1]):
            (gradient,) = torch.autograd.grad(scores[:, c].sum(), x, retain_graph=True, create_graph=True)
            total = total + gradient.flatten(1).norm(dim=1) / classifier.weight[c].norm()
        return total

    def _recorded(self, step: Step) -> Step:
        """Record the step as a CUDA graph."""

        def whole() -> None:
            self.network.zero_grad(set_to_none=True)
            step()

        with side_stream(self.x.device):
            for _ in range(WARM):
                whole()
        return capture(whole)
