"""What a training step keeps and costs with units and linear layers apart, lean, or as codes."""

from __future__ import annotations

import torch
from timing import compare, table
from torch import nn

import sudonet

BATCH, WIDTH, DEPTH = 1024, 512, 6


def network(memory: str) -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(DEPTH):
        layers += [nn.Linear(WIDTH, WIDTH), nn.Tanh()]
    model = nn.Sequential(*layers, nn.Linear(WIDTH, 10))
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


def main() -> str:
    torch.set_num_threads(1)
    x = torch.randn(BATCH, WIDTH)
    models = {name: network(name) for name in ("tanh", "plain", "lean", "codes")}

    def step(model: nn.Module) -> None:
        model.zero_grad()
        model(x).square().mean().backward()

    times = compare({n: lambda m=m: step(m) for n, m in models.items()}, seconds=15)
    names = {"tanh": "nn.Tanh", "plain": 'SUDO-16, memory="plain"'}
    rows = [
        [
            names.get(name, f'SUDO-16, memory="{name}"'),
            f"{kept_bytes(model, x) / (BATCH * WIDTH * DEPTH):.2f}",
            f"{times[name].over(times['tanh']):.2f}",
        ]
        for name, model in models.items()
    ]
    return table(["units", "bytes kept an element", "time of a step over nn.Tanh"], rows)


if __name__ == "__main__":
    print(main())
