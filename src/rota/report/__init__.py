"""The report: the story of each group, read from the gold tables and written as an HTML page."""
