"""Random groups for property tests: mixed subscriptions, stale and conflicting claims, racks."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

import rota

TOPICS = ("__consumer_offsets", "orders", "t0", "t1", "été")
RACKS = ("r1", "r2", "r3")


@st.composite
def partition_counts(draw: st.DrawFn) -> dict[str, int]:
    topics = draw(st.lists(st.sampled_from(TOPICS), unique=True, max_size=len(TOPICS)))
    return {topic: draw(st.integers(0, 7)) for topic in topics}


@st.composite
def members(draw: st.DrawFn, name: str, *, conflicting: bool) -> rota.Member:
    topics = draw(st.lists(st.sampled_from(TOPICS), unique=True))
    claims = st.tuples(st.sampled_from(TOPICS), st.integers(0, 8))
    return rota.Member(
        id=name,
        topics=topics,
        owned=draw(st.lists(claims, max_size=8)) if conflicting else (),
        generation=draw(st.sampled_from([None, 1, 2, 3])) if conflicting else None,
        group_instance_id=draw(st.sampled_from([None, f"s-{name}"])),
        rack=draw(st.sampled_from([None, *RACKS])),
    )


@st.composite
def groups(
    draw: st.DrawFn, *, conflicting: bool = True
) -> tuple[dict[str, int], list[rota.Member]]:
    """Partition counts and members; with ``conflicting`` claims nobody has checked."""
    names = draw(st.lists(st.sampled_from([f"m{n}" for n in range(9)]), unique=True, min_size=1))
    listed = [draw(members(name, conflicting=conflicting)) for name in names]
    return draw(partition_counts()), listed


@st.composite
def replica_racks(draw: st.DrawFn, counts: dict[str, int]) -> dict[str, list[list[str]]]:
    """Racks of the replicas of each partition; now and then none is known of a whole topic."""
    each = st.lists(st.sampled_from(RACKS), unique=True)
    return {
        topic: [draw(each) for _ in range(count)]
        for topic, count in counts.items()
        if draw(st.integers(0, 4))
    }


@st.composite
def change_group(
    draw: st.DrawFn, counts: dict[str, int], group: list[rota.Member], suffix: int
) -> tuple[dict[str, int], list[rota.Member]]:
    """The same group after members left and joined, subscriptions and counts changed.

    ``suffix`` keeps the names of those that join apart from earlier ones.
    """
    kept = [m for m in group if draw(st.booleans()) or m is group[0]]
    moved_on = [
        replace(m, topics=tuple(draw(st.lists(st.sampled_from(TOPICS), unique=True))))
        if draw(st.integers(0, 3)) == 0
        else m
        for m in kept
    ]
    joined = [
        draw(members(f"new{n}-{suffix}", conflicting=False)) for n in range(draw(st.integers(0, 3)))
    ]
    grown = {topic: count + draw(st.integers(0, 2)) for topic, count in counts.items()}
    return grown, moved_on + joined
