"""Parts of benchmarks/grid.py: tasks, networks, arms, jobs, evaluation and summary."""
