"""All figures of the paper, made once a session, with very short training."""

from sudonet.study.figures import make
from tests.once import made_once

SHARE = 0.002


def made(tmp_path_factory):
    """Their folder, for reading."""
    return made_once(tmp_path_factory, "figures", lambda folder: make(folder, share=SHARE))
