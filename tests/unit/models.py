"""Small networks in the shape of well-known ones, for the tests of convert."""

import torch
from torch import nn


class BasicBlock(nn.Module):
    """A residual block whose one ReLU is called twice."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(y)) + x)


class ResNet(nn.Module):
    def __init__(self, blocks: int = 2, width: int = 4) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3), nn.BatchNorm2d(width), nn.ReLU())
        self.blocks = nn.Sequential(*(BasicBlock(width) for _ in range(blocks)))
        self.pool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(width, 5)

    def forward(self, x):
        return self.fc(torch.flatten(self.pool(self.blocks(self.stem(x))), 1))


class SqueezeExcite(nn.Module):
    def __init__(self, width: int, gate: nn.Module) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc1, self.act = nn.Conv2d(width, 2, 1), nn.ReLU()
        self.fc2, self.gate = nn.Conv2d(2, width, 1), gate

    def forward(self, x):
        return x * self.gate(self.fc2(self.act(self.fc1(self.pool(x)))))


class InvertedResidual(nn.Module):
    """A block of MobileNetV3: depthwise convolution, squeeze-excite, shortcut."""

    def __init__(self, width: int, gate: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, 2 * width, 1),
            nn.ReLU6(),
            nn.Conv2d(2 * width, 2 * width, 3, padding=1, groups=2 * width),
            nn.ReLU(),
            SqueezeExcite(2 * width, gate),
            nn.Conv2d(2 * width, width, 1),
        )

    def forward(self, x):
        return x + self.body(x)


class MobileNet(nn.Module):
    def __init__(self, gate: nn.Module, width: int = 4) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, width, 3), InvertedResidual(width, gate))
        self.head = nn.Sequential(nn.Linear(width, 1), nn.Sigmoid())

    def forward(self, x):
        return self.head(self.features(x).mean((2, 3))).squeeze(1)


class GatedCell(nn.Module):
    """WaveNet's gated activation: tanh is the signal, the sigmoid the gate."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.out = nn.Linear(3, 4), nn.Linear(3, 4), nn.Linear(4, 3)
        self.tanh, self.sigmoid = nn.Tanh(), nn.Sigmoid()

    def forward(self, x):
        return self.out(self.tanh(self.a(x)) * self.sigmoid(self.b(x)))


class ReGLU(nn.Module):
    """A gated linear unit with a ReLU as its gate."""

    def __init__(self, act: nn.Module) -> None:
        super().__init__()
        self.a, self.b, self.out, self.act = nn.Linear(3, 4), nn.Linear(3, 4), nn.Linear(4, 3), act

    def forward(self, x):
        return self.out(self.act(self.a(x)).mul(self.b(x)))


class Actor(nn.Module):
    """A policy whose output is scaled by buffers and numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.squash = (
            nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)),
            nn.Tanh(),
        )
        self.register_buffer("scale", torch.tensor([2.0, 3.0]))

    def forward(self, x):
        action = self.squash(self.body(x)) * self.scale + 0.5
        return {"action": action.reshape(-1, 2)}
