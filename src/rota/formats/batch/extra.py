"""Libraries that only those need who read segments: loaded at first use."""

from __future__ import annotations

import importlib
from types import ModuleType

from rota.errors import InputError


def load(name: str, purpose: str, extra: str = "spark") -> ModuleType:
    """The library, or an error that says how to get it: with which extra of Rota's."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise InputError(f"{purpose} needs {name}: pip install 'rota[{extra}]'") from error
