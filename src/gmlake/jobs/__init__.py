"""The ranks of a job: the small file that each leaves, and what they say together."""
