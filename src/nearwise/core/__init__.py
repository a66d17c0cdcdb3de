"""The problem and its mathematics: rows, divergences, losses, and the certificates that judge every point."""
