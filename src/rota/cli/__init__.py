"""The ``rota`` command: one module for each subcommand, and what they share (main, flags,
render).
"""
