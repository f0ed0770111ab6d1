"""What to train: a network, its loss and optimiser, and the seed of all that is random."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from sudonet.units import activation, activation_name

Weights: TypeAlias = list[tuple[NDArray[np.float32], NDArray[np.float32]]]
"""Weight matrix (out x in x ...) and bias of every layer, first to last."""

OUTPUTS = ("tanh", "linear", "softmax")
LOSSES = ("squared_error", "cross_entropy")
OPTIMISERS = ("adam", "momentum")
INITIAL = ("glorot", "glorot-normal", "torch")

_WEIGHTS, _ORDER = 0, 1  # independent random streams of one seed


@dataclass(frozen=True, kw_only=True)
class Training:
    """How a network is trained, fully connected or convolutional.

    Parameters
    ----------
    activation
        Name of the hidden layers' activation, or one name for each of them.
    output
        ``"tanh"``, ``"linear"`` or ``"softmax"``. The softmax belongs to the loss, as in
        PyTorch: predictions and modules give the logits.
    loss
        ``"squared_error"``, the mean over samples and outputs, or ``"cross_entropy"``,
        which goes with softmax.
    optimiser
        ``"adam"`` (PyTorch's defaults) or ``"momentum"``: SGD with ``momentum``.
    learning_rate, momentum
        As in torch.optim.
    initial
        ``"glorot"``: Glorot's uniform weights and zero biases; ``"glorot-normal"``: normal
        weights of the same variance; ``"torch"``: both as nn.Linear draws them.
    steps
        Minibatches to train on.
    batch_size
        Samples of a minibatch. The last one of an epoch may be smaller.
    seed
        Initial weights and the order of samples come from it alone: networks with the
        same seed and shape start alike and see the same minibatches.
    """

    activation: str | tuple[str, ...] = "tanh"
    output: str = "linear"
    loss: str = "squared_error"
    optimiser: str = "adam"
    learning_rate: float = 0.001
    momentum: float = 0.9
    initial: str = "glorot"
    steps: int
    batch_size: int = 100
    seed: int = 0

    def _check(self, hidden: int) -> None:
        for name, allowed in (
            ("output", OUTPUTS),
            ("loss", LOSSES),
            ("optimiser", OPTIMISERS),
            ("initial", INITIAL),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}"
                )
        if (self.output == "softmax") != (self.loss == "cross_entropy"):
            raise ValueError(
                "softmax and cross_entropy go together, "
                f"got output={self.output!r} and loss={self.loss!r}"
            )
        names = self.activation
        if isinstance(names, str):
            names = (names,) * hidden
        if not isinstance(names, tuple) or len(names) != hidden:
            raise ValueError(
                f"activation must be a name or a tuple of {hidden} names, one for each hidden "
                f"layer, got {self.activation!r}"
            )
        object.__setattr__(
            self, "activation", tuple(activation_name(activation(name)) for name in names)
        )
        for name, least in (("steps", 0), ("batch_size", 1), ("seed", 0)):
            whole(name, getattr(self, name), least)
        rate, momentum = self.learning_rate, self.momentum
        if not isinstance(rate, Real) or not math.isfinite(rate) or rate <= 0:
            raise ValueError(f"learning_rate must be a number > 0, got {rate!r}")
        if not isinstance(momentum, Real) or not 0 <= momentum < 1:
            raise ValueError(f"momentum must be a number in [0, 1), got {momentum!r}")

    @property
    def activations(self) -> tuple[str, ...]:
        """The canonical name of every hidden layer's activation."""
        assert isinstance(self.activation, tuple)
        return self.activation


@dataclass(frozen=True, kw_only=True)
class Spec(Training):
    """A fully connected network and how to train it.

    Parameters
    ----------
    sizes
        Inputs, units of each hidden layer, outputs.

    Examples
    --------
    >>> spec = Spec(sizes=(2, 50, 50, 1), activation="SUDO-8", steps=100)
    >>> spec.activations, spec.parameters
    (('sudo-8', 'sudo-8'), 2751)
    """

    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        sizes = tuple(whole("a layer size", size, 1) for size in self.sizes)
        if len(sizes) < 2:
            raise ValueError(f"sizes must name inputs and outputs at least, got {self.sizes!r}")
        object.__setattr__(self, "sizes", sizes)
        self._check(len(sizes) - 2)

    @property
    def parameters(self) -> int:
        """How many weights and biases there are."""
        return sum((i + 1) * o for i, o in pairwise(self.sizes))

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Of one example."""
        return self.sizes[:1]

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Of one example."""
        return self.sizes[-1:]

    def module(self) -> nn.Sequential:
        """The network as an ordinary module with its initial weights."""
        layers: list[nn.Module] = []
        for number, (i, o) in enumerate(pairwise(self.sizes)):
            layers += [nn.Linear(i, o), *_activation_after(self, number, len(self.sizes) - 2)]
        return with_weights(nn.Sequential(*layers), initial_weights(self))


@dataclass(frozen=True)
class Convolution:
    """A convolutional layer; ``transposed`` makes the image larger instead of smaller."""

    channels: int
    kernel: int = 3
    stride: int = 1
    transposed: bool = False

    def __post_init__(self) -> None:
        for name in ("channels", "kernel", "stride"):
            whole(name, getattr(self, name), 1)
        if self.kernel % 2 == 0:
            raise ValueError(
                f"kernel must be odd, got {self.kernel}: an even one cannot be padded equally "
                "on both sides"
            )

    def module(self, inputs: int) -> nn.Module:
        """The layer for ``inputs`` channels."""
        padding = self.kernel // 2
        if self.transposed:
            return nn.ConvTranspose2d(
                inputs, self.channels, self.kernel, self.stride, padding, self.stride - 1
            )
        return nn.Conv2d(inputs, self.channels, self.kernel, self.stride, padding)


@dataclass(frozen=True, kw_only=True)
class ConvolutionalSpec(Training):
    """A convolutional network and how to train it: one at a time, in PyTorch.

    Parameters
    ----------
    input_shape
        Channels, height and width.
    layers
        Its layers; the last one is the output.

    Examples
    --------
    >>> spec = ConvolutionalSpec(
    ...     input_shape=(3, 32, 32),
    ...     layers=(Convolution(8, stride=2), Convolution(3, stride=2, transposed=True)),
    ...     activation="sudo-16",
    ...     output="tanh",
    ...     steps=10,
    ... )
    >>> spec.output_shape, spec.parameters
    ((3, 32, 32), 443)
    """

    input_shape: tuple[int, int, int]
    layers: tuple[Convolution, ...]

    def __post_init__(self) -> None:
        shape = tuple(whole("a size of input_shape", size, 1) for size in self.input_shape)
        object.__setattr__(self, "input_shape", shape)
        object.__setattr__(self, "layers", tuple(self.layers))
        if len(self.input_shape) != 3 or not self.layers:
            raise ValueError(
                "a convolutional network needs input_shape (channels, height, width) and layers, "
                f"got {self.input_shape!r} and {self.layers!r}"
            )
        self._check(len(self.layers) - 1)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Channels, height and width of one example."""
        _, height, width = self.input_shape
        for layer in self.layers:
            height, width = (
                n * layer.stride if layer.transposed else -(-n // layer.stride)
                for n in (height, width)
            )
        return self.layers[-1].channels, height, width

    @property
    def parameters(self) -> int:
        """How many weights and biases there are."""
        channels = (self.input_shape[0], *(layer.channels for layer in self.layers))
        return sum(
            (i * layer.kernel**2 + 1) * layer.channels
            for i, layer in zip(channels, self.layers, strict=False)
        )

    def module(self) -> nn.Sequential:
        """The network as an ordinary module with its initial weights."""
        modules: list[nn.Module] = []
        inputs = self.input_shape[0]
        for number, layer in enumerate(self.layers):
            modules += [
                layer.module(inputs),
                *_activation_after(self, number, len(self.layers) - 1),
            ]
            inputs = layer.channels
        return with_weights(nn.Sequential(*modules), initial_weights(self))


AnySpec: TypeAlias = Spec | ConvolutionalSpec


def initial_weights(spec: AnySpec) -> Weights:
    """The weights that ``spec.seed`` draws; they do not depend on the activation."""
    generator = np.random.default_rng([spec.seed, _WEIGHTS])
    shapes: list[tuple[tuple[int, ...], int, int]] = []  # of the weights; inputs, outputs
    if isinstance(spec, Spec):
        shapes += [((o, i), i, o) for i, o in pairwise(spec.sizes)]
    else:
        inputs = spec.input_shape[0]
        for layer in spec.layers:
            ends = (inputs, layer.channels) if layer.transposed else (layer.channels, inputs)
            shapes.append(((*ends, layer.kernel, layer.kernel), inputs, layer.channels))
            inputs = layer.channels
    weights: Weights = []
    for shape, inputs, outputs in shapes:
        area = math.prod(shape[2:])
        if spec.initial == "torch":  # counts a transposed kernel's first axis as outputs
            bound = 1 / math.sqrt(area * shape[1])
        else:
            bound = math.sqrt(6 / (area * (inputs + outputs)))
        if spec.initial == "glorot-normal":
            matrix = generator.normal(0, bound / math.sqrt(3), shape).astype(np.float32)
        else:
            matrix = generator.uniform(-bound, bound, shape).astype(np.float32)
        bias = generator.uniform(-bound, bound, outputs).astype(np.float32)
        weights.append((matrix, bias if spec.initial == "torch" else np.zeros_like(bias)))
    return weights


class Order:
    """The order of samples, minibatch by minibatch; every epoch is shuffled anew.

    Examples
    --------
    >>> order, counts = Order(seed=0, samples=5, batch_size=2).take(4)
    >>> order.shape, counts.tolist(), sorted(order[:3].ravel()[:5].tolist())
    ((4, 2), [2, 2, 1, 2], [0, 1, 2, 3, 4])
    """

    def __init__(self, *, seed: int, samples: int, batch_size: int) -> None:
        self._generator = np.random.default_rng([seed, _ORDER])
        self._samples, self._batch = samples, min(batch_size, samples)
        self._waiting = np.empty((0, self._batch), np.int32)
        self._taken = 0

    @property
    def steps_an_epoch(self) -> int:
        return -(-self._samples // self._batch)

    def take(self, steps: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Samples (steps x batch), and the size of each minibatch."""
        rows = [self._waiting]
        while sum(map(len, rows)) < steps:
            epoch = np.zeros(self.steps_an_epoch * self._batch, np.int32)
            epoch[: self._samples] = self._generator.permutation(self._samples)
            rows.append(epoch.reshape(-1, self._batch))
        taken, self._waiting = np.split(np.concatenate(rows), [steps])
        place = (self._taken + np.arange(steps)) % self.steps_an_epoch
        self._taken += steps
        rest = self._samples - (self.steps_an_epoch - 1) * self._batch
        counts = np.where(place == self.steps_an_epoch - 1, rest, self._batch)
        return np.ascontiguousarray(taken), counts.astype(np.int32)


def _activation_after(spec: Training, layer: int, last: int) -> list[nn.Module]:
    if layer < last:
        return [activation(spec.activations[layer])]
    return [nn.Tanh()] if spec.output == "tanh" else []


def with_weights(model: nn.Sequential, weights: Weights) -> nn.Sequential:
    """``model`` with ``weights`` written into its layers."""
    layers: list[Any] = [module for module in model if hasattr(module, "weight")]
    with torch.no_grad():
        for layer, (matrix, bias) in zip(layers, weights, strict=True):
            layer.weight.copy_(torch.from_numpy(matrix))
            layer.bias.copy_(torch.from_numpy(bias))
    return model


def whole(name: str, value: object, least: int) -> int:
    """``value`` if it is an integer >= ``least``, else a ValueError."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"{name} must be an integer >= {least}, got {value!r}")
    return int(value)
