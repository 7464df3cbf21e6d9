"""The log directory of a broker, in Kafka's file formats.

From the bottom up: ``disk`` (all file access), ``file_records`` (batches in a file), ``index``,
``checkpoint``, ``log_segment``, ``producer_state``, then ``log`` (one partition: append and read)
with ``validation`` before an append and ``recovery`` at the start; ``cleaner`` chooses logs for
``compaction``; ``catalog`` and ``log_directory`` are the whole directory. Nothing here needs the
rest of the broker.
"""
