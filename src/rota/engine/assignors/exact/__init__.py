"""The exact solver of the sticky assignors: solver.py decides, min_cost_flow.py is what it
computes with.
"""
