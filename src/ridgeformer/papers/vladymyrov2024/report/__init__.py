"""One self-contained HTML page with the claims, the table, the figures and how they were made."""
