"""``rota produce``: writes lines to a topic. The flags; produce_records.py does the work."""

from __future__ import annotations

import argparse
import importlib.util

from rota.cli import flags
from rota.cli.flags import flag_adder
from rota.errors import Unreachable

HELP = "write lines to a topic, one record per line"

DESCRIPTION = """\
Writes lines to a topic, one record per line, and waits until the cluster has stored all of them
(acks=all, without duplicates). Needs confluent-kafka: pip install 'rota[produce]'.
"""

EXAMPLES = """\
examples:
  echo hello | rota produce --topic orders --bootstrap-servers kafka:9092
  rota produce --topic orders --bootstrap-servers kafka:9092 orders.txt more-orders.txt
  rota produce --topic orders --key-separator : --bootstrap-servers kafka:9092 < lines
      the line 42:paid becomes the key 42 and the value paid
  rota produce --topic orders --header source=import --command-config client.properties orders.txt
  rota consume --topic a --from-beginning --to-end --json --bootstrap-servers kafka:9092 |
      rota produce --topic b --json --bootstrap-servers kafka:9092
      a copy with keys, headers and timestamps; --keep-partitions keeps the partitions too

settings: Kafka's names for producer settings; they are translated for librdkafka. A key goes to the
same partition as with Java's producer.

"""


def add_flags(parser: argparse.ArgumentParser) -> None:
    flags.add_connection_flags(flag_adder(parser, "the cluster"))
    add = flag_adder(parser, "the records")
    add("files FILE", "files of lines (default: stdin)", nargs="*")
    add("--topic NAME", "the topic; with --json, it replaces the topic of each line")
    add("--key-separator TEXT", "ends the key of a line (\\t is a tab); without it, no keys")
    add("--header NAME=VALUE", "a header for every record; may be repeated", repeated=True)
    number = flags.whole_number("the number of a partition", 0, 999_999_999)
    add("--partition N", "write all records to this partition (default: by the key)", type=number)
    add("--json", "read JSON lines of `rota consume --json`: key, value, headers and timestamp")
    add("--keep-partitions", "with --json: write each record to the partition in its line")
    flag_adder(parser)("--quiet", "print only errors and warnings on stderr")


def run(args: argparse.Namespace) -> bool:
    if args.topic is None and not args.json:
        args.error("--topic is needed")
    if args.topic == "":
        args.error("--topic: the name of a topic is empty")
    if args.json and args.key_separator is not None:
        args.error("--key-separator is for lines of text: JSON lines have their own keys")
    if args.key_separator == "":
        args.error("--key-separator is empty")
    if args.keep_partitions and not args.json:
        args.error("--keep-partitions needs --json")
    if args.keep_partitions and args.partition is not None:
        args.error("give either --keep-partitions or --partition")
    args.header = list(flags.split_pairs(args, "header", "NAME=VALUE"))
    settings = flags.read_connection_settings(args)
    if importlib.util.find_spec("confluent_kafka") is None:
        hint = "pip install 'rota[produce]' ('.[produce]' in a clone)"
        raise Unreachable(f"rota produce needs confluent-kafka: {hint}")
    from rota.cli.produce_records import write_records  # noqa: PLC0415 (not for --help)

    return write_records(args, settings)
