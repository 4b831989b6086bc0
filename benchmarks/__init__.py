"""What Stillhouse is measured by; `python -m benchmarks --help` lists the benchmarks."""
