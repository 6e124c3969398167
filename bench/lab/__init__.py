"""Studies for those who work on Pequod: `python -m lab`, in a checkout. They are not packaged."""
