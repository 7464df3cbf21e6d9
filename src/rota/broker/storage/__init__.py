"""The log directory of a broker, in Kafka's file formats; nothing here needs the rest of the
broker.

From the bottom up: ``disk`` (all file access), ``file_records`` (batches in a file), ``index``,
``checkpoint``, ``log_segment``, ``producer_state``, ``log`` (one partition), ``recovery`` at the
start, ``compaction``; ``catalog`` and ``log_directory`` are the whole directory.
"""
