"""What talks to other machines: addresses without passwords, deadlines, and files that a git commit names."""
