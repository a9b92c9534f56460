"""The paper's results, measured again: eight claims, each with a figure, its data and a verdict."""
