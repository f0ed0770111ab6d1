"""The tests, a folder for each room of the package."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
"""The project's folder."""
