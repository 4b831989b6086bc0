"""Steps: plain functions over paths, one module each. `registry.py` lists them, `execute.py` runs one."""
