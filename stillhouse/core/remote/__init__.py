"""Access to other machines: addresses without passwords, deadlines, and files at a git commit."""
