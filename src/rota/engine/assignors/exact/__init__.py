"""The exact solver of the sticky assignors: solver.py has the steps, min_cost_flow.py the flows."""
