"""Random numbers from a seed: the same numbers on every machine and in every run.

The generator is SplitMix64 (Steele, Lea and Flood, 2014). Python does not promise that ``random``
gives the same numbers in every version.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

MASK = 2**64 - 1
GAMMA = 0x9E3779B97F4A7C15
T = TypeVar("T")


def mix_bits(number: int) -> int:
    """Returns 64 bits that depend on every bit of the number."""
    number = (number ^ (number >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    number = (number ^ (number >> 27)) * 0x94D049BB133111EB & MASK
    return number ^ (number >> 31)


def mix_numbers(*numbers: int) -> int:
    """Returns 64 bits that depend on the numbers alone, not on earlier draws."""
    state = 0
    for number in numbers:
        state = mix_bits((state + GAMMA + number) & MASK)
    return state


def hash_text(text: str) -> int:
    """Returns a number for a text; Python's own ``hash`` differs from process to process."""
    state = 0
    for byte in text.encode():
        state = mix_bits((state + GAMMA + byte) & MASK)
    return state


class SeededRandom:
    __slots__ = ("_state",)

    def __init__(self, *seed: int) -> None:
        self._state = mix_numbers(*seed)

    def bits(self) -> int:
        self._state = (self._state + GAMMA) & MASK
        return mix_bits(self._state)

    def below(self, limit: int) -> int:
        return (self.bits() * limit) >> 64

    def between(self, low: int, high: int) -> int:
        """Returns a whole number from low to high, both included."""
        return low + self.below(high - low + 1)

    def happens(self, probability: float) -> bool:
        return self.bits() < probability * 2**64

    def pick(self, choices: Sequence[T]) -> T:
        return choices[self.below(len(choices))]


def make_uuid(*numbers: int) -> str:
    """Returns a text in the form of a random UUID, as Kafka appends one to a member id."""
    high, low = mix_numbers(*numbers, 1), mix_numbers(*numbers, 2)
    digits = f"{high:016x}{low:016x}"
    variant = "89ab"[low >> 62]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"
