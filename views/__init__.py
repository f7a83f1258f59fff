"""The pages: inputs to scenario, formulas to charts, tables and text. One file per page."""
