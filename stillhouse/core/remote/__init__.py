"""Access to other machines: addresses without passwords, and files at a git commit."""
