"""How a formulation is solved: one file for each method, and the loop that runs and judges them."""
