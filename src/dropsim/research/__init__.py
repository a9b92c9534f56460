"""Training, evaluation, synthesis of data sets."""
