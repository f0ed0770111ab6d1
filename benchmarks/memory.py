"""What a training step keeps and costs with units and layers apart, lean, or as codes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from timing import compare, table
from torch import nn

import sudonet

BATCH, WIDTH, DEPTH = 1024, 512, 6
IMAGES, CHANNELS, SIDE = 32, 32, 32


def dense(memory: str) -> nn.Sequential:
    layers: list[nn.Module] = []
    for _ in range(DEPTH):
        layers += [nn.Linear(WIDTH, WIDTH), nn.Tanh()]
    return converted(nn.Sequential(*layers, nn.Linear(WIDTH, 10)), memory)


def convolutions(memory: str) -> nn.Sequential:
    layers: list[nn.Module] = []
    for _ in range(DEPTH):
        layers += [nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1), nn.Tanh()]
    return converted(nn.Sequential(*layers, nn.Conv2d(CHANNELS, 10, 1)), memory)


def converted(model: nn.Sequential, memory: str) -> nn.Sequential:
    if memory != "tanh":
        sudonet.convert(model, "sudo-16", memory=memory)
    return model


def kept_bytes(model: nn.Module, x: torch.Tensor) -> int:
    known = {t.untyped_storage().data_ptr() for t in (*model.parameters(), x)}
    kept: dict[int, torch.Tensor] = {}

    def pack(t: torch.Tensor) -> torch.Tensor:
        kept[t.untyped_storage().data_ptr()] = t
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        y = model(x)
    size = sum(t.untyped_storage().nbytes() for p, t in kept.items() if p not in known)
    del y
    return size


def rows(kind: str, make: Callable[[str], nn.Sequential], x: torch.Tensor) -> list[list[str]]:
    torch.manual_seed(0)
    models = {name: make(name) for name in ("tanh", "plain", "lean", "codes")}

    def step(model: nn.Module) -> None:
        model.zero_grad()
        model(x).square().mean().backward()

    times = compare({n: lambda m=m: step(m) for n, m in models.items()}, seconds=15)
    names = {"tanh": "nn.Tanh", "plain": 'SUDO-16, memory="plain"'}
    return [
        [
            kind,
            names.get(name, f'SUDO-16, memory="{name}"'),
            f"{kept_bytes(model, x) / (x.numel() * DEPTH):.2f}",
            f"{times[name].over(times['tanh']):.2f}",
        ]
        for name, model in models.items()
    ]


def main() -> str:
    torch.set_num_threads(1)
    both = rows("linear", dense, torch.randn(BATCH, WIDTH))
    both += rows("convolution", convolutions, torch.randn(IMAGES, CHANNELS, SIDE, SIDE))
    heads = ["layers", "units", "bytes kept an element", "time of a step over nn.Tanh"]
    return table(heads, both)


if __name__ == "__main__":
    print(main())
