"""What the papers compare with, one file each: from a package where one has it, else from its definition."""
