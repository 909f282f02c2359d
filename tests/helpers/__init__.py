"""Helpers of the tests: tiny worlds, fake files, processes and servers."""
