"""The paper's tables, trained and measured; and the engine of what starts from recipes."""


def register() -> None:
    """Add the methods and protocols of the paper to those of `mast`."""
    from paper import methods, protocols

    methods.register()
    protocols.register()
