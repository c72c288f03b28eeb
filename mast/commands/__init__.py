"""The verbs: one file and one function a command; a verb may use those below it."""
