"""`mast` with the methods, protocols, figures, studies and tables that only the paper needs."""


def register() -> None:
    """Add the methods, protocols and figures of the paper to those of `mast`."""
    from paper import analyses, extras, methods, protocols

    analyses.register()
    extras.register()
    methods.register()
    protocols.register()
