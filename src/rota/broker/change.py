"""Changes of topics: each is prepared by itself, then the catalogue is saved once for all of them.

One request may change thousands, and a save is several syncs: nobody else is served meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from rota.errors import Code, DiskError, Refused
from rota.storage.catalog import Catalog, Entry

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change(Generic[T]):
    """All is prepared, and the catalogue does not know of it."""

    topic: T
    name: str
    entry: Entry | None
    """What the catalogue has from now on; None: it has no such topic any more."""
    undo: Callable[[], None]
    done: Callable[[], None]


Plan: TypeAlias = Callable[[], Change[T]]
"""Prepares a change; raises Refused or DiskError, and then has left nothing behind."""


def carry_out(
    catalog: Catalog, plans: Iterable[Plan[T]], first: Callable[[frozenset[str]], None]
) -> list[T | Refused]:
    """Gives for each plan the topic, or why it was not carried out.

    :param first: what else must be saved before the catalogue, for topics of these names
    """
    found = [_prepared(plan) for plan in plans]
    changes = [each for each in found if isinstance(each, Change)]
    refusal = _saved(catalog, changes, first) if changes else None
    if refusal is None:
        for change in changes:
            change.done()
    return [each if isinstance(each, Refused) else refusal or each.topic for each in found]


def _prepared(plan: Plan[T]) -> Change[T] | Refused:
    try:
        with stored():
            return plan()
    except Refused as error:
        return error


def _saved(
    catalog: Catalog, changes: list[Change[T]], first: Callable[[frozenset[str]], None]
) -> Refused | None:
    try:
        with stored():
            try:
                first(frozenset(change.name for change in changes))
                catalog.change(
                    put=[change.entry for change in changes if change.entry is not None],
                    remove=[change.name for change in changes if change.entry is None],
                )
            except DiskError:
                for change in reversed(changes):
                    change.undo()
                raise
    except Refused as error:
        return error
    return None


@contextmanager
def stored() -> Iterator[None]:
    """What the disk refuses is refused to the client."""
    try:
        yield
    except DiskError as error:
        raise Refused(Code.KAFKA_STORAGE_ERROR, str(error)) from error
