"""Records that were to be read and are gone: an error, or a warning, as ``failOnDataLoss`` says."""

from __future__ import annotations

import logging

from rota.errors import RotaError

LOGGER = logging.getLogger("rota.spark")


class DataLost(RotaError):
    """Records that a query was to read are gone."""


def lost(what: str, *, fail: bool) -> None:
    """Says it.

    :raises DataLost: the query is to fail
    """
    if fail:
        raise DataLost(
            f"records may be lost: {what}: they were deleted by retention, or the topic was "
            "deleted and made anew; the option failOnDataLoss=false goes on without them"
        )
    LOGGER.warning("records may be lost: %s", what)
