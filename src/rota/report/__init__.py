"""The report: the story that the gold tables tell, and one page that shows it."""
