"""Classes of the user's own, named on the command line."""

from __future__ import annotations

import sys
from collections.abc import Iterable


def let_modules_be_found(names: Iterable[str]) -> None:
    """What is named as package.module:Class may lie in the folder the command is run in."""
    if any(":" in name for name in names) and "" not in sys.path:
        sys.path.insert(0, "")
