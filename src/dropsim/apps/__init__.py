"""What people start: the command, the browser app, a gymnasium environment."""
