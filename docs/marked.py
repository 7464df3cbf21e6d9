"""A part of a page that a generator writes, between two marks; the rest is written by people."""

from __future__ import annotations


def replaced(text: str, name: str, made: str) -> str:
    """The page with this in the place between the marks of this name."""
    begin, end = f"<!-- {name}: made by `make docs` -->", f"<!-- /{name} -->"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"no {begin} or no {end} in the page")
    return f"{before}{begin}\n\n{made}\n\n{end}{after}"
