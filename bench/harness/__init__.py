"""What the benchmarks, the demo and the end-to-end tests share. Python standard library only."""
