"""Lines of a broker's log: when, and what its group coordinator says.

Read are

- text as log4j writes it by Kafka's own patterns, of 4.x
  (``[2026-11-15 14:00:08,172] INFO [GroupCoordinator id=1 topic=__consumer_offsets partition=43]
  Stabilized group g generation 1 with 1 members. (org.apache.kafka....)``) and of 2.x and 3.x
  (``... INFO [GroupCoordinator 1]: Stabilized group g generation 1 (__consumer_offsets-43) with 1
  members (kafka.coordinator.group.GroupCoordinator)``), with or without what a container's log
  adds in front;
- JSON lines with a time and a message, or with a whole line of text.

A time of text has no zone of its own: it is taken for one of the zone that is given.
"""

from __future__ import annotations

import enum
import json
import re

from rota.replay import saying
from rota.replay.fact import LogLine

MINUTE = 60_000
DAY = 24 * 60 * MINUTE
LATEST = 253_402_300_799_999
"""The end of the year 9999: what is later is no time."""
LONGEST = 1 << 15
"""A longer line is not looked into: it is nothing that a coordinator says."""
_SECOND_DIGITS = 3


class Passed(enum.StrEnum):
    """Why a line gave nothing."""

    OTHER = "not about a group"
    STRANGE = "about a group, but not understood"


_STAMP = re.compile(
    r"(\d{4})-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])[ T]([01]\d|2[0-3]):([0-5]\d):([0-5]\d|60)"
    r"(?:[.,](\d{1,9}))?"
    r"(?:\s?(Z|[+-]\d\d:?(?:\d\d)?))?(?!\d)"
)
_COORDINATOR = re.compile(
    r"\[Group(?:Coordinator|MetadataManager) (?:id=|brokerId=)?-?\d+[^\]]*\]:? "
)
_LOGGER = re.compile(r" \(((?:[\w$]+\.)+[\w$]+)\)(?: \[[^\[\]]*\])?\s*$")
_LEVEL = re.compile(r"\]? *(?:TRACE|DEBUG|INFO|WARN|ERROR|FATAL) +")
_GROUP_LOGGERS = ("kafka.coordinator.group.", "org.apache.kafka.coordinator.group.")
_MESSAGES = ("m", "message", "msg", "log")
_TIMES = ("t", "timeMillis", "@timestamp", "timestamp", "time", "ts")


def parse(line: str, zone: int = 0) -> LogLine | Passed:
    """What a line of a log says about a group.

    ``zone`` is how many minutes the log's clock is ahead of UTC.
    """
    if len(line) > LONGEST or "roup" not in line:
        return Passed.OTHER
    if line.lstrip().startswith("{"):
        return _from_json(line, zone)
    return _from_text(line, None, zone)


def read(at: int, message: str) -> LogLine | Passed:
    """What a coordinator's sentence, said at a known time, says about a group."""
    found = saying.understood(at, message)
    if found is not None:
        return found
    return Passed.OTHER if saying.names_no_group(message) else Passed.STRANGE


def _from_text(line: str, at: int | None, zone: int) -> LogLine | Passed:
    """A line of text; ``at`` is known where something around it says so."""
    line = line.rstrip("\r\n")
    coordinator = _COORDINATOR.search(line)
    logger = _LOGGER.search(line)
    speaks = coordinator is not None or (
        logger is not None and logger[1].startswith(_GROUP_LOGGERS)
    )
    stamp = _STAMP.search(line)
    if coordinator is not None:
        start = coordinator.end()
    else:
        level = _LEVEL.search(line, stamp.end() if stamp is not None else 0)
        start = level.end() if level is not None else stamp.end() if stamp is not None else 0
    if stamp is not None and stamp.end() <= start:
        at = _time(stamp, zone)
    message = line[start : logger.start() if logger is not None else None].strip()
    found = saying.understood(at or 0, message)
    if found is None:
        strange = speaks and not saying.names_no_group(message)
        return Passed.STRANGE if strange else Passed.OTHER
    return found if at is not None else Passed.STRANGE


def _from_json(line: str, zone: int) -> LogLine | Passed:
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        return Passed.OTHER
    if not isinstance(told, dict):
        return Passed.OTHER
    message = next((told[key] for key in _MESSAGES if isinstance(told.get(key), str)), None)
    if message is None or any("\ud800" <= letter <= "\udfff" for letter in message):
        return Passed.OTHER  # half a character cannot be written down again
    at = _json_time(told, zone)
    if "m" in told and at is not None:
        return read(at, message)
    return _from_text(message, at, zone)


def _json_time(told: dict[str, object], zone: int) -> int | None:
    for key in _TIMES:
        match told.get(key):
            case bool():
                continue
            case int(value) if abs(value) <= LATEST:
                return value
            case float(value) if abs(value) <= LATEST // 1000:
                return int(value * 1000)  # seconds with a fraction
            case str(value) if (stamp := _STAMP.search(value)) is not None:
                return _time(stamp, zone)
            case _:
                continue
    return None


def _time(stamp: re.Match[str], zone: int) -> int:
    """A written time as milliseconds since 1970."""
    year, month, day, hour, minute, second = (int(stamp[part]) for part in range(1, 7))
    fraction = int(((stamp[7] or "") + "000")[:_SECOND_DIGITS])
    if stamp[8] is not None:
        zone = _offset(stamp[8])
    passed = ((hour * 60 + minute - zone) * 60 + second) * 1000 + fraction
    return _days(year, month, day) * DAY + passed


def _offset(text: str) -> int:
    """Minutes ahead of UTC, of "Z", "+02:00", "-0530" or "+01"."""
    if text == "Z":
        return 0
    digits = text[1:].replace(":", "")
    minutes = int(digits[:2]) * 60 + int(digits[2:] or 0)
    return -minutes if text[0] == "-" else minutes


def _days(year: int, month: int, day: int) -> int:
    """Days from 1970 to a date of the Gregorian calendar; the core knows no clock or calendar."""
    # Counted in years that begin in March, so that the day that leap years add is the last one.
    year -= month <= 2
    months = (month + 9) % 12
    return (
        365 * year + year // 4 - year // 100 + year // 400 + (153 * months + 2) // 5 + day - 719_469
    )
