"""Faster computation: no padding, packed and bf16 matrices, the first token alone, batches in parallel or ahead."""
