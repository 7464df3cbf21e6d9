"""What happened to a group, out of the journal: the pure part of the pipeline."""
