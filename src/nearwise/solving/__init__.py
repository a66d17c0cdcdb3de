"""How a problem is solved: one driver, the solvers it runs, and what it hands back."""
