"""What happened to a group, from its journal, the broker's log or samples.

The walk from a journal record to advice: ``generations.py``, ``rebalances.py``, ``causes.py``,
``whatif.py``, ``advice.py``.
"""
