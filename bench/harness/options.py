"""Command-line options that the demo and every benchmark share."""

from __future__ import annotations

import argparse
import os

VARIABLES = {
    "--server": ("POLYKV_SERVER", "polykv-server binary"),
    "--peer": ("POLYKV_PEER", "llama-server binary to compare with"),
    "--model": ("POLYKV_MODEL", "model in GGUF format"),
    "--llama-source": ("POLYKV_LLAMA_SOURCE", "llama.cpp source tree, for its documentation"),
}


def add_paths(parser: argparse.ArgumentParser, *names: str) -> None:
    """Adds the named path options, each required unless its environment variable is set.

    The others are accepted and hidden: the launcher gives all of them to every benchmark.
    """
    for name in VARIABLES.keys() - set(names):
        parser.add_argument(name, help=argparse.SUPPRESS)
    for name in names:
        variable, what = VARIABLES[name]
        default = os.environ.get(variable) or None
        parser.add_argument(
            name, default=default, required=default is None, help=f"{what} (else ${variable})"
        )


def positive(text: str) -> int:
    """An argparse type: an integer of at least 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value
