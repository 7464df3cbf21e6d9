"""The pipeline behind ``rota run``: evidence about consumer groups in, tables out.

In the order of the data: :mod:`.tables` declares every table. :mod:`.ingest` reads segments, a live
journal, broker logs and samples of log ends into bronze; :mod:`.decode` makes silver of it;
:mod:`.rebalances` and :mod:`.lag` make gold of that, one group at a time. :mod:`.stages` runs these
steps, :mod:`.store` keeps the tables, :mod:`.follow` repeats the steps for a live cluster,
:mod:`.poll` samples groups where the journal may not be read, :mod:`.demo` writes a simulated day.
"""
