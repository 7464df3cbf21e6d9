"""Every table of the pipeline: columns, key and meaning, declared once.

Types are Spark's DDL. :mod:`rota.pipeline.arrow` makes schemas of them, ``docs/tables.md`` is
generated from them, and tests compare both with this module. Imports nothing, so that the report
needs no Spark.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: str
    meaning: str
    required: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table, with the meaning of a row and its key."""

    name: str  # name and folder, for example ``gold/rebalances``
    row: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]


def _nullable(name: str, kind: str, meaning: str) -> Column:
    return Column(name, kind, meaning, required=False)


_GROUP_PARTITION = (
    Column("group", "string", "group"),
    Column("topic", "string", "topic"),
    Column("partition", "int", "partition"),
)
_NO_LOG_ENDS = "null: log ends unknown"
_AFTER = "the same under that policy"
_KINDS = "`classic`, `consumer` (KIP-848), `share` (KIP-932) or `streams` (KIP-1071)"
MEMBER = (
    "struct<member_id: string, group_instance_id: string, client_id: string, client_host: string, "
    "session_timeout: int, rebalance_timeout: int, rack: string, topics: array<string>, "
    "owned: map<string, array<int>>, owned_generation: int, "
    "assigned: map<string, array<int>>, work: array<string>, library: string, problem: string>"
)

JOURNAL = Table(
    name="bronze/journal",
    row="a raw record of `__consumer_offsets`",
    key=("journal_partition", "journal_offset"),
    columns=(
        Column("journal_partition", "int", "partition of `__consumer_offsets`"),
        Column("journal_offset", "bigint", "offset in that partition"),
        Column("at", "timestamp", "the record's timestamp"),
        _nullable("key", "binary", "the record's key"),
        _nullable("value", "binary", "the record's value; null: a tombstone"),
        Column("control", "boolean", "the record is a transaction marker, in a control batch"),
        Column("transactional", "boolean", "the record is part of a transaction"),
        Column("producer_id", "bigint", "producer id of the batch; -1: none"),
        Column("producer_epoch", "smallint", "producer epoch of the batch; -1: none"),
    ),
)

ENDS = Table(
    name="bronze/ends",
    row="a sample of a partition's log start offset and log end offset",
    key=("topic", "partition", "at"),
    columns=(
        Column("topic", "string", "topic"),
        Column("partition", "int", "partition"),
        Column("at", "timestamp", "time of the sample, or the past time that was looked up"),
        _nullable("beginning", "bigint", "log start offset; null: unknown for a past time"),
        Column("end", "bigint", "log end offset"),
    ),
)

SERVERLOG = Table(
    name="bronze/serverlog",
    row="a line about a group in a broker's log",
    key=("file", "line"),
    columns=(
        Column("file", "string", "name of the log file"),
        Column("line", "bigint", "line number, from 1"),
        Column("at", "timestamp", "time of the line"),
        Column("group", "string", "group"),
        Column("what", "string", "type of the line: preparing, stabilized, assigned, ..."),
        _nullable("generation", "int", "generation or epoch in the line"),
        _nullable("member_id", "string", "member in the line"),
        _nullable("reason", "string", "the broker's reason"),
        _nullable("client_reason", "string", "the client's reason"),
        Column("text", "string", "the whole message"),
    ),
)

SAMPLES = Table(
    name="bronze/samples",
    row="the state of a group in a round of `--poll`, if it differs from the round before",
    key=("group", "at"),
    columns=(
        Column("group", "string", "group"),
        Column("at", "timestamp", "time of the sample"),
        _nullable("not_before", "timestamp", "last sample with another state; null: none before"),
        Column("kind", "string", "`classic` or `consumer` (KIP-848)"),
        Column("state", "string", "Kafka's name of the state; `Dead`: the group was deleted"),
        Column("protocol_type", "string", "protocol type: `consumer`, `connect`, ..."),
        _nullable("strategy", "string", "strategy in use"),
        _nullable("epoch", "int", "group epoch of a consumer group"),
        Column(
            "members",
            f"array<{MEMBER}>",
            "the members; in a consumer group `owned` is the current assignment of a member and "
            "`assigned` its target assignment",
        ),
    ),
)

COMMITS = Table(
    name="silver/commits",
    row="a committed offset, or its deletion",
    key=("journal_partition", "journal_offset"),
    columns=(
        Column("journal_partition", "int", "partition of `__consumer_offsets`; -1: sampled"),
        Column("journal_offset", "bigint", "offset in that partition; sampled: a sequence number"),
        Column("at", "timestamp", "the record's timestamp; sampled: time of the sample"),
        *_GROUP_PARTITION,
        _nullable("offset", "bigint", "committed offset; null: the offset was deleted"),
        _nullable("leader_epoch", "int", "leader epoch of the last record read"),
        _nullable("metadata", "string", "metadata that the client committed"),
        _nullable("committed_at", "timestamp", "commit time in the record's value"),
        _nullable("expires_at", "timestamp", "expiry time, if the client set a retention"),
        _nullable("topic_id", "binary", "the topic's id"),
        _nullable("transactional", "boolean", "committed in a transaction; null: sampled"),
        _nullable("not_before", "timestamp", "sampled: the commit was after this time, if known"),
    ),
)

GENERATIONS = Table(
    name="silver/generations",
    row="a generation of a group in the journal; for a consumer, share or streams group: an epoch. "
    "`assigned` of a member has the partitions that it owns alone; `work` has in words what a "
    "member of a share, streams or Connect group is assigned: `orders-0`, `task 0_1 active`, "
    "`connector sink`, `task 0 of sink`",
    key=("group", "offset"),
    columns=(
        Column("group", "string", "group"),
        Column("kind", "string", _KINDS),
        Column("incarnation", "int", "0; 1 after the group was deleted and created again; ..."),
        Column("generation", "int", "generation or epoch; sampled classic group: change number"),
        Column(
            "change",
            "string",
            "`created`, `rebalanced`, `replaced`, `converted`, `emptied`, `deleted`, or "
            "`first_sample`: the first sample of the group",
        ),
        Column("at", "timestamp", "the record's timestamp; sampled: time of the sample"),
        _nullable("state_at", "timestamp", "time at which all members had joined"),
        Column("offset", "bigint", "offset of the journal record; sampled: a sequence number"),
        Column("protocol_type", "string", "protocol type: `consumer`, `connect`, ..."),
        _nullable("strategy", "string", "strategy in use"),
        _nullable("leader", "string", "member id of the leader"),
        Column("members", f"array<{MEMBER}>", "the members, with subscription and assignment"),
        Column("sampled", "boolean", "the row comes from polling, not from the journal"),
        _nullable("not_before", "timestamp", "sampled: the change was after this time, if known"),
    ),
)

GROUPS = Table(
    name="gold/groups",
    row="a group at the end of the evidence; every group with a record in the journal, or with a "
    "sample, has a row",
    key=("group",),
    columns=(
        Column("group", "string", "group"),
        Column(
            "kind",
            "string",
            "`classic`, `consumer`, `share`, `streams`, `connect`, `commits only`, or `other`: a "
            "classic group with another protocol type",
        ),
        Column("protocol_type", "string", "protocol type: `consumer`, `connect`, ...; or empty"),
        _nullable("state", "string", "Kafka's name of the state after the last record"),
        _nullable("epoch", "int", "last generation or epoch"),
        Column("epochs", "int", "number of generations or epochs in the evidence"),
        Column("members", "int", "number of members at the end"),
        Column("topics", "array<string>", "topics of the last members; otherwise with commits"),
        _nullable("partitions", "int", "partitions of the last members; otherwise with commits"),
        _nullable("strategy", "string", "strategy of the last members"),
        Column("first", "timestamp", "time of the first record"),
        Column("last", "timestamp", "time of the last record"),
        Column(
            "last_members",
            "array<struct<member_id: string, group_instance_id: string, client_id: string, "
            "client_host: string, assigned: array<string>>>",
            "the members of the last generation that had any, with their partitions, tasks or "
            "connectors in words",
        ),
        Column("text", "string", "what the group is and does, in one or two sentences"),
    ),
)

REBALANCES = Table(
    name="gold/rebalances",
    row="a rebalance, with all rounds if it is cooperative. Protocol, counts and downtime "
    "are null if members do not own partitions (Connect, share and streams groups), or the "
    "assignment cannot be decoded",
    key=("group", "incarnation", "to_generation"),
    columns=(
        Column("group", "string", "group"),
        Column("kind", "string", _KINDS),
        Column("incarnation", "int", "0; 1 after the group was deleted and created again; ..."),
        _nullable("from_generation", "int", "the generation before; null: not in the evidence"),
        Column("to_generation", "int", "generation after the rebalance"),
        Column("rounds", "int", "number of generations in the rebalance"),
        Column("unseen", "int", "skipped generations: attempts that the journal does not show"),
        Column("at", "timestamp", "time of the last generation of the rebalance"),
        _nullable("started_at", "timestamp", "start; only if the broker's log states it"),
        _nullable("earliest_start", "timestamp", "earliest possible start, if it is not stated"),
        _nullable("latest_start", "timestamp", "latest possible start, if it is not stated"),
        _nullable("joined_at", "timestamp", "time at which all members had joined"),
        _nullable("join_ms", "bigint", "time from the start until all had joined; only if stated"),
        _nullable("sync_ms", "bigint", "time from then until the assignment was written"),
        Column("cause", "string", "cause of the rebalance"),
        Column("evidence", "string", "how the cause is known: `stated`, `inferred`, `sampled`"),
        _nullable("likely", "string", "likely cause, if the cause is unknown"),
        Column("reason", "string", "the broker's words, or the facts that show the cause"),
        _nullable("strategy", "string", "strategy after the rebalance"),
        _nullable("protocol", "string", "`eager`, `cooperative` or `consumer`"),
        Column("members_before", "int", "members before"),
        Column("members_after", "int", "members after"),
        Column("joined", "array<string>", "member ids that joined"),
        Column("left", "array<string>", "member ids that left"),
        _nullable("moved", "int", "partitions that changed their owner; the old owner stayed"),
        _nullable("moves_needed", "int", "fewest moves to the best balance"),
        _nullable("orphaned", "int", "partitions whose owner had left"),
        _nullable("revoked", "int", "partitions revoked from members that stayed"),
        _nullable("idle_members", "int", "members without a partition after the rebalance"),
        _nullable("most", "int", "largest number of partitions of a member afterwards"),
        _nullable("least", "int", "smallest number of partitions of a member afterwards"),
        _nullable(
            "downtime_ms",
            "bigint",
            "downtime that the rebalance ended, in partition-milliseconds, without the reasons "
            "`not polled` and `shut down`",
        ),
        _nullable("downtime_at_least_ms", "bigint", "lower bound of that downtime"),
        _nullable("downtime_at_most_ms", "bigint", "upper bound of that downtime"),
        _nullable(
            "not_polled_ms", "bigint", "time before without polls, in partition-milliseconds"
        ),
        _nullable("delayed_records", "bigint", f"records that arrived in it; {_NO_LOG_ENDS}"),
        _nullable("added_lag_ms", "bigint", f"longest wait of one of them; {_NO_LOG_ENDS}"),
        _nullable("rollout", "string", "rolling deploy that the rebalance is part of"),
    ),
)

DOWNTIME = Table(
    name="gold/downtime",
    row="a time in which no member consumed a partition. Add up lengths to get downtime in "
    "partition-milliseconds; the sums in other tables leave out the reasons `not polled` and "
    "`shut down`",
    key=("group", "topic", "partition", "since", "until", "reason"),
    columns=(
        *_GROUP_PARTITION,
        Column("since", "timestamp", "start: the last owner stopped consuming; or `--since`"),
        Column("until", "timestamp", "end: a member has the partition; or the end of the evidence"),
        Column("ended", "boolean", "false: the partition had no consumer at the end"),
        Column(
            "reason",
            "string",
            "`revoked`, `moved`, `left`, `silent`, `restarted`, `empty`, `shut down` or "
            "`not polled`",
        ),
        _nullable("member_id", "string", "member id of the last owner; null: unknown"),
        Column(
            "evidence",
            "string",
            "`stated`, `inferred`, `sampled`, or `bounded`: only commits show it",
        ),
        Column("at_least_ms", "bigint", "lower bound of the length, in milliseconds"),
        Column("at_most_ms", "bigint", "upper bound of the length, in milliseconds"),
        Column("incarnation", "int", "as in `gold/rebalances`"),
        _nullable("to_generation", "int", "the rebalance that ended it; null: no rebalance did"),
        _nullable("delayed_records", "bigint", f"records that arrived in it; {_NO_LOG_ENDS}"),
        _nullable("added_lag_ms", "bigint", f"longest wait of one of them; {_NO_LOG_ENDS}"),
    ),
)

OWNERSHIP = Table(
    name="gold/ownership",
    row="a period in which a member owned a partition",
    key=("group", "topic", "partition", "since"),
    columns=(
        *_GROUP_PARTITION,
        Column("member_id", "string", "member id of the owner"),
        Column("client_id", "string", "the owner's client id"),
        Column("client_host", "string", "the owner's host"),
        _nullable("group_instance_id", "string", "the owner's `group.instance.id`"),
        Column("since", "timestamp", "start of the period"),
        _nullable("until", "timestamp", "end of the period; null: end of the evidence"),
        Column("from_generation", "int", "first generation in the period"),
        Column("to_generation", "int", "last generation in the period"),
    ),
)

LAG = Table(
    name="gold/lag",
    row="the lag of a partition at the time of a commit",
    key=("group", "topic", "partition", "at", "journal_offset"),
    columns=(
        *_GROUP_PARTITION,
        Column("at", "timestamp", "time of the commit"),
        Column("journal_offset", "bigint", "offset of the commit in the journal"),
        Column("offset", "bigint", "committed offset"),
        Column("end", "bigint", "log end offset at that time"),
        Column("lag", "bigint", "records behind the committed offset"),
        _nullable("lag_seconds", "double", "age of the first uncommitted record"),
        Column("evidence", "string", "`sampled`: interpolated between two samples of the log end"),
        _nullable("member_id", "string", "member id of the partition's owner"),
    ),
)

STATUS = Table(
    name="gold/status",
    row="a verdict on a partition or on a group, by Burrow's rules",
    key=("group", "topic", "partition", "at"),
    columns=(
        Column("group", "string", "group"),
        _nullable("topic", "string", "topic; null: verdict on the group"),
        _nullable("partition", "int", "partition; null: verdict on the group"),
        Column("at", "timestamp", "time of the verdict"),
        Column("verdict", "string", "OK, WARN, STALL, STOP, REWIND; for a group OK, WARN, ERR"),
        _nullable("lag", "bigint", "lag at that time"),
        _nullable("complete", "double", "share of Burrow's window that has commits"),
    ),
)

HEALTH = Table(
    name="gold/health",
    row="the health of a group at the end of the evidence, and its worst health before: `OK`, "
    "`falling behind`, `stuck`, `failing` or `unknown`",
    key=("group",),
    columns=(
        Column("group", "string", "group"),
        Column("health", "string", "health at the end of the evidence"),
        _nullable("since", "timestamp", "start of that health; null: before the evidence"),
        _nullable("topic", "string", "topic of the partition that decides; null: the whole group"),
        _nullable("partition", "int", "the partition that decides; null: the whole group"),
        _nullable("offset", "bigint", "committed offset of a stuck partition"),
        _nullable("lag", "bigint", "records that the group has not consumed; null: unknown"),
        Column("reason", "string", "the facts that show it"),
        Column("worst", "string", "the worst health in the evidence"),
        _nullable("worst_since", "timestamp", "start of the worst health; null: it was always OK"),
        _nullable("worst_until", "timestamp", "end of the worst health; null: it was always OK"),
        _nullable("worst_topic", "string", "topic of the partition; null: the whole group"),
        _nullable("worst_partition", "int", "the partition; null: the whole group"),
        Column("worst_reason", "string", "the facts that show the worst health"),
    ),
)

WHATIF = Table(
    name="gold/whatif",
    row="a rebalance replayed under a policy, from that policy's own previous assignment",
    key=("group", "incarnation", "to_generation", "at", "policy"),
    columns=(
        Column("group", "string", "group"),
        Column("incarnation", "int", "as in `gold/rebalances`"),
        Column("to_generation", "int", "generation after the rebalance"),
        Column("at", "timestamp", "time of the rebalance"),
        Column("policy", "string", "strategy, protocol and membership"),
        Column("actual", "boolean", "the policy is the one that the group used"),
        Column("happens", "boolean", "the rebalance happens under this policy"),
        _nullable(
            "happens_at",
            "timestamp",
            "time under this policy: later than `at` if a static member's session expires first",
        ),
        Column(
            "downtime_ms",
            "bigint",
            "downtime in partition-milliseconds: measured for the policy that the group used, "
            "computed for others",
        ),
        _nullable(
            "delayed_records",
            "bigint",
            "records that arrived in it, for other policies from the average rate of each "
            f"partition; {_NO_LOG_ENDS}",
        ),
        Column("moved", "int", "partitions that changed their owner; the old owner stayed"),
        Column("moves_needed", "int", "fewest moves to the best balance"),
        Column("revoked", "int", "partitions revoked from members that stayed"),
        Column("idle_members", "int", "members without a partition after the rebalance"),
        Column("spread", "int", "largest minus smallest number of partitions of a member"),
    ),
)

ADVICE = Table(
    name="gold/advice",
    row="the summary of a group's history and the recommended policy. Counts and downtime are null "
    "if members do not own partitions (Connect, share and streams groups), or the assignment "
    "cannot be decoded",
    key=("group",),
    columns=(
        Column("group", "string", "group"),
        Column("verdict", "string", "`change`, `keep`, `fix first` or `cannot tell`"),
        Column("policy", "string", "the recommended policy"),
        Column(
            "policies_used", "array<string>", "policies that the group used, the latest one last"
        ),
        _nullable("destination", "string", "setting to plan for; null: none, or not possible yet"),
        Column("rebalances", "int", "number of rebalances"),
        Column("rebalances_after", "int", _AFTER),
        _nullable("downtime_ms", "bigint", "downtime in partition-milliseconds"),
        _nullable("downtime_at_least_ms", "bigint", "lower bound of the downtime"),
        _nullable("downtime_at_most_ms", "bigint", "upper bound of the downtime"),
        _nullable(
            "downtime_current_ms",
            "bigint",
            "expected downtime if the group had always used its latest policy: the mean of the "
            "measured one (computed, if it used several) and the one that a replay gives",
        ),
        _nullable("downtime_after_ms", "bigint", _AFTER),
        _nullable("uncertainty_ms", "bigint", "a smaller saving of downtime is not advised"),
        _nullable("not_polled_ms", "bigint", "time without polls, in partition-milliseconds"),
        Column(
            "downtime_by_reason",
            "map<string, bigint>",
            "partition-milliseconds of each reason in `gold/downtime`",
        ),
        _nullable("delayed_records", "bigint", f"records that downtime delayed; {_NO_LOG_ENDS}"),
        _nullable("delayed_records_after", "bigint", f"an estimate of {_AFTER}"),
        _nullable("added_lag_ms", "bigint", f"longest wait of one of them; {_NO_LOG_ENDS}"),
        _nullable("moved", "int", "partitions moved"),
        _nullable("moved_after", "int", _AFTER),
        _nullable("moves_needed", "int", "fewest moves to the best balance"),
        _nullable("revoked", "int", "partitions revoked from members that stayed"),
        _nullable("revoked_after", "int", _AFTER),
        Column("libraries", "array<string>", "client libraries of the last members, or `unknown`"),
        Column(
            "patterns",
            "array<struct<pattern: string, member: string, topic: string, partition: int, "
            "since: timestamp, until: timestamp, times: int, every_ms: bigint, text: string, "
            "fix: string>>",
            "what happened again and again, or all the time; the most important first",
        ),
        Column("happened", "string", "one sentence: what happened, why, and what it cost"),
        Column("to_do", "string", "one sentence: what to do, and what it saves"),
        Column("recommendation", "string", "the first action in at most 28 characters"),
        _nullable(
            "saving_ms",
            "bigint",
            "downtime that the change of the policy saves: `downtime_current_ms` minus "
            "`downtime_after_ms`; null: no change is advised",
        ),
        Column(
            "actions",
            "array<struct<title: string, kind: string, saving_ms: bigint, "
            "saving_is_bound: boolean, steps: array<struct<text: string, "
            "libraries: array<string>, setting: string, settings: map<string, string>>>>>",
            "what to do, in this order. `kind`: `repair`, `policy`, `protocol` or `note`. "
            "`saving_ms` is null if unknown, and an upper bound if `saving_is_bound`; savings "
            "overlap. A step is for the clients in `libraries`, or for all if that is empty; "
            "`setting` (all clients) and `settings` (by client) are the text to copy",
        ),
        Column(
            "setting_libraries",
            "array<string>",
            "clients that `settings` in `actions` are for; those of the group first",
        ),
    ),
)

ADVISED = Table(
    name="gold/advised",
    row="a period in which a member would have owned a partition under the policy in "
    "`gold/advice`. A group that should keep its policy has no rows",
    key=("group", "topic", "partition", "since"),
    columns=(
        *_GROUP_PARTITION,
        Column("member_id", "string", "the owner's member id; for a static member its first one"),
        Column("client_id", "string", "the owner's client id"),
        Column("client_host", "string", "the owner's host"),
        Column("since", "timestamp", "start of the period"),
        _nullable("until", "timestamp", "end of the period; null: end of the evidence"),
    ),
)

EVIDENCE = Table(
    name="gold/evidence",
    row="a summary of the run's input: time window, gaps, records that were not decoded",
    key=(),
    columns=(
        Column("demo", "boolean", "simulated data"),
        _nullable("first", "timestamp", "time of the first record"),
        _nullable("last", "timestamp", "time of the last record"),
        _nullable("since", "timestamp", "start of the time window of the tables; null: no limit"),
        _nullable("until", "timestamp", "end of the time window of the tables; null: no limit"),
        Column("records", "bigint", "number of records read from the journal"),
        Column("commits", "bigint", "number of rows in `silver/commits`"),
        Column("generations", "bigint", "number of rows in `silver/generations`"),
        Column("rebalances", "bigint", "number of rows in `gold/rebalances`"),
        Column("logs", "int", "number of broker log files"),
        Column("lines", "bigint", "number of lines about groups in them"),
        Column("samples", "bigint", "number of rows in `bronze/ends`"),
        _nullable(
            "cluster",
            "struct<bootstrap_servers: string, topic: string, partitions: int, "
            "max_records: bigint, bytes: bigint, acls: array<string>>",
            "the live cluster and the size of its journal",
        ),
        _nullable(
            "lookups",
            "struct<allowed: bigint, made: bigint, partitions: bigint, "
            "skipped_partitions: array<string>, before_log_start: bigint, "
            "failed: map<string, array<string>>>",
            "lookups of log end offsets; with `--follow` only in micro-batches that were "
            "computed on Spark",
        ),
        _nullable(
            "polled",
            "struct<first: timestamp, last: timestamp, every: double, rounds: bigint, "
            "groups: array<string>, "
            "gaps: array<struct<begin: timestamp, end: timestamp, why: string>>>",
            "result of `--poll`; `every` is in seconds",
        ),
        Column(
            "windows",
            "array<struct<group: string, at: timestamp, whole: boolean>>",
            "time from which on each group is complete; `whole`: from its first record on",
        ),
        Column(
            "complete",
            "array<struct<journal_partition: int, offset: bigint, at: timestamp>>",
            "offset from which on each partition of the journal is complete",
        ),
        Column(
            "unread",
            "array<struct<what: string, count: bigint, examples: array<string>>>",
            "input that could not be decoded, with examples",
        ),
    ),
)

TABLES = (
    *(JOURNAL, ENDS, SERVERLOG, SAMPLES),  # bronze
    *(COMMITS, GENERATIONS),  # silver
    *(GROUPS, REBALANCES, DOWNTIME, OWNERSHIP, LAG, STATUS, HEALTH),  # gold
    *(WHATIF, ADVICE, ADVISED, EVIDENCE),
)
