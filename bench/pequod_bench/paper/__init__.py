"""The paper's figures beside other systems: runs, tables, plots, report."""
