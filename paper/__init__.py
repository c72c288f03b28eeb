"""`mast` with the methods, protocols, data, figures and tables that only the paper needs."""


def register() -> None:
    """Add the methods, protocols and figures of the paper to those of `mast`."""
    from paper import analyses, annotated, extras, methods, protocols

    annotated.register()
    analyses.register()
    extras.register()
    methods.register()
    protocols.register()
