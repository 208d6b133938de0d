"""The tables and figures of the paper: one module each, CSV in, PDF, PNG, Markdown and TeX out."""
