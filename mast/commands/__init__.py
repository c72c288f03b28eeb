"""The verbs: one file and one function per command; a verb may use those below it."""
