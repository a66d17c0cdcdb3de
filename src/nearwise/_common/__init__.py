"""What every room uses: reading arguments, whole files, threads."""
