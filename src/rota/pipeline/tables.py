"""Every table of the pipeline: columns, key and meaning, declared once.

Types are Spark's DDL. :mod:`rota.pipeline.arrow` makes schemas of them, ``docs/tables.md`` is
generated from them, and tests compare both with this module. Imports nothing, so that the report
needs no Spark.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name, its type and its meaning."""

    name: str
    type: str
    meaning: str
    #: False: may be null.
    required: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table: its folder, the meaning of a row, its key and its columns."""

    #: ``gold/rebalances``: also its folder.
    name: str
    row: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]


def _nullable(name: str, kind: str, meaning: str) -> Column:
    return Column(name, kind, meaning, required=False)


MEMBER = (
    "struct<member_id: string, group_instance_id: string, client_id: string, client_host: string, "
    "session_timeout: int, rebalance_timeout: int, rack: string, topics: array<string>, "
    "owned: map<string, array<int>>, owned_generation: int, "
    "assigned: map<string, array<int>>, library: string, problem: string>"
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
        Column("control", "boolean", "of a control batch: a transaction's marker"),
        Column("transactional", "boolean", "of a transaction"),
        Column("producer_id", "bigint", "the producer of its batch; -1: none"),
        Column("producer_epoch", "smallint", "the producer's epoch; -1: none"),
    ),
)

ENDS = Table(
    name="bronze/ends",
    row="a sample of a partition's first and last offset",
    key=("topic", "partition", "at"),
    columns=(
        Column("topic", "string", "topic"),
        Column("partition", "int", "partition"),
        Column("at", "timestamp", "when it was so: when it was asked for, or looked up since"),
        _nullable(
            "beginning", "bigint", "the first offset that is there; null: not known for then"
        ),
        Column("end", "bigint", "the next offset to be written"),
    ),
)

SERVERLOG = Table(
    name="bronze/serverlog",
    row="a line of a broker's log that is about a group",
    key=("file", "line"),
    columns=(
        Column("file", "string", "name of the log file"),
        Column("line", "bigint", "line in it, from 1"),
        Column("at", "timestamp", "when it was written"),
        Column("group", "string", "group"),
        Column("what", "string", "what the line tells of: preparing, stabilized, assigned, ..."),
        _nullable("generation", "int", "generation or epoch that it names"),
        _nullable("member_id", "string", "member that it names"),
        _nullable("reason", "string", "the broker's reason"),
        _nullable("client_reason", "string", "the client's reason"),
        Column("text", "string", "the whole message"),
    ),
)

SAMPLES = Table(
    name="bronze/samples",
    row="a group as `--poll` found it, where that was another than the time before",
    key=("group", "at"),
    columns=(
        Column("group", "string", "group"),
        Column("at", "timestamp", "when the answers were there"),
        _nullable(
            "not_before",
            "timestamp",
            "when it was asked before, and was another, or not there; null: never",
        ),
        Column("kind", "string", "`classic` or `consumer` (KIP-848)"),
        Column("state", "string", "as the broker names it; `Dead`: it is gone"),
        Column("protocol_type", "string", "`consumer`, or what else the group is"),
        _nullable("strategy", "string", "strategy in use"),
        _nullable("epoch", "int", "epoch of a consumer group"),
        Column(
            "members",
            f"array<{MEMBER}>",
            "who was in it; of a consumer group: `owned` is what a member had, `assigned` what it "
            "shall have",
        ),
    ),
)

COMMITS = Table(
    name="silver/commits",
    row="a committed offset, or its deletion",
    key=("journal_partition", "journal_offset"),
    columns=(
        Column("journal_partition", "int", "partition of `__consumer_offsets`; -1: sampled"),
        Column("journal_offset", "bigint", "offset in that partition; sampled: a running number"),
        Column("at", "timestamp", "the record's timestamp; sampled: when it was seen"),
        Column("group", "string", "group"),
        Column("topic", "string", "topic"),
        Column("partition", "int", "partition"),
        _nullable("offset", "bigint", "what was committed; null: the offset was deleted"),
        _nullable("leader_epoch", "int", "leader epoch of the last record read"),
        _nullable("metadata", "string", "what the client added"),
        _nullable("committed_at", "timestamp", "when, as the entry says"),
        _nullable("expires_at", "timestamp", "where the client asked for a retention"),
        _nullable("topic_id", "binary", "the topic's id"),
        _nullable(
            "transactional", "boolean", "committed in a transaction; null: not told to pollers"
        ),
        _nullable(
            "not_before",
            "timestamp",
            "sampled: it was committed after this and by `at`; null: it is in the journal, or was "
            "there at the first sample",
        ),
    ),
)

GENERATIONS = Table(
    name="silver/generations",
    row="a generation of a group, as it was saved; of a consumer group an epoch",
    key=("group", "offset"),
    columns=(
        Column("group", "string", "group"),
        Column("kind", "string", "`classic` or `consumer` (KIP-848)"),
        Column("life", "int", "0; 1 after the group was deleted and made again; ..."),
        Column(
            "generation",
            "int",
            "generation, or epoch; of a classic group that was sampled: which change, from 0",
        ),
        Column(
            "mark",
            "string",
            "`created`, `settled`, `replaced`, `converted`, `emptied`, `forgotten`; `found`: as it "
            "was at the first sample",
        ),
        Column("at", "timestamp", "the record's timestamp; sampled: when it was seen"),
        _nullable("state_at", "timestamp", "when the members had joined"),
        Column(
            "offset",
            "bigint",
            "offset of the record in its partition of the journal; sampled: a running number",
        ),
        Column("protocol_type", "string", "`consumer`, or what else the group is"),
        _nullable("strategy", "string", "strategy in use"),
        _nullable("leader", "string", "member that assigned"),
        Column("members", f"array<{MEMBER}>", "who was in it, with what each asked for and got"),
        Column("sampled", "boolean", "seen by polling, not in the journal"),
        _nullable(
            "not_before",
            "timestamp",
            "sampled: it came about after this and by `at`; null: in the journal, or not known",
        ),
    ),
)

REBALANCES = Table(
    name="gold/rebalances",
    row="a rebalance; the rounds of a cooperative one are one. Protocol and counts are null where "
    "members do not share partitions (Connect), or what they share cannot be read",
    key=("group", "life", "to_generation"),
    columns=(
        Column("group", "string", "group"),
        Column("kind", "string", "`classic` or `consumer` (KIP-848)"),
        Column("life", "int", "0; 1 after the group was deleted and made again; ..."),
        _nullable("from_generation", "int", "generation it began from; null: not in the evidence"),
        Column("to_generation", "int", "generation it ended in"),
        Column("rounds", "int", "generations it took"),
        Column("unseen", "int", "generation numbers skipped: attempts the journal does not show"),
        Column("at", "timestamp", "when its last generation was saved"),
        _nullable("started_at", "timestamp", "when members were called to join; only where stated"),
        _nullable("earliest_start", "timestamp", "else it began between here ..."),
        _nullable("latest_start", "timestamp", "... and here"),
        _nullable("joined_at", "timestamp", "when all had joined"),
        _nullable("join_ms", "bigint", "from the call to join until all had; only where stated"),
        _nullable("sync_ms", "bigint", "from there until the assignment was saved"),
        Column("cause", "string", "why"),
        Column(
            "evidence",
            "string",
            "`stated` by the broker's log, `inferred` from the journal, or `sampled`",
        ),
        _nullable("likely", "string", "the best guess where the cause is unknown"),
        Column("reason", "string", "the broker's words, or what speaks for the cause"),
        _nullable("strategy", "string", "strategy in use after it"),
        _nullable("protocol", "string", "`eager`, `cooperative` or `consumer`"),
        Column("members_before", "int", "members before"),
        Column("members_after", "int", "members after"),
        Column("joined", "array<string>", "member ids that are new"),
        Column("left", "array<string>", "member ids that are gone"),
        _nullable("moved", "int", "partitions with another owner though theirs was still there"),
        _nullable("moved_min", "int", "the fewest that the best balance had to move"),
        _nullable("orphaned", "int", "partitions whose owner was gone"),
        _nullable("stopped", "int", "partitions that a living member had to give up"),
        _nullable("idle_members", "int", "members with nothing to do after it"),
        _nullable("most", "int", "the largest load after it"),
        _nullable("least", "int", "the smallest load after it"),
        _nullable("rollout", "string", "the rolling deploy that it is part of"),
    ),
)

OWNERSHIP = Table(
    name="gold/ownership",
    row="who owned a partition from when to when",
    key=("group", "topic", "partition", "since"),
    columns=(
        Column("group", "string", "group"),
        Column("topic", "string", "topic"),
        Column("partition", "int", "partition"),
        Column("member_id", "string", "its owner"),
        Column("client_id", "string", "the owner's client id"),
        Column("client_host", "string", "the owner's host"),
        _nullable("group_instance_id", "string", "the owner's `group.instance.id`"),
        Column("since", "timestamp", "from"),
        _nullable("until", "timestamp", "to; null: to the end of the evidence"),
        Column("from_generation", "int", "first generation of it"),
        Column("to_generation", "int", "last generation of it"),
    ),
)

LAG = Table(
    name="gold/lag",
    row="the lag of a partition at a commit",
    key=("group", "topic", "partition", "at", "journal_offset"),
    columns=(
        Column("group", "string", "group"),
        Column("topic", "string", "topic"),
        Column("partition", "int", "partition"),
        Column("at", "timestamp", "when it was committed"),
        Column("journal_offset", "bigint", "the commit's place in its partition of the journal"),
        Column("offset", "bigint", "what was committed"),
        Column("end", "bigint", "the partition's end at that time"),
        Column("lag", "bigint", "records that were still to be read"),
        _nullable("lag_seconds", "double", "how old the next record to be read was"),
        Column("evidence", "string", "`sampled`: between two samples of the end"),
        _nullable("member_id", "string", "the partition's owner"),
    ),
)

STATUS = Table(
    name="gold/status",
    row="a verdict at a time, by Burrow's rules: on a partition, or without one on the group",
    key=("group", "topic", "partition", "at"),
    columns=(
        Column("group", "string", "group"),
        _nullable("topic", "string", "topic; null: the whole group"),
        _nullable("partition", "int", "partition; null: the whole group"),
        Column("at", "timestamp", "as of when"),
        Column("verdict", "string", "OK, WARN, STALL, STOP, REWIND; of a group OK, WARN, ERR"),
        _nullable("lag", "bigint", "records to be read then"),
        _nullable("complete", "double", "share of the window that there is"),
    ),
)

WHATIF = Table(
    name="gold/whatif",
    row="a rebalance under a policy, carried forward from that policy's own previous result",
    key=("group", "life", "to_generation", "at", "policy"),
    columns=(
        Column("group", "string", "group"),
        Column("life", "int", "as in `gold/rebalances`"),
        Column("to_generation", "int", "the rebalance, by the generation it ended in"),
        Column("at", "timestamp", "when it was"),
        Column("policy", "string", "strategy, protocol and membership"),
        Column("actual", "boolean", "it is the policy that was in use"),
        Column("happens", "boolean", "there is a rebalance under this policy"),
        _nullable(
            "happens_at",
            "timestamp",
            "when it would be: later than `at` where a static member's session has to end first",
        ),
        Column("moved", "int", "partitions with another owner though theirs was still there"),
        Column("moved_min", "int", "the fewest that the best balance had to move"),
        Column("stopped", "int", "partitions that a living member had to give up"),
        Column("idle_members", "int", "members with nothing to do after it"),
        Column("spread", "int", "the largest load less the smallest"),
    ),
)

ADVICE = Table(
    name="gold/advice",
    row="a group: what happened to it, and what would have been better. Counts are null where "
    "members do not share partitions (Connect), or what they share cannot be read",
    key=("group",),
    columns=(
        Column("group", "string", "group"),
        Column("verdict", "string", "`change`, `keep` or `cannot tell`"),
        Column("policy", "string", "the best policy"),
        Column("policy_used", "string", "the policy in use"),
        Column(
            "damage",
            "double",
            "what ranks groups: partitions stopped, and moved without need",
        ),
        Column("rebalances", "int", "rebalances that there were"),
        Column("rebalances_after", "int", "and under the best policy"),
        _nullable("moved", "int", "partitions moved"),
        _nullable("moved_after", "int", "and under the best policy"),
        _nullable("moved_min", "int", "the fewest that had to move"),
        _nullable("stopped", "int", "partitions stopped"),
        _nullable("stopped_after", "int", "and under the best policy"),
        Column(
            "libraries",
            "array<string>",
            "client libraries of its last members; `unknown` if that of a member could not be told",
        ),
        Column("headline", "string", "what happened, what was needless, what to change"),
        Column("steps", "array<string>", "how to migrate"),
    ),
)

ADVISED = Table(
    name="gold/advised",
    row="who would have owned a partition from when to when, under the policy that `gold/advice` "
    "advises; groups that should keep theirs have none",
    key=("group", "topic", "partition", "since"),
    columns=(
        Column("group", "string", "group"),
        Column("topic", "string", "topic"),
        Column("partition", "int", "partition"),
        Column(
            "member_id",
            "string",
            "its owner; of static members who came back: the first id of each",
        ),
        Column("client_id", "string", "the owner's client id"),
        Column("client_host", "string", "the owner's host"),
        Column("since", "timestamp", "from"),
        _nullable("until", "timestamp", "to; null: to the end of the evidence"),
    ),
)

EVIDENCE = Table(
    name="gold/evidence",
    row="the run: what it has read, what of it could not be read, and from when on it is complete",
    key=(),
    columns=(
        Column("demo", "boolean", "a simulated day, no cluster of anybody's"),
        _nullable("first", "timestamp", "the first record's time"),
        _nullable("last", "timestamp", "the last record's time"),
        _nullable("since", "timestamp", "what happened from then on is shown; null: everything"),
        _nullable("until", "timestamp", "and up to then"),
        Column("records", "bigint", "records of the journal"),
        Column("commits", "bigint", "rows of `silver/commits`"),
        Column("generations", "bigint", "rows of `silver/generations`"),
        Column("rebalances", "bigint", "rows of `gold/rebalances`"),
        Column("logs", "int", "files of brokers' logs that were given"),
        Column("lines", "bigint", "lines of them that are about groups"),
        Column("samples", "bigint", "rows of `bronze/ends`"),
        _nullable(
            "cluster",
            "struct<bootstrap_servers: string, topic: string, partitions: int, "
            "most_records: bigint, bytes: bigint, acls: array<string>>",
            "what there was to read in a live cluster",
        ),
        _nullable(
            "lookups",
            "struct<most: bigint, made: bigint, partitions: bigint, "
            "partitions_left_out: array<string>, of_a_time_that_is_deleted: bigint, "
            "not_to_be_had: map<string, array<string>>>",
            "what the cluster was asked about ends of partitions; of a run that follows: while it "
            "computed everything, not the samples of small rounds",
        ),
        _nullable(
            "polled",
            "struct<first: timestamp, last: timestamp, every: double, rounds: bigint, "
            "groups: array<string>, "
            "gaps: array<struct<begin: timestamp, end: timestamp, why: string>>>",
            "what came of `--poll`; `every` is in seconds",
        ),
        Column(
            "windows",
            "array<struct<group: string, at: timestamp, whole: boolean>>",
            "of each group, from when on its records are all there, and whether its first one is",
        ),
        Column(
            "complete",
            "array<struct<journal_partition: int, offset: bigint, at: timestamp>>",
            "of each partition of the journal, from where on all its records are there",
        ),
        Column(
            "unread",
            "array<struct<what: string, count: bigint, examples: array<string>>>",
            "what could not be read",
        ),
    ),
)

TABLES = (
    JOURNAL,
    ENDS,
    SERVERLOG,
    SAMPLES,
    COMMITS,
    GENERATIONS,
    REBALANCES,
    OWNERSHIP,
    LAG,
    STATUS,
    WHATIF,
    ADVICE,
    ADVISED,
    EVIDENCE,
)
