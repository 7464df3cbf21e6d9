"""How long to wait before something is tried again: longer each time, and never all at once."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from rota.errors import InputError, NotKafka, Refused, RotaError, Untrusted

JITTER = 0.2
"""As much more or less than planned, so that clients that failed together do not come together."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Doubles with every failure, from the first pause to the longest; in seconds."""

    first: float
    most: float

    @classmethod
    def of(cls, first: int, most: int) -> Backoff:
        """From Kafka's settings, in milliseconds."""
        return cls(first / 1000, most / 1000)

    def after(self, failures: int) -> float:
        """The pause after so many failures in a row, as Kafka has it: none without a failure, and
        never longer than the longest, which holds from the first on if it is shorter than that.
        """
        if failures < 1:
            return 0.0
        if self.most <= self.first:
            return self.most
        exponent = min(failures - 1, math.log2(self.most / max(self.first, 0.001)))
        planned = self.first * math.pow(2, exponent)
        return min(self.most, spread(planned))


def spread(pause: float) -> float:
    """Somewhat more or less: chance against a stampede, not against a guess."""
    return pause * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311


def hopeless(error: RotaError) -> bool:
    """Would the same come out of another try? A login that is refused, a certificate that is not
    trusted, a server that is no Kafka: the user must know, and the broker be left alone.
    """
    certain = isinstance(error, NotKafka) and error.certain
    return certain or isinstance(error, Refused | InputError | Untrusted)
