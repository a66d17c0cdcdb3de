"""What is wanted: constraints, divergences and losses, bound to features as a problem with a certificate."""
