"""Short notation for assignments in tests.

Topics are written ``"t0:3 t1:3"``, members ``"C0(t0 t1) C1(t0)"``, a static member with its static
id as ``"C0=i1(t0)"``, a member in a rack as ``"C0@r1(t0)"``; a result is ``{"C0": "t0-0 t0-2"}``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from rota.engine.assignors.interface import Assignor
from rota.engine.model.member import GroupAssignment, GroupSubscription, Member
from rota.engine.model.topic import Cluster

MEMBER = re.compile(
    r"(?P<id>[^\s=@(]+)(=(?P<static>[^\s@(]+))?(@(?P<rack>\w*))?\((?P<topics>.*?)\)"
)


def parse_topics(text: str) -> dict[str, int]:
    """``"t0:3 t1:3"`` as counts."""
    return {name: int(count) for name, count in (word.split(":") for word in text.split())}


def parse_members(text: str) -> list[Member]:
    """``"C0(t0 t1) C1=i1@r1(t0)"`` as members."""
    return [
        Member(
            id=m["id"], topics=m["topics"].split(), group_instance_id=m["static"], rack=m["rack"]
        )
        for m in MEMBER.finditer(text)
    ]


def format_assignment(given: GroupAssignment) -> dict[str, str]:
    """A result in the notation, partitions in order of topic and number."""
    return {m: " ".join(f"{t}-{p}" for t, p in sorted(given[m].partitions)) for m in sorted(given)}


def assign_partitions(
    assignor: Assignor,
    topics: str,
    group: str,
    racks: Mapping[str, Sequence[Iterable[str]]] | None = None,
) -> dict[str, str]:
    """What the strategy gives, in the notation."""
    cluster = Cluster(parse_topics(topics), racks or {})
    return format_assignment(assignor.assign(cluster, GroupSubscription.of(parse_members(group))))
