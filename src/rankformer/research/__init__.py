"""The paper's tables and figures, each made of cells that are computed once and kept."""
