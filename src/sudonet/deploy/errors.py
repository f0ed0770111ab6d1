"""Why a model cannot be compiled, and what to do about it."""

from __future__ import annotations


class CompileError(ValueError):
    """A model cannot become an integer network; the message names the module and a way out."""


LAYERS = (
    "Linear, Conv1d, Conv2d, ConvTranspose2d, BatchNorm, Flatten, max or average pooling and SUDO "
    "or R-SUDO units"
)

ACTIVATIONS = (
    *("relu", "relu_", "sigmoid", "tanh_", "hardtanh", "hardtanh_", "relu6", "leaky_relu", "elu"),
    *("gelu", "silu", "silu_", "hardswish", "hardsigmoid", "softplus", "mish", "selu", "clamp"),
)


def is_recurrent(name: str) -> bool:
    """Whether an operator is that of a recurrent layer or cell, such as ``aten.lstm.input``."""
    return name.startswith(("aten.lstm", "aten.gru", "aten.rnn_"))


def recurrent(where: str) -> CompileError:
    """The error for a recurrent layer."""
    return CompileError(
        f"{where} cannot be compiled: it is recurrent, and an integer network is a chain of "
        f"{LAYERS}; a Conv1d over time is the nearest to it"
    )


def cannot_be_compiled(where: str, name: str, *, last: bool) -> CompileError:
    """The error for an operator that no layer stands for.

    Parameters
    ----------
    where
        The module, for people.
    name
        Of the operator, such as ``aten.relu``.
    last
        Whether nothing follows it.
    """
    plain = name.removeprefix("aten.").split(".")[0]
    found = f"{where} cannot be compiled ({name})"
    if last and plain == "sigmoid":
        return CompileError(
            f"{found}: leave it out at the end and take the scores; a sigmoid is above 0.5 where "
            "its score is above 0"
        )
    if last and plain == "log_softmax":
        return CompileError(
            f"{found}: leave it out at the end, or use Softmax; the class with the largest score "
            "is the same"
        )
    if last and plain in ACTIVATIONS:
        return CompileError(f"{found}: leave it out at the end, and apply it to the scores")
    converts = "; sudonet.convert replaces other activations by units"
    return CompileError(f"{found}: use {LAYERS}{converts if plain in ACTIVATIONS else ''}")


def not_at_the_end(before: str, kind: str, following: str) -> CompileError:
    """The error for a tanh, a softmax or an argmax that something follows."""
    found = f"{before} ({kind}) can only be the end of a network"
    if kind == "softmax" and following == "argmax":
        return CompileError(f"{found}: leave it out, the argmax of the scores is the same")
    if kind == "tanh":
        return CompileError(
            f'{found}: sudonet.convert(model, "sudo-16") replaces activations by units'
        )
    return CompileError(f"{found}: leave it out, or end the model there")


def no_layer_to_fold_into(norm: str, pooling: str | None, monotonic: bool) -> CompileError:
    """The error for a BatchNorm that follows no layer with weights.

    Parameters
    ----------
    norm, pooling
        Paths of the BatchNorm and of the maximum in front of it, if there is one.
    monotonic
        Whether all factors of the BatchNorm are above 0.
    """
    found = f"{norm} has no layer to be folded into"
    if pooling is None:
        return CompileError(f"{found}: BatchNorm must follow a Linear or a convolution")
    if monotonic:
        return CompileError(
            f"{found}: put it before the pooling, {pooling}, which gives the same result, since "
            "all of its weights are above 0"
        )
    return CompileError(
        f"{found}: put it before the pooling, {pooling}, and train again; some of its weights are "
        "not above 0, so that the result is not the same"
    )
