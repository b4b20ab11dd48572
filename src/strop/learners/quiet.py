"""Transformers without its progress bars: the terminal belongs to whoever runs us."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any

from transformers.utils import logging

_gguf_loading: Any = import_module("transformers.modeling_gguf_pytorch_utils")


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Inside, transformers draws no bars and warns of nothing short of an error; afterwards as before."""
    bars, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    gguf_bar = _gguf_loading.tqdm  # the one bar that asks no setting
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    _gguf_loading.tqdm = partial(gguf_bar, disable=True)
    try:
        yield
    finally:
        _gguf_loading.tqdm = gguf_bar
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
