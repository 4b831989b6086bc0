"""What makes processors faster: no padding, packed and bf16 matrices, batches side by side, one token."""
