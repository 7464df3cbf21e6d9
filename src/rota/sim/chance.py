"""Chance out of a seed: the same numbers on every machine and in every run.

The generator is SplitMix64 (Steele, Lea and Flood, 2014). The core does not import ``random``,
whose draws are not promised to stay the same from one Python to the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

MASK = 2**64 - 1
GAMMA = 0x9E3779B97F4A7C15

T = TypeVar("T")


def scrambled(number: int) -> int:
    """64 bits in which every bit of the number has had its say."""
    number = (number ^ (number >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    number = (number ^ (number >> 27)) * 0x94D049BB133111EB & MASK
    return number ^ (number >> 31)


def mixed(*numbers: int) -> int:
    """64 bits that depend on all the numbers and on nothing else.

    A draw made this way does not hang on how many were made before it.
    """
    state = 0
    for number in numbers:
        state = scrambled((state + GAMMA + number) & MASK)
    return state


def text_number(text: str) -> int:
    """A number for a text; Python's own ``hash`` differs from process to process."""
    state = 0
    for byte in text.encode():
        state = scrambled((state + GAMMA + byte) & MASK)
    return state


class Chance:
    """Draws, one after another."""

    __slots__ = ("_state",)

    def __init__(self, *seed: int) -> None:
        self._state = mixed(*seed)

    def bits(self) -> int:
        """64 random bits."""
        self._state = (self._state + GAMMA) & MASK
        return scrambled(self._state)

    def below(self, limit: int) -> int:
        """A whole number from 0 up to, but not including, the limit."""
        return (self.bits() * limit) >> 64

    def between(self, low: int, high: int) -> int:
        """A whole number from low to high, both included."""
        return low + self.below(high - low + 1)

    def happens(self, probability: float) -> bool:
        """True in this share of the cases."""
        return self.bits() < probability * 2**64

    def pick(self, choices: Sequence[T]) -> T:
        """One of them."""
        return choices[self.below(len(choices))]


def uuid_like(*numbers: int) -> str:
    """In the form of a random UUID, as Kafka appends one to a member's id."""
    high, low = mixed(*numbers, 1), mixed(*numbers, 2)
    digits = f"{high:016x}{low:016x}"
    variant = "89ab"[low >> 62]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"
