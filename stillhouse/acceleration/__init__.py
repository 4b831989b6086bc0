"""Faster computation: no padding, packed and bf16 matrices, batches in parallel, the first token alone."""
