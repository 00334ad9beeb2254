"""The diagnosis: patterns of memory inefficiency, each with the line to change."""
