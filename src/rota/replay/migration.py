"""How to get from one policy to another with the client libraries that a group has: the steps, in
order. How each library writes what a step sets is :mod:`rota.replay.dialect`'s.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rota.replay.dialect import KAFKA, Library, together, told
from rota.replay.policy import COOPERATIVE_STICKY, Membership, Policy, Protocol, shown_time

LONGEST_OF_BROKER = 60_000
"""``group.consumer.max.session.timeout.ms``."""
_AT_MOST = (
    "The session must not be above the broker's group.max.session.timeout.ms, 1800000 if not set."
)


def possible(used: Policy, wanted: Policy, libraries: Sequence[Library]) -> bool:
    """Whether every library of the group can do what a policy asks for beyond what is in use."""
    if wanted.membership is not Membership.DYNAMIC and not all(one.static for one in libraries):
        return False
    if (wanted.strategy, wanted.protocol) == (used.strategy, used.protocol):
        return True
    if wanted.protocol is Protocol.CONSUMER:
        return all(one.broker for one in libraries)
    return all(wanted.strategy in one.strategies for one in libraries)


def size(used: Policy, wanted: Policy) -> int:
    """How much of a change it is, for choosing among equals.

    A longer session timeout is a setting. Another strategy is one or two restarts; a
    ``group.instance.id`` has to be found for every process. Another protocol asks for new brokers
    and clients; and a sticky strategy keeps topics together less well than range.
    """
    total = 0
    if wanted.protocol is not used.protocol:
        total += 4 if Protocol.CONSUMER in {wanted.protocol, used.protocol} else 2
    elif wanted.strategy != used.strategy:
        total += 2
    if wanted.membership is not used.membership:
        total += 2
    if wanted.session_timeout != used.session_timeout:
        total += 1
    return total


def migration(used: Policy, wanted: Policy, libraries: Sequence[Library]) -> tuple[str, ...]:
    """What to do, step by step."""
    steps: list[str] = []
    if wanted.membership is Membership.STATIC:
        steps += _static(used, wanted, libraries)
    elif used.membership is not Membership.DYNAMIC:
        steps.append(
            told("Remove {} from every member's settings.", libraries, lambda one: one.static)
        )
    if wanted.protocol is Protocol.CONSUMER and used.protocol is not Protocol.CONSUMER:
        steps += _to_broker(wanted, libraries)
    elif wanted.protocol is Protocol.CONSUMER:
        if wanted.strategy != used.strategy:
            steps.append(
                told(
                    "Restart the members one after the other with {}.",
                    libraries,
                    lambda one: one.served_by(wanted.strategy),
                )
            )
    elif (wanted.strategy, wanted.protocol) != (used.strategy, used.protocol):
        steps += _to_strategy(used, wanted, libraries)
    return tuple(steps)


def _static(used: Policy, wanted: Policy, libraries: Sequence[Library]) -> Iterator[str]:
    session = _session(used, wanted)
    if used.membership is not Membership.STATIC:
        yield told(
            "Give every process {}, with an ID of its own that stays the same over restarts and "
            "deploys: the name of a StatefulSet's pod or of a host, not that of a Deployment's "
            "pod. Two processes with the same one shut each other out.",
            libraries,
            Library.static_id,
        )
    if session is None:
        return
    if wanted.protocol is Protocol.CONSUMER:
        limit = ""
        if session > LONGEST_OF_BROKER:
            limit = (
                ", after raising the broker's group.consumer.max.session.timeout.ms, "
                f"{LONGEST_OF_BROKER} if not set"
            )
        yield (
            f"Set consumer.session.timeout.ms={session} for the group (kafka-configs "
            f"--entity-type groups){limit}."
        )
    elif used.protocol is not Protocol.CONSUMER:  # else it comes with the restart
        yield told(f"Set {{}}. {_AT_MOST}", libraries, lambda one: one.session_of(session))
    yield (
        "Mind: a static member keeps its partitions while it restarts; nobody reads them until "
        f"it is back, or for {shown_time(session)} if it never is (rota simulate shows how long "
        "partitions stand still). To scale down, remove it with the admin client, do not wait."
    )


def _session(used: Policy, wanted: Policy) -> int | None:
    """The session timeout that has to be set; None: it is as it was.

    The members' own is none of the broker's: what one was is lost on the way to the other.
    """
    sides = {one.protocol is Protocol.CONSUMER for one in (used, wanted)}
    kept = (used.membership, used.session_timeout) == (wanted.membership, wanted.session_timeout)
    static = wanted.membership is Membership.STATIC
    return wanted.session_timeout if static and not (kept and len(sides) == 1) else None


def _to_strategy(used: Policy, wanted: Policy, libraries: Sequence[Library]) -> Iterator[str]:
    turns = ": the group turns cooperative" if wanted.protocol is Protocol.COOPERATIVE else ""
    restart = "Restart the members one after the other with {}"
    if used.protocol is Protocol.CONSUMER:
        session = _session(used, wanted)
        limit = "" if session is None else f" {_AT_MOST}"
        yield told(
            f"{restart}.{limit}", libraries, lambda one: one.unserved(wanted.strategy, session)
        )
        return
    if used.strategy == wanted.strategy:  # an eager one stands beside it
        yield told(f"{restart}{turns}.", libraries, lambda one: one.listed(wanted.strategy))
        return
    crosses = wanted.protocol is not used.protocol
    since = [one.cooperative for one in libraries if one.cooperative]
    if wanted.strategy == COOPERATIVE_STICKY and since:
        yield f"Make sure of {together(since)}."
    refusing = [one.name for one in libraries if not one.mixes]
    if crosses and refusing:
        yield (
            f"Stop all members: {together(refusing)} cannot have eager and cooperative "
            "strategies in one list, so there is no way from one to the other while the group runs."
        )
        yield told("Start them with {}.", libraries, lambda one: one.listed(wanted.strategy))
        return
    both = [one.both for one in libraries]
    if crosses and used.strategy == "range" and all(both):
        yield (
            f"Leave out the next step if all members are {together(both)} and never set the list: "
            "their default list has both."
        )
    yield told(
        f"{restart}: the group goes on with {used.strategy} until all have it.",
        libraries,
        lambda one: one.listed(wanted.strategy, used.strategy),
    )
    yield told(
        f"Restart them one after the other again with {{}}{turns}.",
        libraries,
        lambda one: one.listed(wanted.strategy),
    )


def _to_broker(wanted: Policy, libraries: Sequence[Library]) -> Iterator[str]:
    clients = [one.broker.client for one in libraries if one.broker]
    also = f", and of {together(clients)}" if clients else ""
    yield f"Make sure of brokers of Kafka {KAFKA} or newer{also}."
    yield told(
        "Restart the members one after the other with {}. The group changes over while it runs.",
        libraries,
        lambda one: one.served(wanted.strategy),
    )
