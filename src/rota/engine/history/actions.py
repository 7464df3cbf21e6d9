"""What to do: the steps from one policy to another, and the repair of what no policy prevents.

A step has the setting to copy for each client library, because every library has its own. The
libraries that a group is known to use come first; the others that support a change are there
because the detection may be wrong. ``client_settings.py`` has the settings.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence

from rota.engine.history.client_settings import (
    CLIENT_LIBRARIES,
    DEFAULT_POLL_INTERVAL,
    MIN_BROKER_VERSION,
    UNKNOWN_LIBRARY,
    ClientLibrary,
    join_names,
)
from rota.engine.history.facts import (
    COOPERATIVE_STICKY,
    DEFAULT_SESSION_TIMEOUT,
    MINUTE,
    Action,
    ActionKind,
    ActionStep,
    Generation,
    GroupHealth,
    GroupHealthStatus,
    Pattern,
    PatternType,
    RebalanceCause,
)
from rota.engine.history.policies import GroupPolicy, MembershipType, PolicyProtocol
from rota.engine.model.duration import format_rounded_duration

MAX_CONSUMER_SESSION_TIMEOUT = 60_000  # ``group.consumer.max.session.timeout.ms``

_RESTART = "Restart the members one after the other"
_SESSION_LIMIT_HINT = (
    "It must not be above the broker's group.max.session.timeout.ms, 1800000 if not set."
)


def is_migration_possible(
    used: GroupPolicy, wanted: GroupPolicy, libraries: Sequence[ClientLibrary]
) -> bool:
    """Returns whether every client library of the group supports the wanted policy."""
    if wanted.membership is not MembershipType.DYNAMIC and not all(x.static_id for x in libraries):
        return False
    if (wanted.strategy, wanted.protocol) == (used.strategy, used.protocol):
        return True
    if wanted.protocol is PolicyProtocol.CONSUMER:
        return all(one.consumer_protocol for one in libraries)
    return all(wanted.strategy in one.strategies for one in libraries)


def supports_policy(library: ClientLibrary, policy: GroupPolicy) -> bool:
    """Returns whether members with this library can use the policy."""
    if policy.membership is not MembershipType.DYNAMIC and library.static_id is None:
        return False
    if policy.protocol is PolicyProtocol.CONSUMER:
        return library.consumer_protocol is not None
    return policy.strategy in library.strategies


def migration_size(used: GroupPolicy, wanted: GroupPolicy) -> int:
    """Returns the size of a change, to choose among equally good policies. A longer session timeout
    is a setting. Another strategy needs one or two restarts, and static membership a
    ``group.instance.id`` for every process. Another protocol may need new brokers and clients.
    """
    total = 2 * (wanted.membership is not used.membership)
    total += wanted.session_timeout != used.session_timeout
    if wanted.protocol is not used.protocol:
        return total + (4 if PolicyProtocol.CONSUMER in {wanted.protocol, used.protocol} else 2)
    return total + 2 * (wanted.strategy != used.strategy)


def list_migration_steps(
    used: GroupPolicy,
    wanted: GroupPolicy,
    libraries: Sequence[ClientLibrary],
    session_timeout: int | None = None,
    own: Sequence[ClientLibrary] | None = None,
) -> tuple[ActionStep, ...]:
    """Returns the steps of a migration, for each of the libraries.

    :param session_timeout: the present session timeout of all members; None: unknown, or several
    :param own: the libraries that the group uses together, if not all of ``libraries``: one that
        cannot change over while it runs stops all
    """
    migration = _Migration(used, wanted, libraries, libraries if own is None else own)
    return tuple(migration.steps(session_timeout))


class _Migration:
    def __init__(
        self,
        used: GroupPolicy,
        wanted: GroupPolicy,
        libraries: Sequence[ClientLibrary],
        own: Sequence[ClientLibrary],
    ) -> None:
        self._used, self._wanted, self._libraries, self._own = used, wanted, libraries, own
        self._is_consumer = wanted.protocol is PolicyProtocol.CONSUMER
        self._was_consumer = used.protocol is PolicyProtocol.CONSUMER
        used_strategy, wanted_strategy = (
            (policy.strategy, policy.protocol) for policy in (used, wanted)
        )
        self._keeps_strategy = used_strategy == wanted_strategy

    def steps(self, session_timeout: int | None) -> Iterator[ActionStep]:
        yield from self._check_steps()
        if self._wanted.membership is MembershipType.STATIC:
            yield from self._static_steps(session_timeout)
        elif self._used.membership is not MembershipType.DYNAMIC:
            yield from self._dynamic_steps(session_timeout)
        if self._keeps_strategy:
            yield ActionStep(text=f"{_RESTART}.")
        elif self._is_consumer and self._was_consumer:
            yield from _list_steps(
                self._libraries,
                f"{_RESTART} with this assignor.",
                lambda one: one.assignor_setting(self._wanted.strategy),
            )
        elif self._is_consumer:
            yield from self._consumer_protocol_steps()
        elif self._was_consumer:
            yield from self._classic_protocol_steps()
        else:
            yield from self._strategy_steps()

    def _check_steps(self) -> Iterator[ActionStep]:
        joins = self._is_consumer and not self._was_consumer
        brokers = f"the brokers run Kafka {MIN_BROKER_VERSION} or newer" if joins else ""

        def describe(library: ClientLibrary) -> str | None:
            version = self._minimum_version(library)
            members = f"every member uses {version}" if version else ""
            checks = ", and that ".join(filter(None, (brokers, members)))
            return f"Check that {checks}." if checks else None

        yield from _list_steps(self._libraries, describe)

    def _minimum_version(self, library: ClientLibrary) -> str | None:
        if self._is_consumer:
            protocol = library.consumer_protocol
            is_needed = protocol is not None and not self._was_consumer
            return protocol.minimum_client if protocol is not None and is_needed else None
        becomes_static = self._becomes_static and library.static_since
        if self._wanted.strategy == COOPERATIVE_STICKY != self._used.strategy:
            return library.cooperative_since or becomes_static or None
        return becomes_static or None

    @property
    def _becomes_static(self) -> bool:
        return self._wanted.membership is MembershipType.STATIC is not self._used.membership

    def _static_steps(self, session_timeout: int | None) -> Iterator[ActionStep]:
        session = self._session_to_set
        if self._becomes_static:
            yield from _list_steps(
                self._libraries,
                "Give every process an ID of its own that stays the same over restarts and "
                "deploys: the name of a StatefulSet's pod or of a host, not that of a Deployment's "
                "pod. Two processes with the same ID fence each other.",
                ClientLibrary.static_id_setting,
            )
        if session is None:
            return
        if self._is_consumer:
            limit = ""
            if session > MAX_CONSUMER_SESSION_TIMEOUT:
                limit = (
                    ", after raising the broker's group.consumer.max.session.timeout.ms, "
                    f"{MAX_CONSUMER_SESSION_TIMEOUT} if not set"
                )
            yield ActionStep(
                text=f"Set the session timeout of the group{limit}.",
                setting="kafka-configs --bootstrap-server HOST:9092 --alter --entity-type groups "
                "--entity-name GROUP --add-config "
                f"consumer.session.timeout.ms={session}",
            )
        elif not self._was_consumer:  # otherwise a restart sets it
            text = f"Set the session timeout. {_SESSION_LIMIT_HINT}"
            if session == session_timeout:
                text = f"Keep the session timeout of {format_rounded_duration(session)}."
            yield from self._session_steps(text, session)

    def _session_steps(self, text: str, session: int) -> Iterator[ActionStep]:
        yield from _list_steps(
            self._libraries,
            lambda one: " ".join(filter(None, (text, one.session_needs(session).note))),
            lambda one: one.session_setting(session),
        )

    @property
    def _session_to_set(self) -> int | None:
        """The session timeout to set; None if it does not change. The broker sets the timeout of
        consumer groups, so a change of the protocol needs a new setting.
        """
        if self._wanted.membership is not MembershipType.STATIC:
            return None
        old, new = (
            (policy.protocol is PolicyProtocol.CONSUMER, policy.membership, policy.session_timeout)
            for policy in (self._used, self._wanted)
        )
        return None if old == new else self._wanted.session_timeout

    def _dynamic_steps(self, session_timeout: int | None) -> Iterator[ActionStep]:
        yield from _list_steps(
            self._libraries,
            lambda one: (
                one.static_id
                and f"Remove {_setting_name(one.static_id)} from the settings of every member."
            ),
        )
        session = session_timeout or self._used.session_timeout or DEFAULT_SESSION_TIMEOUT
        away = format_rounded_duration(session)
        if not self._is_consumer and session > DEFAULT_SESSION_TIMEOUT:
            text = (
                "Set the session timeout at the same time: otherwise the partitions of a member "
                f"that crashed wait for {away}."
            )
            yield from self._session_steps(text, DEFAULT_SESSION_TIMEOUT)
        yield ActionStep(
            text="When the process of a static member stops, remove the member with the admin "
            "client (Java: removeMembersFromConsumerGroup): otherwise its partitions wait until "
            f"its session times out after {away}, even if the process comes back without the ID."
        )

    def _strategy_steps(self) -> Iterator[ActionStep]:
        used, wanted, libraries = self._used, self._wanted, self._libraries
        cooperative = wanted.protocol is PolicyProtocol.COOPERATIVE
        switch = ": the group becomes cooperative" if cooperative else ""

        def wanted_setting(library: ClientLibrary) -> str:
            return library.strategy_setting(wanted.strategy)

        if used.strategy == wanted.strategy:  # the list also has an eager strategy
            text = f"{_RESTART} with this strategy alone{switch}."
            yield from _list_steps(libraries, text, wanted_setting)
            return
        crosses = wanted.protocol is not used.protocol
        stopping = [one for one in libraries if crosses and self._list_refusing(one)]
        running = [one for one in libraries if one not in stopping]
        yield from _list_steps(
            stopping,
            lambda one: (
                f"Stop all members: {join_names(self._list_refusing(one))} cannot have eager and "
                "cooperative strategies in one list, so the group cannot change over while it runs."
            ),
            among=libraries,
        )
        yield from _list_steps(
            stopping, "Start the members with this strategy.", wanted_setting, among=libraries
        )
        if crosses and used.strategy == "range":
            yield from _list_steps(
                running,
                lambda one: (
                    one.mixed_default
                    and "Skip the next step if no member sets the list, and every member uses "
                    f"{one.mixed_default}: the default list has both strategies."
                ),
                among=libraries,
            )
        yield from _list_steps(
            running,
            f"{_RESTART} with both strategies: the group continues with {used.strategy} until all "
            "members have them.",
            lambda one: one.strategy_setting(wanted.strategy, used.strategy),
            among=libraries,
        )
        yield from _list_steps(
            running,
            f"Restart them one after the other again with the new strategy alone{switch}.",
            wanted_setting,
            among=libraries,
        )

    def _list_refusing(self, library: ClientLibrary) -> list[str]:
        """Returns the libraries that refuse a list of eager and cooperative strategies, of those
        that are in a group with this one.
        """
        group = self._own if library in self._own else [library]
        return [one.name for one in group if not one.allows_mixed_list]

    def _consumer_protocol_steps(self) -> Iterator[ActionStep]:
        def describe(library: ClientLibrary) -> str | None:
            if library.consumer_protocol is None:
                return None
            refused = library.consumer_protocol.refused
            without = f", and without {refused}, which the broker then sets" if refused else ""
            return f"{_RESTART} with this setting{without}. The group changes over while it runs."

        strategy = self._wanted.strategy
        yield from _list_steps(
            self._libraries, describe, lambda one: one.consumer_protocol_setting(strategy)
        )

    def _classic_protocol_steps(self) -> Iterator[ActionStep]:
        session = self._session_to_set

        def describe(library: ClientLibrary) -> str:
            settings = library.consumer_protocol
            without = f", and without {settings.refused_in_classic}" if settings else ""
            text = f"{_RESTART} with these settings{without}."
            if session is None:
                return text
            limit = f"For the session timeout: {_lower_first(_SESSION_LIMIT_HINT)}"
            return " ".join(filter(None, (text, limit, library.session_needs(session).note)))

        yield from _list_steps(
            self._libraries,
            describe,
            lambda one: one.classic_protocol_setting(self._wanted.strategy, session),
        )


def _list_steps(
    libraries: Sequence[ClientLibrary],
    text: str | Callable[[ClientLibrary], str | None],
    setting: Callable[[ClientLibrary], str | None] | None = None,
    *,
    among: Sequence[ClientLibrary] | None = None,
) -> Iterator[ActionStep]:
    """Yields a step for each text; libraries without a text, or without the setting, have none.

    :param among: all libraries of the action, if these are more
    """
    texts: dict[str, list[ClientLibrary]] = {}
    for one in libraries:
        words = text if isinstance(text, str) else text(one)
        if words and (setting is None or setting(one)):
            texts.setdefault(words, []).append(one)
    for words, listed in texts.items():
        is_for_all = len(listed) == len(libraries if among is None else among)
        settings = {} if setting is None else {one.name: setting(one) or "" for one in listed}
        yield ActionStep(
            text=words,
            libraries=() if is_for_all else tuple(one.name for one in listed),
            settings=settings,
        )


def _setting_name(setting: str) -> str:
    return re.split(r"[=(]", setting)[0].strip()


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]


def list_migration_costs(used: GroupPolicy, wanted: GroupPolicy) -> Iterator[str]:
    """Yields what is worse under the wanted policy, whatever the history shows."""
    if wanted.membership is MembershipType.STATIC is not used.membership:
        session = format_rounded_duration(wanted.session_timeout or DEFAULT_SESSION_TIMEOUT)
        yield (
            "A static member keeps its partitions while it restarts: nobody reads them until it "
            f"is back, or for {session} if it does not come back (rota simulate shows the "
            "downtime)."
        )
        yield "To scale down, remove the member with the admin client instead of waiting."


# repairs

#: What another policy makes cheaper; all other patterns are to be repaired.
POLICY_PATTERNS = frozenset({PatternType.AUTOSCALER, PatternType.ROLLING_DEPLOY})
FEWER_RECORDS = 100  # a poll may return this many records after the change; the default is 500
MAX_STABILIZATION = 60 * MINUTE  # kubernetes refuses a longer ``stabilizationWindowSeconds``

MAX_TITLE = 28  # longest title of a repair: the list of groups shows it
FIX_SLOW_POLLS, PREVENT_TIMEOUTS = "Fix slow polls", "Prevent session timeouts"
START_CONSUMERS, FIND_LEAVES = "Start consumers", "Find out why members leave"
SLOW_DOWN_SCALING = "Slow down scaling"


def make_pattern_repair(
    pattern: Pattern,
    libraries: Sequence[ClientLibrary],
    last: Generation,
    bound: int | None = None,
) -> Action:
    """Returns the repair of what a pattern shows.

    :param last: the last generation with members
    :param bound: the downtime that the pattern has caused
    """
    match pattern.pattern:
        case PatternType.STUCK_PARTITION:
            return _make_stuck_repair(pattern.topic, pattern.partition)
        case PatternType.GROWING_LAG:
            return _make_lag_repair(last, pattern.topic, pattern.partition)
        case PatternType.SLOW_POLLS:
            return _make_repair(FIX_SLOW_POLLS, _slow_poll_steps(libraries, last), bound)
        case PatternType.AUTOSCALER:
            return _make_repair(SLOW_DOWN_SCALING, [_scaling_step(pattern)], bound)
        case PatternType.CRASHES:
            title = "Fix crashes"
        case PatternType.LATE_JOIN:
            title = "Make members join sooner"
        case _:
            title = FIND_LEAVES
    return _make_repair(title, [ActionStep(text=pattern.fix or "")], bound)


def make_cause_repair(
    cause: RebalanceCause, libraries: Sequence[ClientLibrary], last: Generation, bound: int
) -> Action:
    """Returns the repair of slow polls, or of sessions that timed out.

    :param bound: the downtime of the rebalances with this cause
    """
    if cause is RebalanceCause.SLOW_POLL:
        return _make_repair(FIX_SLOW_POLLS, _slow_poll_steps(libraries, last), bound)
    text = (
        "Look for crashes, long pauses of the process or network failures at the times of these "
        "rebalances."
    )
    return _make_repair(PREVENT_TIMEOUTS, [ActionStep(text=text)], bound)


def make_health_repair(status: GroupHealthStatus, last: Generation | None) -> Action:
    """Returns the repair of a group that is stuck, failing or falling behind.

    :param last: the last generation; None: only commits are known
    """
    if status.health is GroupHealth.STUCK:
        return _make_stuck_repair(status.topic, status.partition, status.offset)
    if status.health is GroupHealth.FALLING_BEHIND:
        return _make_lag_repair(last, status.topic, status.partition)
    if last is None or not last.members:
        text = "Start the members again, or find out who stopped them."
        return _make_repair(START_CONSUMERS, [ActionStep(text=text)])
    text = "Look at the logs of the processes that leave, and at their exit codes."
    return _make_repair(FIND_LEAVES, [ActionStep(text=text)])


def _make_repair(title: str, steps: Iterable[ActionStep], bound: int | None = None) -> Action:
    return Action(
        title=title,
        kind=ActionKind.REPAIR,
        saving_ms=bound,
        saving_is_bound=bound is not None,
        steps=tuple(steps),
    )


def shorten_title(title: str, general: str) -> str:
    """Returns the title, or a general one if it is too long for the list of groups."""
    return title if len(title) <= MAX_TITLE else general


def _make_stuck_repair(
    topic: str | None, partition: int | None, offset: int | None = None
) -> Action:
    name = "" if topic is None or partition is None else f"{topic}-{partition}"
    title = f"Inspect {name or 'the stuck partition'}"
    where = f" of {name}" if name else ""
    command = None
    if topic is not None and offset is not None:
        command = (
            f"kafka-console-consumer --bootstrap-server HOST:9092 --topic {shlex.quote(topic)} "
            f"--partition {partition} --offset {offset} --max-messages 1"
        )
    steps = (
        ActionStep(
            text=f"Look at the record at the committed offset{where}: the application may fail on "
            "it again and again, or wait for another system.",
            setting=command,
        ),
        ActionStep(
            text="If the application cannot process the record, let it skip the record, or stop "
            "all members and move the offset of the group past it."
        ),
    )
    return _make_repair(title if len(title) <= MAX_TITLE else "Inspect the stuck partition", steps)


def _make_lag_repair(last: Generation | None, topic: str | None, partition: int | None) -> Action:
    members = 0 if last is None else len(last.members)
    partitions = 0
    if last is not None:
        partitions = sum(len(each) for one in last.members for each in one.assigned.values())
    title, text = "Add consumers", "Add members, at most one per partition"
    if members:
        text += f" (now {members} for {partitions} partitions)"
    if 0 < partitions <= members:
        title = "Process records faster"
        text = "More members do not help: every partition already has its own member"
    steps = [f"{text}.", "Make the application process its records faster."]
    if topic is not None and partition is not None:
        steps.append(
            f"If only {topic}-{partition} falls behind, look for a key that many records have."
        )
    return _make_repair(title, (ActionStep(text=one) for one in steps))


def _slow_poll_steps(libraries: Sequence[ClientLibrary], last: Generation) -> Iterator[ActionStep]:
    limited = [one for one in libraries if one.poll_interval]
    limited = limited or [CLIENT_LIBRARIES[UNKNOWN_LIBRARY]]
    present = max(
        (one.rebalance_timeout for one in last.members if one.rebalance_timeout),
        default=DEFAULT_POLL_INTERVAL,
    )
    yield from _list_steps(
        limited,
        f"Take fewer records per poll, for example {FEWER_RECORDS} instead of the default of 500.",
        lambda one: one.poll_records_setting(FEWER_RECORDS),
        among=libraries,
    )
    yield from _list_steps(
        limited,
        lambda one: (
            f"{'Or allow' if one.poll_records else 'Allow'} more time between two polls "
            f"than {format_rounded_duration(present)}. A member that hangs is then detected later."
        ),
        lambda one: one.poll_interval_setting(2 * present),
        among=libraries,
    )


def _scaling_step(pattern: Pattern) -> ActionStep:
    """Returns the step with a window that is longer than the usual time between two rises."""
    text = pattern.fix or ""
    step = 5 * MINUTE
    window = step * -(-(pattern.every_ms or MAX_STABILIZATION + 1) // step)
    if window > MAX_STABILIZATION:
        return ActionStep(text=text)
    period = format_rounded_duration(pattern.every_ms or 0)
    return ActionStep(
        text=f"{text} A window longer than {period}, the usual time between two "
        "scale-ups, would keep the member.",
        setting=f"behavior:\n  scaleDown:\n    stabilizationWindowSeconds: {window // 1_000}",
    )
