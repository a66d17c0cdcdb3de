"""Data from outside: tables, files of side information, data sets by name, model files."""
