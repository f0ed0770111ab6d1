"""How much of a trained relu network's accuracy convert keeps, without and with calibration.

Handwritten digits of scikit-learn, 1,200 to train and 597 to test, mean over three seeds. Nothing
is trained after the conversion.
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from timing import table
from torch import nn

import sudonet

SEEDS = 3
UNITS = ("sudo-16-relu6", "r-sudo-16-full", "sudo-16")


def dense() -> nn.Sequential:
    layers = [nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)]
    return nn.Sequential(nn.Flatten(), *layers)


def convolutions(normed: bool = False) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in ((1, 16), (16, 32), (32, 32)):
        layers.append(nn.Conv2d(before, after, 3, padding=1))
        layers += [nn.BatchNorm2d(after)] if normed else []
        layers += [nn.ReLU()]
    layers.insert(len(layers) // 3 * 2, nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, 10))


NETWORKS = {
    "dense, pixels 0 to 1": (dense, 1.0),
    "dense, pixels 0 to 1/16": (dense, 1 / 16),
    "convolutions, pixels 0 to 1": (convolutions, 1.0),
    "convolutions, pixels 0 to 255": (convolutions, 255.0),
    "convolutions with BatchNorm, pixels 0 to 1": (lambda: convolutions(normed=True), 1.0),
}


def trained(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> nn.Module:
    optimiser = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(30):
        for batch in torch.randperm(len(x)).split(64):
            loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return model.eval()


def main() -> str:
    torch.set_num_threads(1)
    images, digits = (torch.tensor(a) for a in load_digits(return_X_y=True))
    torch.manual_seed(1)  # not 0, the split on which ways to choose the factor were compared
    order = torch.randperm(len(images))
    rows = []
    for name, (make, brightest) in NETWORKS.items():
        x = images.float().reshape(-1, 1, 8, 8)[order] * (brightest / 16)
        y = digits[order]
        found = []
        for seed in range(10, 10 + SEEDS):
            torch.manual_seed(seed)
            model = trained(make(), x[:1200], y[:1200])
            ways: list[dict[str, object]] = [{"to": unit} for unit in UNITS]
            for levels in (16, 8, 4):
                ways += [{"levels": levels}] if levels != 16 else []
                ways.append({"levels": levels, "calibration": x[:256]})
            models = [model, *(sudonet.convert(model, copy=True, **way).model for way in ways)]
            with torch.no_grad():
                right = [(m(x[1200:]).argmax(1) == y[1200:]).float().mean() for m in models]
            found.append(torch.stack(right) * 100)
        means = torch.stack(found).mean(0).tolist()
        before, relu6, full, tanh, *others = (f"{mean:.1f}" for mean in means)
        rows.append([name, before, tanh, full, relu6, *others])
    heads = ["", "relu", "sudo-16", "r-sudo-16-full", "levels=16", "calibrated"]
    return table([*heads, "levels=8", "calibrated", "levels=4", "calibrated"], rows)


if __name__ == "__main__":
    print(main())
