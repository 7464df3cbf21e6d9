"""The pipeline on Spark: from a cluster's journal to every rebalance, its cause and its cost."""
