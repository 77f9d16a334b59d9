"""Runs a workload of packages and steps over sub-agents on one PolyKV server, above a floor."""
