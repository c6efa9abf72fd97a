"""Stacked networks of one architecture: parameters `[networks, ...]`, and one forward pass for all."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import vmap

from widemargin import places
from widemargin._autograd.batch_statistics import KeptStatistics
from widemargin.modules import evaluating, mixing_modules, scores_of
from widemargin.places import INPUT, BatchStatistics
from widemargin.population.conv_matmul import Convolutions
from widemargin.population.layers import check_layers, explained, freeze, stacked_layers, with_own_dropout
from widemargin.regularizers.weights import watch_classifier


class Stack:
    """`networks` stacked: `parameters[name]` and `buffers[name]` hold that tensor of every network, `[networks, ...]`.

    The networks themselves are copied, and not changed; `write_to` copies a trained network back.
    """

    def __init__(
        self, networks: Sequence[nn.Module], device: torch.device, *, convolutions: Convolutions = "grouped"
    ) -> None:
        check_alike(networks)
        self.device, self.convolutions = device, convolutions
        # Passes use the structure of this network; its own weights are never used.
        self.base = copy.deepcopy(networks[0]).to(device)
        if not self.base.training:
            self.base.train()
        self.dropouts = with_own_dropout(self.base)
        frozen = {name for name, p in networks[0].named_parameters() if not p.requires_grad}
        self.parameters = {
            name: _stacked([network.get_parameter(name) for network in networks], device).requires_grad_(
                name not in frozen
            )
            for name, _ in networks[0].named_parameters()
        }
        self.buffers = {
            name: _stacked([network.get_buffer(name) for network in networks], device)
            for name, _ in networks[0].named_buffers()
        }
        self._owners = list(_owners(self.base))
        self._shapes: dict[tuple[object, ...], dict[str, Tensor]] = {}
        self._classifier: str | None = None
        self.last_scores = torch.empty(0, device=device)

    def __len__(self) -> int:
        return len(next(iter(self.parameters.values())))

    def trained(self) -> dict[str, Tensor]:
        """The parameters that require gradients."""
        return {name: value for name, value in self.parameters.items() if value.requires_grad}

    def keep(self, index: Tensor) -> None:
        """Keep the networks at `index` alone."""
        self.parameters = {
            name: value.detach()[index].requires_grad_(value.requires_grad) for name, value in self.parameters.items()
        }
        self.buffers = {name: value[index] for name, value in self.buffers.items()}

    def write_to(self, number: int, network: nn.Module) -> None:
        """Copy the weights and buffers of network `number` into `network`."""
        with torch.no_grad():
            for name, parameter in network.named_parameters():
                parameter.copy_(self.parameters[name][number])
            for name, buffer in network.named_buffers():
                buffer.copy_(self.buffers[name][number])

    def scores(
        self,
        x: Tensor,
        *,
        at: Sequence[str] = (),
        statistics: BatchStatistics = "coupled",
        keys: Tensor | None = None,
        kept: KeptStatistics | None = None,
    ) -> tuple[Tensor, StackedAt]:
        """The scores of all networks, flattened to `[networks·batch, ...]`, and the places watched on the way.

        `x` is `[networks, batch, ...]`, a batch for every network; `keys` `[networks]` are those of the dropout masks,
        None for no dropout. The batch statistics of the pass are recorded in `kept`.
        """
        like = self._like(x, at) if at else {}
        zeros = {  # a scalar expanded, so no memory, as in `places`
            name: torch.zeros((), dtype=one.dtype, device=self.device).expand(len(self), *one.shape).requires_grad_()
            for name, one in like.items()
        }
        watched = StackedAt(zeros)

        def forward(
            parameters: dict[str, Tensor],
            buffers: dict[str, Tensor],
            zeros: dict[str, Tensor],
            keys: Tensor | None,
            x: Tensor,
        ) -> Tensor:
            with self._as(parameters, buffers, keys), _places(self.base, zeros):
                return scores_of(self.base(x + zeros[INPUT] if INPUT in zeros else x))

        with stacked_layers(self.base, self.convolutions), ExitStack() as stack:
            if at and statistics == "frozen":
                route = watched.frozen_route()
                for name in mixing_modules(self.base):
                    stack.callback(freeze(self.base.get_submodule(name), route).remove)
            if kept is not None:
                stack.enter_context(kept.recorded(watched.frozen_route()))
            dims = (0, 0, 0, None if keys is None else 0, 0)
            with explained():
                f = vmap(forward, in_dims=dims)(self.parameters, self.buffers, zeros, keys, x)
        f = f.flatten(0, 1)
        self.last_scores = f.detach()
        return f, watched

    @contextmanager
    def network(self, number: int, key: Tensor | None = None) -> Iterator[nn.Module]:
        """Network `number` as an ordinary module inside the `with` block, whose gradients arrive in the stack."""
        alone = len(self) == 1  # then a view suffices; the gradient of an index would be copied
        parameters = {k: v.view(v.shape[1:]) if alone else v[number] for k, v in self.parameters.items()}
        with self._as(parameters, {k: v[number] for k, v in self.buffers.items()}, key):
            yield self.base

    def classifier(self, x: Tensor) -> Tensor:
        """The matrices of the last linear layer, `[networks, classes, features]`."""
        if self._classifier is None:
            with evaluating(self.base), watch_classifier(self.base) as seen, torch.no_grad():
                seen.matrix(self.base, scores_of(self.base(x[0])))
            layer = self.base.get_submodule(str(seen.name))
            self._classifier = next(n for n, p in self.base.named_parameters() if p is layer.weight)
        return self.parameters[self._classifier]

    @contextmanager
    def _as(
        self, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor], key: Tensor | None
    ) -> Iterator[None]:
        """`base` with these tensors in the place of its own, and its dropout layers at the start of their streams."""
        own = [(tensors, attribute, tensors[attribute]) for tensors, attribute, _ in self._owners]
        given = {**parameters, **buffers}
        try:
            for tensors, attribute, name in self._owners:
                tensors[attribute] = given[name]
            for dropout in self.dropouts:
                dropout.start(key)
            yield
            for tensors, attribute, name in self._owners:
                if name in buffers and tensors[attribute] is not given[name]:  # assigned instead of changed in place
                    given[name].copy_(tensors[attribute])
        finally:
            for tensors, attribute, tensor in own:
                tensors[attribute] = tensor
            for dropout in self.dropouts:
                dropout.start(None)

    def _like(self, x: Tensor, at: Sequence[str]) -> dict[str, Tensor]:
        """Meta tensors of the shapes of one network's batch at every place, from one forward pass; cached."""
        key = (tuple(x.shape[1:]), tuple(at))
        if key not in self._shapes:
            with evaluating(self.base), places.watch(self.base, at, statistics="coupled") as seen:
                self.base(x[0])
            self._shapes[key] = {name: zero.detach().to("meta") for name, zero in seen.items()}
        return self._shapes[key]


class StackedAt(places.At):
    """The places of a stacked forward pass, whose gradients are flattened to `[networks·batch, ...]`.

    Networks do not mix, so one backward pass serves them all.
    """

    _sample_dims = 2

    def __init__(self, zeros: Mapping[str, Tensor]) -> None:
        super().__init__(list(zeros))
        self._zeros.update(zeros)


def check_alike(networks: Sequence[nn.Module]) -> None:
    """Raise unless there are networks, all of one architecture, and of layers that can be stacked."""
    if not networks:
        raise ValueError("networks is empty, expected at least one network")
    first = None
    for number, network in enumerate(networks):
        if not isinstance(network, nn.Module):
            raise TypeError(f"networks has a {type(network).__name__} at index {number}, expected nn.Modules")
        check_layers(network)
        # The printed form holds strides, rates of dropout and kinds of activations.
        form = str(network), [(k, v.shape, v.dtype) for k, v in (*network.named_parameters(), *network.named_buffers())]
        first = first or form
        if form != first:
            raise ValueError(
                f"networks has another architecture at index {number} than at index 0, expected one for all"
            )
        if _in_evaluation(network) != _in_evaluation(networks[0]):
            raise ValueError(
                f"networks has other modules in evaluation mode at index {number} than at index 0, expected the same"
            )
    if not any(parameter.requires_grad for parameter in networks[0].parameters()):
        raise ValueError("networks have no parameter that requires a gradient, so there is nothing to train")


def _in_evaluation(network: nn.Module) -> list[str]:
    """Names of the modules that stay in evaluation mode; none where the whole network is in it, which is trained."""
    return [name for name, module in network.named_modules() if not module.training] if network.training else []


def _stacked(tensors: Sequence[Tensor], device: torch.device) -> Tensor:
    return torch.stack([tensor.detach().to(device) for tensor in tensors])


def _owners(network: nn.Module) -> Iterator[tuple[dict[str, Any], str, str]]:
    """(dictionary of the module, key, name) of each parameter and buffer; several for a shared one."""
    names = {id(tensor): name for name, tensor in (*network.named_parameters(), *network.named_buffers())}
    for module in network.modules():
        for tensors in (module._parameters, module._buffers):
            for attribute, tensor in tensors.items():
                if tensor is not None:
                    yield tensors, attribute, names[id(tensor)]


@contextmanager
def _places(base: nn.Module, zeros: Mapping[str, Tensor]) -> Iterator[None]:
    """`base` with `zeros` added to the outputs of its modules, while one forward pass is traced."""
    known = dict(base.named_modules())
    with ExitStack() as stack:
        for name in (name for name in zeros if name != INPUT):

            def add(_: nn.Module, __: object, output: object, name: str = name) -> Tensor:
                if not isinstance(output, Tensor):
                    raise TypeError(f"at has {name!r}, which returns a {type(output).__name__}, expected a tensor")
                return output + zeros[name]

            stack.callback(known.get(name, base).register_forward_hook(add).remove)
        yield
