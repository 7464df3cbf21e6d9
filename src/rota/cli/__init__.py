"""The ``rota`` command: modules of each subcommand; main, flags and render are for all."""
