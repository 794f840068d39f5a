"""Optional compiled kernels with the same results as the Python ones."""
