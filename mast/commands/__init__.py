"""The verbs: one file and one function per command."""
