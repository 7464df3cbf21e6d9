"""Java's regular expressions for topics, as far as Python's mean the same."""

from __future__ import annotations

import pytest

from rota.errors import InputError
from rota.spark import query


@pytest.mark.parametrize(
    ("given", "name", "found"),
    [
        ("retur", "returns", True),  # found within the name, as Spark's own does
        ("^orders$", "orders-eu", False),
        ("orders|returns", "old-returns", True),
        (r"^t\.[0-9]{2}$", "t.07", True),
        (r"(?i)ORDERS", "orders", True),
        ("^(?!old-).*", "old-orders", False),
        ("[^a-c]x", "dx", True),
        (r"[\[\]&-]", "a-b", True),
        ("a&&b", "ab", False),  # without a set && is what it is
        ("o++r", "oor", True),
    ],
)
def test_what_both_languages_have_is_taken(given: str, name: str, found: bool) -> None:
    assert bool(query.compile_java_pattern("subscribePattern", given).search(name)) is found


@pytest.mark.parametrize(
    "given",
    ["[a-z&&[^bc]]", "[a[b]]", "[^a[b]", r"\Qa.b\E", r"\p{Alpha}+", r"\P{L}", "(?<name>a)", r"a\z"],
)
def test_what_only_java_has_is_refused(given: str) -> None:
    with pytest.raises(InputError, match=r"^subscribePattern: .* works only in Java"):
        query.compile_java_pattern("subscribePattern", given)


@pytest.mark.parametrize("given", ["(", "*", "a(?i)b", "[", "x{2,1}"])
def test_what_is_no_pattern_is_refused(given: str) -> None:
    with pytest.raises(InputError, match=r"^subscribePattern: .* is not a pattern"):
        query.compile_java_pattern("subscribePattern", given)
