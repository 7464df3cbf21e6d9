"""The pure part of Rota: values, formats, assignors, the coordinator, the member, the simulator.

Nothing here does IO, reads a clock, starts a thread or writes a log. Time is an argument, and
effects are returned as commands.
"""
