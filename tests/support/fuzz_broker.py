"""Atheris against a whole broker: requests that are guided by what they cover.

Run ``python -m tests.support.fuzz_broker``. Options are libFuzzer's, such as
``-max_total_time=3600``; a crash leaves a file that, given as an argument, shows it again.
"""

from __future__ import annotations

import importlib
import sys

#: Requests on one broker, so that one can build on what another did.
FRAMES = 8


def main() -> None:
    atheris = importlib.import_module("atheris")  # not a dependency: it is for the night
    with atheris.instrument_imports(include=["rota"]):
        fuzz = importlib.import_module("tests.pure.broker.test_broker_fuzz")

    def attack(data: bytes) -> None:
        provider = atheris.FuzzedDataProvider(data)
        found = fuzz.Siege(provider.ConsumeIntInRange(0, 3))
        for _ in range(FRAMES):
            frame = provider.ConsumeBytes(provider.ConsumeIntInRange(0, 300))
            if provider.ConsumeBool():  # most that comes by chance gets no farther than the head
                frame = fuzz.spliced(provider.ConsumeIntInRange(0, 10_000), frame, found.known)
            found.give(frame)
        found.keep()
        found.check_promises()

    atheris.Setup(sys.argv, attack)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
