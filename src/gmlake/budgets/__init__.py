"""Budgets of GPU memory for tests: a plugin for pytest."""
