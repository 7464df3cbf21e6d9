"""The HTML page of the report: Python code that writes it, and the HTML, CSS and JavaScript
files that it consists of.
"""
