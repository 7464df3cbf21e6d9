"""Simulates a consumer group with the real coordinator and the real members, under a virtual clock.

Start with ``simulation.py`` (``rota.simulate``), then ``world.py``.
"""
