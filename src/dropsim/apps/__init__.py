"""Programs to start: the command, the browser app, the live link, a Gymnasium environment."""
