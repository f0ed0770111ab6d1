"""Builds the C core where a compiler exists; without one the package installs all the same."""

from pathlib import Path

from setuptools import Extension, setup

sources = sorted(str(path) for path in Path("csrc").rglob("*.c"))
headers = sorted(str(path) for path in Path("csrc").rglob("*.h"))

setup(
    ext_modules=[
        Extension(
            "sudonet.native._core",
            sources=sources,
            depends=headers,
            include_dirs=["csrc"],
            optional=True,
            # -O2 does not vectorise; contraction would change what is rounded.
            extra_compile_args=[
                "-std=gnu11",
                "-O3",
                "-ffp-contract=off",
                "-fno-math-errno",
                "-fno-trapping-math",
                "-fvisibility=hidden",
                "-Wno-unknown-pragmas",
            ],
            libraries=["m", "pthread"],
        )
    ]
)
