"""Every family of units, for tests that go through them all."""

FAMILIES = [
    "sudo-{}",
    "sudo-{}-sigmoid",
    "sudo-{}-relu6",
    "sudo-{}-hardtanh",
    "r-sudo-{}",
    "r-sudo-{}-full",
    "r-sudo-{}-relu6",
    "r-sudo-{}-hardtanh",
    "r-sudo-{}-hardtanh-full",
]
