"""What each benchmark must reach. The only place where these figures stand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from bench.measure import Measurement
from bench.peer import (
    AIOKAFKA,
    CONFLUENT,
    CONFLUENT_ASYNC,
    FRANZ_GO,
    JAVA,
    KAFKA,
    KAFKA_PYTHON,
    SPARK,
    SPARK_TUNED,
)

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """An upper bound on time, alone or against the fastest of some peers; on memory; on loads."""

    seconds: float | None = None
    ratio: float | None = None
    of: tuple[str, ...] = (JAVA, FRANZ_GO)
    mib: int | None = None
    loads: tuple[int, int] | None = None
    certified: bool = False

    def __str__(self) -> str:
        parts = []
        if self.ratio is not None:
            whom = f"the faster of {' and '.join(self.of)}" if len(self.of) > 1 else self.of[0]
            parts.append(f"at most {self.ratio:.3g} of {whom}")
        if self.seconds is not None:
            parts.append(f"under {format_seconds(self.seconds)}")
        if self.mib is not None:
            parts.append(f"peak {self.mib} MiB")
        if self.loads is not None:
            parts.append(f"loads {self.loads[0]} to {self.loads[1]}")
        if self.certified:
            parts.append("certificate checked")
        return ", ".join(parts)

    def met(self, ours: Measurement, theirs: Mapping[str, Measurement]) -> bool | None:
        """None where a peer that is needed to tell did not run."""
        if ours.seconds is None or not self._met_alone(ours, ours.seconds):
            return False
        if self.ratio is None:
            return True
        times = [theirs[name].seconds for name in self.of if name in theirs]
        known = [seconds for seconds in times if seconds is not None]
        if len(known) < len(self.of):
            return None
        return ours.seconds <= self.ratio * min(known)

    def _met_alone(self, ours: Measurement, seconds: float) -> bool:
        return (
            not ours.over
            and ours.trouble is None
            and (self.seconds is None or seconds < self.seconds)
            and (self.mib is None or (ours.peak is not None and ours.peak <= self.mib * MIB))
            and (self.loads is None or ours.loads == self.loads)
        )


def format_seconds(seconds: float) -> str:
    """Seconds as a person reads them."""
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 0.1:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds:.3g} s"


LIMITS: Mapping[str, Limit] = MappingProxyType(
    {
        "equal": Limit(ratio=0.5, mib=80),
        "one-differs": Limit(ratio=0.5),
        "leader": Limit(ratio=1, of=(JAVA,)),
        "newcomer": Limit(seconds=0.05),
        "scattered": Limit(seconds=0.15, loads=(10, 10)),
        "one-topic-each": Limit(seconds=0.005),
        "different": Limit(seconds=0.15, certified=True),
        "different-large": Limit(seconds=2, mib=200, certified=True),
        "dealt": Limit(ratio=0.2),
        "small": Limit(seconds=0.001),
        "kafka-equal": Limit(ratio=1, of=(JAVA,)),
        "kafka-newcomer": Limit(ratio=5, of=(JAVA,), seconds=60),
        "import": Limit(seconds=0.1),
        "heartbeats": Limit(seconds=1),
        "commits": Limit(seconds=1),
        "join": Limit(seconds=1),
        "replay": Limit(seconds=30, mib=1024),
        "day": Limit(seconds=60),
        "decode": Limit(seconds=1),  # 300,000 records
        "whatif": Limit(seconds=2),
        "downtime": Limit(seconds=2),
        "pipeline-half": Limit(seconds=150, mib=700),
        "pipeline": Limit(seconds=300, mib=700),
        "follow": Limit(seconds=10),
        "page-file": Limit(mib=4),  # 5 MB are 4.77 MiB
        "page-paint": Limit(seconds=0.3),
        "page-interaction": Limit(seconds=0.1),
        "broker-start": Limit(seconds=0.3),
        "broker-command": Limit(seconds=1),
        "broker-idle": Limit(mib=100),
        "broker-data": Limit(ratio=2, of=(KAFKA,)),
        "broker-join": Limit(ratio=1, of=(KAFKA,)),
        "broker-group": Limit(ratio=1, of=(KAFKA,), seconds=2),
        "broker-connections": Limit(seconds=0.05, mib=100),
        "broker-restart": Limit(seconds=1),
        "consumer-record": Limit(ratio=1 / 3, of=(KAFKA_PYTHON, AIOKAFKA), mib=100),
        "consumer-record-c": Limit(ratio=1 / 0.7, of=(CONFLUENT,)),
        "consumer-record-async": Limit(ratio=1 / 0.7, of=(CONFLUENT_ASYNC,)),
        "consumer-batch": Limit(ratio=1, of=(KAFKA_PYTHON, AIOKAFKA, CONFLUENT), mib=100),
        "consumer-first": Limit(ratio=1, of=(CONFLUENT,)),
        "consumer-idle": Limit(seconds=0.01),
        "source-small": Limit(ratio=1 / 2.5, of=(SPARK,), mib=500),
        "source-small-tuned": Limit(ratio=1, of=(SPARK_TUNED,)),
        "source-large": Limit(ratio=1 / 2.5, of=(SPARK,), mib=500),
        "source-large-tuned": Limit(ratio=1 / 0.95, of=(SPARK_TUNED,)),
        "source-stream": Limit(ratio=1 / 1.2, of=(SPARK,), mib=500),
        "source-stream-tuned": Limit(),  # for comparison
        "source-cpu": Limit(ratio=1, of=(SPARK,)),
        "source-lookup": Limit(seconds=5),
        "broker-recovery": Limit(seconds=2),  # 100 MiB behind the recovery point
    }
)
