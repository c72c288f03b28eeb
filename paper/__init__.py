"""The paper's tables, trained and measured; and the engine of what starts from recipes."""
