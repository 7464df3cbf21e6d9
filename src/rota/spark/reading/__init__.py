"""What a task does: ranges of partitions as Arrow, straight from raw Fetch answers. No pyspark."""
