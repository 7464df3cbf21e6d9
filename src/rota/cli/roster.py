"""Groups, their members and their offsets, as tables that a person can read and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rota.cli.screen import console, count, plain, print_table, ranges
from rota.client.overview import CLASSIC, GATHERING, Overview, Present, Standing, labels
from rota.model.topic import Partitions, TopicPartition, first_few
from rota.sim.duration import written

UNKNOWN = "-"
KINDS = {
    "consumer": "assigned by the broker (KIP-848)",
    "share": "a share group (KIP-932)",
    "streams": "a group of Kafka Streams, assigned by the broker (KIP-1071)",
}


def print_list(groups: Sequence[Overview]) -> None:
    """Groups in a table."""
    if not groups:
        console().print("no groups")
        return
    rows = [
        (
            each.group,
            each.state or UNKNOWN,
            f"{each.kind or CLASSIC}{'' if each.reads else f' ({each.protocol_type})'}",
            each.strategy or UNKNOWN,
            UNKNOWN if each.members is None else str(len(each.members)),
        )
        for each in groups
    ]
    titles = ("group", "state", "type", "strategy", "members")
    print_table(titles, rows, {"members"})


def print_group(group: Overview, standings: Sequence[Standing], *, full: bool) -> None:
    """One group: who is in it, then how far it is."""
    screen = console()
    screen.print(plain(headline(group)))
    names = _names(group, full=full)
    if group.members:
        screen.print()
        _print_members(group.members, names)
        for line in _subscriptions(group.members, names) if _tells(group) else ():
            screen.print(plain(line))
    if standings:
        screen.print()
        _print_offsets(standings, names)
        screen.print(_total(standings))
    else:
        screen.print("nothing is committed, or nothing that may be seen")
    for note in notes(group, standings):
        screen.print(plain(f"note: {note}"))


def _tells(group: Overview) -> bool:
    """While a classic group gathers its members, brokers tell nothing of what they have said."""
    return not group.classic or group.state != GATHERING


def headline(group: Overview) -> str:
    """What it is, in a line."""
    said = [f"{group.group}: {group.state or 'state unknown'}"]
    if not group.classic:
        said.append(KINDS.get(group.kind, f"of type {group.kind}"))
    if not group.reads:
        said.append(f"of {group.protocol_type} workers")
    if group.strategy:
        said.append(f"strategy {group.strategy}")
    if group.epoch is not None:
        said.append(f"epoch {group.epoch}")
    if group.members is not None:
        said.append(count(len(group.members), "member"))
    if group.coordinator:
        said.append(f"coordinator {group.coordinator}")
    return ", ".join(said)


def notes(group: Overview, standings: Iterable[Standing]) -> list[str]:
    """What a person should know."""
    said = []
    if group.members is None:
        said.append("its members cannot be looked at: Kafka has calls of their own for its type")
    if not _tells(group):
        said.append("it is rebalancing: subscriptions are told when it is over, and owners change")
    for member in group.members or ():
        if member.problem:
            said.append(f"what member {member.id} says cannot be read: {member.problem}")
        if member.target is not None:
            said.append(
                f"member {member.id} is on its way from {_text(member.assigned)} "
                f"to {_text(member.target)}"
            )
    by_problem: dict[str, list[str]] = {}
    for each in standings:
        if each.problem is not None:
            by_problem.setdefault(each.problem, []).append(str(each.partition))
    said += [f"{first_few(places)}: {problem}" for problem, places in by_problem.items()]
    return said


def _names(group: Overview, *, full: bool) -> dict[str, str]:
    members = group.members or ()
    return {each.id: each.id for each in members} if full else labels(members)


def _print_members(members: Iterable[Present], names: Mapping[str, str]) -> None:
    """Columns that say nothing are left out: a terminal is narrow."""
    listed = sorted(members, key=lambda each: names[each.id])
    clients = any(not names[each.id].startswith(each.client_id) for each in listed)
    racks = any(each.rack for each in listed)
    titles = ["member", *["client id"] * clients, "host", *["rack"] * racks, "load", "partitions"]
    rows = [
        [
            names[each.id],
            *[each.client_id] * clients,
            each.host,
            *[each.rack or UNKNOWN] * racks,
            str(len(each.assigned)),
            _text(each.assigned),
        ]
        for each in listed
    ]
    print_table(titles, rows, {"load"})


def _subscriptions(members: Sequence[Present], names: Mapping[str, str]) -> list[str]:
    """What they subscribe to: in one line where all do the same."""
    by_topics: dict[str, list[str]] = {}
    for each in members:
        topics = ", ".join(sorted(each.topics)) or ("" if each.pattern else "nothing that is told")
        pattern = f"pattern {each.pattern}" if each.pattern else ""
        wanted = "; ".join(filter(None, (topics, pattern)))
        by_topics.setdefault(wanted, []).append(names[each.id])
    if len(by_topics) == 1:
        return [f"subscribed: {next(iter(by_topics))}"]
    return [
        f"subscribed by {first_few(sorted(who))}: {what}" for what, who in sorted(by_topics.items())
    ]


def _print_offsets(standings: Iterable[Standing], names: Mapping[str, str]) -> None:
    titles = ("topic", "partition", "committed", "end", "lag", "behind", "owner")
    rows = [
        (
            each.partition.topic,
            str(each.partition.partition),
            _number(None if each.committed is None else each.committed.offset),
            _number(each.end),
            _number(each.lag),
            UNKNOWN if each.lag is None else behind(each),
            names.get(each.owner or "", UNKNOWN),
        )
        for each in standings
    ]
    print_table(titles, rows, titles[1:-1])


def behind(standing: Standing) -> str:
    """How old the first unread record is."""
    if standing.lag is not None and standing.lag <= 0:
        return "0s"
    return UNKNOWN if standing.age is None else age_text(standing.age)


def age_text(age: int) -> str:
    """Two units are enough: ``3d4h``, ``1h5m``, ``12s``."""
    for coarse, fine in ((86_400_000, 3_600_000), (3_600_000, 60_000), (0, 1_000)):
        if age >= coarse:
            return written(age // fine * fine)
    return "0s"


def _total(standings: Sequence[Standing]) -> str:
    lag = lag_of(standings)
    said = ["lag not known" if lag is None else f"lag {lag:,} in all"]
    ages = [each.age for each in standings if each.age is not None]
    if ages:
        said.append(f"up to {age_text(max(ages))} behind")
    without = sum(each.committed is None for each in standings)
    if without:
        records = uncommitted_of(standings)
        there = f" ({count(records, 'record')})" if records else ""
        said.append(f"{count(without, 'partition')} without a committed offset{there}")
    return "; ".join(said)


def _number(number: int | None) -> str:
    return UNKNOWN if number is None else str(number)


def _text(partitions: Partitions) -> str:
    """``orders 0-2; payments 5``."""
    by_topic = partitions.by_topic()
    listed = [f"{topic} {ranges(sorted(by_topic[topic]))}" for topic in sorted(by_topic)]
    return "; ".join(listed) or "nothing"


def print_lags(rows: Sequence[tuple[Overview, Sequence[Standing]]], *, full: bool) -> None:
    """Groups by their lag, each with its worst partition."""
    if not rows:
        console().print("no group has committed anything")
        return
    titles = ("group", "state", "members", "lag", "behind", "worst partition", "owner")
    print_table(titles, [_lag_row(*row, full=full) for row in rows], titles[2:5])
    for group, standings in rows:
        for note in lag_notes(group, standings):
            console().print(plain(f"note: {group.group}: {note}"))


def lag_notes(group: Overview, standings: Sequence[Standing]) -> list[str]:
    """What a person should know who looks at the lag alone."""
    said = notes(group, standings) if group.members is not None else []
    if places := uncommitted_places(standings):
        said.append(
            f"nothing is committed for {places}: how many of the "
            f"{count(uncommitted_of(standings), 'record')} there are read, nobody knows"
        )
    return said


def _lag_row(group: Overview, standings: Sequence[Standing], *, full: bool) -> tuple[str, ...]:
    worst = worst_of(standings)
    ages = [each.age for each in standings if each.age is not None]
    lag = lag_of(standings)
    return (
        group.group,
        group.state or UNKNOWN,
        UNKNOWN if group.members is None else str(len(group.members)),
        _number(lag),
        age_text(max(ages)) if ages else "0s" if lag == 0 else UNKNOWN,
        UNKNOWN if worst is None else f"{worst.partition} ({worst.lag})",
        UNKNOWN if worst is None else _names(group, full=full).get(worst.owner or "", UNKNOWN),
    )


def lag_of(standings: Iterable[Standing]) -> int | None:
    """Records that a group has still to read; None: of no partition it is known. An offset behind
    the end makes up for no other.
    """
    lags = [max(each.lag, 0) for each in standings if each.lag is not None]
    return sum(lags) if lags else None


def uncommitted_of(standings: Iterable[Standing]) -> int:
    """Records in partitions for which nothing is committed."""
    return sum(each.uncommitted for each in standings)


def uncommitted_places(standings: Iterable[Standing]) -> str:
    """The partitions where these are."""
    return first_few([str(each.partition) for each in standings if each.uncommitted])


def worst_of(standings: Iterable[Standing]) -> Standing | None:
    """The partition with the largest lag; None if there is no lag."""
    behind = [(each.lag, each) for each in standings if each.lag is not None and each.lag > 0]
    return max(behind, key=lambda pair: pair[0], default=(0, None))[1]


# JSON


def group_json(group: Overview) -> dict[str, object]:
    """A group without its offsets."""
    return {
        "group": group.group,
        "state": group.state,
        "type": group.kind or CLASSIC,
        "protocol_type": group.protocol_type,
        "strategy": group.strategy,
        "epoch": group.epoch,
        "coordinator": group.coordinator,
        "members": None if group.members is None else list(map(_member_json, group.members)),
    }


def _member_json(member: Present) -> dict[str, object]:
    return {
        "id": member.id,
        "static_id": member.static_id,
        "client_id": member.client_id,
        "host": member.host,
        "rack": member.rack,
        "topics": sorted(member.topics),
        "pattern": member.pattern,
        "owned_at_join": _listed(member.owned),
        "generation": member.generation,
        "assigned": _listed(member.assigned),
        "target": None if member.target is None else _listed(member.target),
        "problem": member.problem,
    }


def _listed(partitions: Partitions) -> dict[str, list[int]]:
    by_topic = partitions.by_topic()
    return {topic: sorted(by_topic[topic]) for topic in sorted(by_topic)}


def standing_json(standing: Standing) -> dict[str, object]:
    """How far a group is in one partition."""
    committed = standing.committed
    return {
        **place_json(standing.partition),
        "committed": None if committed is None else committed.offset,
        "metadata": None if committed is None else committed.metadata,
        "leader_epoch": None if committed is None else committed.leader_epoch,
        "start": standing.start,
        "end": standing.end,
        "lag": standing.lag,
        "lag_seconds": None if standing.age is None else standing.age / 1_000,
        "owner": standing.owner,
        "problem": standing.problem,
    }


def place_json(partition: TopicPartition) -> dict[str, object]:
    """A partition."""
    return {"topic": partition.topic, "partition": partition.partition}
