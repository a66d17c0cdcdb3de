"""What the command line, a notebook and a page share: hold-out, measures before and after, inspection."""
