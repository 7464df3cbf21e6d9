"""What each group is and does at the end of the evidence: the rows of gold/groups."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, TypedDict

from rota.engine.history.facts import Generation, GenerationChange, GenerationMember, GroupType
from rota.engine.history.generations import ACTIVE_TASK, CONNECT_PROTOCOL_TYPE, DEAD_STATE
from rota.engine.model.request import CONSUMER_PROTOCOL_TYPE
from rota.engine.model.text import count_noun, list_first_names

#: Kinds of groups besides those of :class:`GroupType`.
CONNECT_KIND, COMMITS_KIND, OTHER_KIND = "connect", "commits only", "other"
#: Kinds of groups whose members are assigned partitions.
OWNING_KINDS = frozenset({GroupType.CLASSIC, GroupType.CONSUMER, GroupType.SHARE})


class MemberOverview(TypedDict):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    assigned: list[str]  # partitions, tasks or connectors, in words


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOverview:
    """A group at the end of the evidence: a row of gold/groups."""

    group: str
    kind: str
    protocol_type: str = ""
    state: str | None = None  # Kafka's name; None: not known
    epoch: int | None = None  # the last generation or epoch
    epochs: int = 0  # the number of generations or epochs in the evidence
    members: int = 0
    topics: tuple[str, ...] = ()
    partitions: int | None = None  # assigned to the last members, or committed; None: not known
    strategy: str | None = None
    first: int
    last: int
    last_members: tuple[MemberOverview, ...] = ()  # the members of the last generation that had any
    text: str = ""


class CommitSummary(NamedTuple):
    """All commits of a group; deletions have times too."""

    first: int
    last: int
    partitions: Collection[tuple[str, int]]


class OverviewBuilder:
    """Makes the overview of a group while its generations are read."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._last: Generation | None = None
        self._last_with_members: Generation | None = None
        self._epochs = 0

    def watch(self, generations: Iterable[Generation]) -> Iterator[Generation]:
        """Yields the generations, and keeps what the overview needs."""
        for generation in generations:
            self._last = generation
            if generation.members:
                self._last_with_members = generation
            repeats = {GenerationChange.REPLACED, GenerationChange.DELETED}
            self._epochs += generation.change not in repeats
            yield generation

    def overview(self, kind: GroupType, state: str, first: int, last: int) -> GroupOverview:
        """Returns the overview without the group's commits; see :func:`add_commits`."""
        end, known = self._last, self._last_with_members
        protocol_type = "" if end is None else end.protocol_type
        members = () if known is None else known.members
        return GroupOverview(
            group=self._group,
            kind=_find_kind(kind, protocol_type),
            protocol_type=protocol_type,
            state=state,
            epoch=None if end is None else end.generation,
            epochs=self._epochs,
            members=0 if end is None else len(end.members),
            topics=tuple(sorted({t for one in members for t in (*one.topics, *one.assigned)})),
            partitions=_count_partitions(kind, members),
            strategy=None if known is None else known.strategy,
            first=first,
            last=last,
            last_members=tuple(map(_describe_member, members)),
        )


def _find_kind(kind: GroupType, protocol_type: str) -> str:
    if kind is GroupType.CLASSIC and protocol_type not in {"", CONSUMER_PROTOCOL_TYPE}:
        return CONNECT_KIND if protocol_type == CONNECT_PROTOCOL_TYPE else OTHER_KIND
    return str(kind)


def _count_partitions(kind: GroupType, members: Iterable[GenerationMember]) -> int | None:
    """Counts assigned partitions, each one once; None if none is assigned."""
    if kind is GroupType.SHARE:
        return len({partition for one in members for partition in one.work}) or None
    pairs = {(t, n) for one in members for t, numbers in one.assigned.items() for n in numbers}
    return len(pairs) or None


def _describe_member(member: GenerationMember) -> MemberOverview:
    partitions = (f"{t}-{n}" for t, numbers in member.assigned.items() for n in numbers)
    return {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "assigned": [*partitions, *member.work],
    }


def add_commits(
    group: str, known: GroupOverview | None, commits: CommitSummary | None
) -> GroupOverview | None:
    """Returns the overview with the group's commits; None if the group has no records at all."""
    if commits is None:
        return None if known is None else replace(known, text=describe_group(known))
    if known is None:
        first, last = commits.first, commits.last
        known = GroupOverview(group=group, kind=COMMITS_KIND, first=first, last=last)
    committed = {topic for topic, _ in commits.partitions}
    # the row may have the commits up to an earlier time already
    is_assigned = known.kind in OWNING_KINDS and any(one["assigned"] for one in known.last_members)
    known = replace(
        known,
        topics=known.topics if is_assigned else tuple(sorted({*known.topics, *committed})),
        partitions=known.partitions if is_assigned else len(commits.partitions),
        first=min(known.first, commits.first),
        last=max(known.last, commits.last),
    )
    return replace(known, text=describe_group(known))


_HEADS = {
    GroupType.CLASSIC: "Consumer group with the classic protocol",
    GroupType.CONSUMER: "Consumer group with the KIP-848 protocol",
    GroupType.SHARE: "Share group",
    GroupType.STREAMS: "Kafka Streams group with the KIP-1071 protocol",
    CONNECT_KIND: "Workers of Kafka Connect",
}
#: What members do with their work, and did.
_VERBS = {
    GroupType.SHARE: ("share the records of", "shared the records of"),
    GroupType.STREAMS: ("run", "ran"),
    CONNECT_KIND: ("run", "ran"),
}
_READ = ("read", "read")
_NOTES = {
    GroupType.SHARE: " Several members may read the same partition; a rebalance stops none of "
    "them, so there is no downtime.",
    CONNECT_KIND: " A sink connector commits its offsets in a group of its own, connect-NAME.",
    OTHER_KIND: " The journal does not show what they share.",
}


def describe_group(group: GroupOverview) -> str:
    """Returns what the group is and does, in one or two sentences."""
    if group.kind == COMMITS_KIND:
        return (
            f"Committed offsets only: {_describe_partitions(group)}. No member joined in the "
            "evidence; clients that assign partitions themselves, or tools, commit without joining."
        )
    head = _HEADS.get(group.kind, f"Group with the protocol type {group.protocol_type}")
    if group.state == DEAD_STATE:
        head += ", deleted"
    elif not group.members:
        head += ", without members"
    number = len(group.last_members)
    if not number:
        return f"{head}."
    noun = "worker" if group.kind == CONNECT_KIND else "member"
    who = count_noun(number, noun)
    if not group.members:
        who = f"its last {noun if number == 1 else f'{number:,} {noun}s'}"
    what = ""
    if group.kind != OTHER_KIND:
        verb = _VERBS.get(group.kind, _READ)[not group.members]
        if group.members and number == 1:
            verb = verb.replace(verb.split()[0], f"{verb.split()[0]}s")
        what = f" {verb} {_describe_work(group)}"
    return f"{head}: {who}{what}.{_NOTES.get(group.kind, '')}"


def _describe_work(group: GroupOverview) -> str:
    work = [word for member in group.last_members for word in member["assigned"]]
    if group.kind == CONNECT_KIND:
        connectors = sum(word.startswith("connector ") for word in work)
        tasks = count_noun(len(work) - connectors, "task")
        return f"{count_noun(connectors, 'connector')} and {tasks}"
    if group.kind == GroupType.STREAMS:
        active = sum(word.endswith(ACTIVE_TASK) for word in work)
        copies = count_noun(len(work) - active, "standby or warm-up task")
        more = f" and {copies}" if active < len(work) else ""
        return f"{count_noun(active, 'active task')}{more} of {_describe_topics(group)}"
    strategy = f" with {group.strategy}" if group.strategy else ""
    return f"{_describe_partitions(group)}{strategy}"


def _describe_partitions(group: GroupOverview) -> str:
    if not group.topics and not group.partitions:
        return "no partition"
    return f"{count_noun(group.partitions or 0, 'partition')} of {_describe_topics(group)}"


def _describe_topics(group: GroupOverview) -> str:
    return list_first_names(group.topics) or "unknown topics"
