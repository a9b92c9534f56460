"""The live simulation: a session that people push about, its steady clock, and the browser that shows it."""
