"""All figures of the paper, made once a session, with very short training."""

from sudonet.study.figures import make

SHARE = 0.002


def made(tmp_path_factory):
    """Their folder, for reading. What is in it is not made again."""
    folder = tmp_path_factory.getbasetemp() / "made" / "figures"
    make(folder, share=SHARE)
    return folder
