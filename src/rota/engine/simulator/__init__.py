"""Simulates a group with the real coordinator and members, under a virtual clock.

Start with ``simulation.py`` (``rota.simulate``), then ``world.py``.
"""
