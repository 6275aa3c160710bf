"""The parts of compare.py: models, engines that run them, figures, tables."""
