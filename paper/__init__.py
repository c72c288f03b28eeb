"""`mast` with the methods, protocols, figures, studies and tables that only the paper needs."""


def register() -> None:
    """Add the methods, protocols and figures of the paper to those of `mast`."""
    from paper import analyses, methods, protocols

    analyses.register()
    methods.register()
    protocols.register()
