"""The report: reads the gold tables of a run, finds the story of each group, and writes it as
one HTML page.
"""
